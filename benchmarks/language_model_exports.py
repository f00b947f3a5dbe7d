"""Exports the Llama of ``benchmarks.language_models`` with one exporter; the benchmark runs it in a process of its own.

    python -m benchmarks.language_model_exports EXPORTER WEIGHTS FOLDER

``WEIGHTS`` is a folder of transformers with the model and a tokenizer. ``FOLDER`` gets ``model.onnx``; an exporter that
writes one graph for prompts and one for single tokens also writes ``prefill.onnx``. The interpreter is one that has the
exporter: optimum-onnx needs another version of transformers than fx_onnx, so each may have an environment of its own.
"""

import logging
import runpy
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import transformers

import tests  # noqa: F401  lets torchvision load beside a CPU build of torch

SHAPES = {
    "input_ids": {0: "batch", 1: "sequence"},
    "attention_mask": {0: "batch", 1: "total"},
    "position_ids": {0: "batch", 1: "sequence"},
    "past_key_values": {0: "batch", 2: "past"},
}
BLOCK = 32
"""The number of weights of 4 bits that share a scale."""


def arguments(config: Any, length: int, past: int, batch: int = 1) -> dict[str, Any]:
    """Returns the keyword arguments of a forward: new tokens after a past."""
    generator = torch.Generator().manual_seed(past)
    cache = transformers.DynamicCache(config=config)
    for layer in range(config.num_hidden_layers):
        sizes = batch, config.num_key_value_heads, past, config.hidden_size // config.num_attention_heads
        cache.update(torch.randn(sizes, generator=generator), torch.randn(sizes, generator=generator), layer)
    ids = torch.randint(config.vocab_size, (batch, length), generator=generator)
    mask = torch.ones(batch, past + length, dtype=torch.int64)
    places = torch.arange(past, past + length).expand(batch, -1).contiguous()
    return {"input_ids": ids, "attention_mask": mask, "position_ids": places, "past_key_values": cache}


def loaded(weights: Path) -> Any:
    """Returns the model in float32."""
    return transformers.AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32).eval()


def of_fx_onnx(weights: Path, folder: Path, *, builder_weights: str = "", **keywords: Any) -> None:
    """Exports with fx_onnx; linear layers have the weights of the builder's graph ``builder_weights``, if given."""
    import fx_onnx

    model = loaded(weights)
    if builder_weights:
        quantize(model, folder.parent / builder_weights / "model.onnx")
    example = arguments(model.config, 3, 5, batch=2)
    program = fx_onnx.export(model, (), kwargs=example, dynamic_shapes=SHAPES, **keywords)
    program.save(folder / "model.onnx", external_data=True)


def of_builder(weights: Path, folder: Path, *, precision: str) -> None:
    """Runs onnxruntime-genai's model builder."""
    flags = ["-i", weights, "-o", folder, "-p", precision, "-e", "cpu", "-c", folder / "cache"]
    sys.argv = ["builder", *map(str, flags)]
    runpy.run_module("onnxruntime_genai.models.builder", None, "__main__")


def of_products(weights: Path, folder: Path, *, builder: str) -> None:
    """Writes the products with weights of the builder's graph in a chain, without all that lies between them.

    No graph with the same weights and kernels takes less time. Products of one input are added, and an input that is
    wider than the next matrix is cut.
    """
    del weights
    model = onnx.load(folder.parent / builder / "model.onnx")
    matrices = {each.name: each for each in model.graph.initializer}
    embedding = next(node for node in model.graph.node if node.op_type == "Gather" and node.input[1] == "input_ids")
    groups: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        if node.op_type.startswith("MatMul") and node.input[1] in matrices:
            groups.setdefault(node.input[0], []).append(node)
    nodes, bounds, last = [embedding], {"zero": 0, "last": -1}, embedding.output[0]
    for number, products in enumerate(groups.values()):
        attributes = {each.name: each.i for each in products[0].attribute}
        width = attributes.get("K") or matrices[products[0].input[1]].dims[0]
        bounds[f"width_{width}"] = width
        cut, total = f"cut_{number}", products[0].output[0]
        nodes.append(onnx.helper.make_node("Slice", [last, "zero", f"width_{width}", "last"], [cut]))
        for product in products:
            product.input[0] = cut
            nodes.append(product)
        for product in products[1:]:
            nodes.append(onnx.helper.make_node("Add", [total, product.output[0]], [f"sum_{number}"]))
            total = f"sum_{number}"
        last = total
    used = {name for node in nodes for name in node.input}
    weights_of = [each for name, each in matrices.items() if name in used]
    sizes = [onnx.numpy_helper.from_array(np.array([value]), name) for name, value in bounds.items()]
    inputs = [each for each in model.graph.input if each.name == "input_ids"]
    outputs = [each for each in model.graph.output if each.name == last]
    graph = onnx.helper.make_graph(nodes, "products", inputs, outputs, [*weights_of, *sizes])
    chain = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    onnx.save(chain, folder / "model.onnx", save_as_external_data=True, location="model.onnx.data")


def of_torch_onnx(weights: Path, folder: Path) -> None:
    """Exports with torch.onnx. The cache is a list of tensors: with a DynamicCache as an argument, its export fails."""

    class WithTensors(torch.nn.Module):
        """Takes and returns the cache as tensors."""

        def __init__(self) -> None:
            super().__init__()
            self.model = loaded(weights)

        def forward(self, input_ids: Any, attention_mask: Any, position_ids: Any, past: Any) -> Any:
            cache = transformers.DynamicCache(past)
            given = {"attention_mask": attention_mask, "position_ids": position_ids, "past_key_values": cache}
            found = self.model(input_ids, use_cache=True, **given)
            return found.logits, [(layer.keys, layer.values) for layer in cache.layers]

    module = WithTensors().eval()
    example = arguments(module.model.config, 3, 5, batch=2)
    example["past"] = [(layer.keys, layer.values) for layer in example.pop("past_key_values").layers]
    auto = torch.export.Dim.AUTO
    shapes: dict[str, Any] = {name: {0: auto, 1: auto} for name in example}
    shapes["past"] = [({0: auto, 2: auto}, {0: auto, 2: auto})] * len(example["past"])
    names = [f"{number}.{kind}" for number in range(len(example["past"])) for kind in ("key", "value")]
    program = torch.onnx.export(
        module,
        (),
        kwargs=example,
        dynamic_shapes=shapes,
        input_names=[*list(example)[:3], *(f"past_key_values.{name}" for name in names)],
        output_names=["logits", *(f"present.{name}" for name in names)],
        dynamo=True,
        verbose=False,
    )
    program.save(folder / "model.onnx", external_data=True)


def of_transformers(weights: Path, folder: Path, *, generation: bool) -> None:
    """Exports with transformers' exporter and its fusions for ONNX Runtime: one graph, or one for each stage."""
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    model, config = loaded(weights), OnnxConfig(dynamic=True, ort_fusions="cpu")
    if not generation:
        OnnxExporter().export(model, arguments(model.config, 3, 5, batch=2), config=config).save_pretrained(folder)
        return
    example = arguments(model.config, 3, 0, batch=2)
    tokens = {name: example[name] for name in ("input_ids", "attention_mask")}
    OnnxExporter().export_for_generation(model, tokens, config=config).save_pretrained(folder)
    (folder / "decode.onnx").rename(folder / "model.onnx")  # it still reads decode.onnx.data


def of_optimum(weights: Path, folder: Path) -> None:
    """Exports with optimum-onnx."""
    from optimum.exporters.onnx import main_export

    main_export(str(weights), output=str(folder), task="text-generation-with-past", do_validation=False)


EXPORTERS: dict[str, Callable[[Path, Path], None]] = {
    **{f"opset {number}": partial(of_fx_onnx, opset_version=number) for number in (20, 23, 24)},
    "target onnxruntime-genai": partial(of_fx_onnx, target="onnxruntime-genai"),
    "builder": partial(of_builder, precision="fp32"),
    "torch.onnx": of_torch_onnx,
    "transformers, one graph": partial(of_transformers, generation=False),
    "transformers, two graphs": partial(of_transformers, generation=True),
    "optimum": of_optimum,
    "products alone": partial(of_products, builder="builder"),
    "builder int4": partial(of_builder, precision="int4"),
    "products alone int4": partial(of_products, builder="builder int4"),
    "target onnxruntime-genai-accuracy-level-4": partial(
        of_fx_onnx, target="onnxruntime-genai-accuracy-level-4", builder_weights="builder int4"
    ),
    "target onnxruntime-genai int4": partial(of_fx_onnx, target="onnxruntime-genai", builder_weights="builder int4"),
    "builder int8": partial(of_builder, precision="int8"),
    "target onnxruntime-genai-accuracy-level-4 int8": partial(
        of_fx_onnx, target="onnxruntime-genai-accuracy-level-4", builder_weights="builder int8"
    ),
    "target onnxruntime-genai int8": partial(of_fx_onnx, target="onnxruntime-genai", builder_weights="builder int8"),
}
"""The name of a row → the function that writes its graph."""


# ---------------------------------------------------------------- weights of 4 and 8 bits


def quantize(model: Any, path: Path) -> None:
    """Replaces the weights of the linear layers by those of the builder's graph: 4 or 8 bits, blocks with a scale."""
    from torchao.quantization import IntxUnpackedToInt8Tensor

    stored = {each.name: onnx.numpy_helper.to_array(each) for each in onnx.load(path).graph.initializer}
    heads = model.config.num_attention_heads, model.config.num_key_value_heads, model.config.num_key_value_heads
    size = model.config.hidden_size // model.config.num_attention_heads
    matrices, bits = {}, 8 if any(name.endswith(".weight_Q8") for name in stored) else 4
    ending = f".weight_Q{bits}"
    for name in (name.removesuffix(ending) for name in stored if name.endswith(ending)):
        matrix = _matrix(stored[f"{name}{ending}"], stored[f"{name}.weight_scales"], bits)
        module = name.removesuffix(".MatMul").replace(".attn.", ".self_attn.")
        if module.endswith("qkv_proj"):
            ends = np.cumsum([count * size for count in heads])
            for letter, end, count in zip("qkv", ends, heads, strict=True):
                rows = slice(int(end) - count * size, int(end))
                matrices[module.replace("qkv", letter)] = tuple(part[rows] for part in matrix)
        else:
            matrices[module] = matrix
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            numbers, scales = matrices.pop(name)
            weight = IntxUnpackedToInt8Tensor(
                numbers,
                scales,
                torch.zeros_like(scales, dtype=torch.int8),
                getattr(torch, f"int{bits}"),
                (1, BLOCK),
                torch.float32,
                None,
            )
            module.weight = torch.nn.Parameter(weight, requires_grad=False)
    if matrices:
        raise RuntimeError(f"the model has no layers for the weights {', '.join(matrices)}")


def _matrix(packed: np.ndarray, scales: np.ndarray, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the signed numbers (rows, columns), and the scales (rows, blocks), of a weight of MatMulNBits."""
    unsigned = packed if bits == 8 else np.stack([packed & 15, packed >> 4], -1)
    numbers = (unsigned.reshape(len(packed), -1).astype(np.int16) - 2 ** (bits - 1)).astype(np.int8)
    return torch.from_numpy(numbers), torch.from_numpy(scales.reshape(len(packed), -1))


def main() -> None:
    """Runs one exporter."""
    name, weights, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    EXPORTERS[name](weights, folder)


if __name__ == "__main__":
    main()
