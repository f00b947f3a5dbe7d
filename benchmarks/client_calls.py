"""Calls the ONNX exports of other projects, with ``fx_onnx.replacing_torch_onnx()``.

    python -m benchmarks.client_calls CLIENT CALL

Runs in an environment that has the client; benchmarks/clients.py makes it. Nothing else of torch or of the client is
replaced. Each call runs the file that the client wrote in ONNX Runtime, and compares the results with the module's.
Weights are random, so that nothing is downloaded.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import fx_onnx
from benchmarks import client_audio, client_vision  # noqa: F401  register their calls
from benchmarks.client_registry import CALLS, assert_right, call, settle

# ---------------------------------------------------------------- segment-anything


def _sam(**options: Any) -> Callable[[Path], None]:
    """Returns the call of segment-anything's script export_onnx_model.py, which its package does not contain."""

    def run(folder: Path) -> None:
        from segment_anything import sam_model_registry
        from segment_anything.utils.onnx import SamOnnxModel

        torch.manual_seed(0)
        sam = sam_model_registry["vit_b"](checkpoint=None)
        model = SamOnnxModel(sam, **options).eval()
        embedding = (1, sam.prompt_encoder.embed_dim, *sam.prompt_encoder.image_embedding_size)
        mask = tuple(4 * size for size in sam.prompt_encoder.image_embedding_size)

        def inputs(points: int, height: int, width: int) -> dict[str, Tensor]:
            return {
                "image_embeddings": torch.randn(embedding),
                "point_coords": torch.randint(0, 1024, (1, points, 2)).float(),
                "point_labels": torch.randint(0, 4, (1, points)).float(),
                "mask_input": torch.randn(1, 1, *mask),
                "has_mask_input": torch.ones(1),
                "orig_im_size": torch.tensor([height, width]).float(),
            }

        example, path = inputs(5, 1500, 2250), folder / "sam.onnx"
        model(*example.values())
        with path.open("wb") as file:
            torch.onnx.export(
                model,
                tuple(example.values()),
                file,
                export_params=True,
                verbose=False,
                opset_version=17,
                do_constant_folding=True,
                input_names=list(example),
                output_names=["masks", "iou_predictions", "low_res_masks"],
                dynamic_axes={"point_coords": {1: "num_points"}, "point_labels": {1: "num_points"}},
            )
        for given in (example, inputs(2, 600, 800)):
            with torch.no_grad():
                assert_right(path, given.values(), model(*given.values()))

    return run


call("segment-anything", "the decoder, opset 17, into a file object")(_sam(return_single_mask=False))
call("segment-anything", "the decoder with a single mask")(_sam(return_single_mask=True))


# ---------------------------------------------------------------- transformers

_TYPES = (
    "big_bird", "deberta-v2", "roformer", "splinter", "bloom", "gemma2", "gpt2", "gpt_oss", "llama", "mixtral",
    "qwen2_moe", "diffllama", "bart", "t5", "beit", "segformer", "vit", "yolos", "wav2vec2", "wav2vec2-conformer",
    "parakeet_encoder", "chinese_clip", "clip", "siglip", "swin", "whisper", "llava", "detr",
)  # fmt: skip


def _transformers(names: Iterable[str]) -> Callable[[Path], None]:
    """Returns exports of OnnxExporter, with its patches for torch.onnx and without them; see benchmarks/families.py."""

    def run(_: Path) -> None:
        from benchmarks.families import RIGHT, outcome
        from tests.models.families import FAMILIES

        families = [family for family in FAMILIES if family.name in names]  # some are there with a cache too
        assert {family.name for family in families} == set(names)
        for family in families:
            for exporter in ("OnnxExporter", "OnnxExporter, patches off"):
                found = outcome(family, exporter)
                assert found.kind == RIGHT, f"{family.name}, {exporter}: {found.text}"

    return run


for _index in range(0, len(_TYPES), 4):
    _types = _TYPES[_index : _index + 4]
    call("transformers", f"OnnxExporter, patches on and off: {', '.join(_types)}")(_transformers(_types))


# ---------------------------------------------------------------- optimum-onnx, sentence-transformers


def _tokenizer(folder: Path) -> Any:
    """Returns a BERT tokenizer with a vocabulary of letters."""
    from transformers import BertTokenizerFast

    vocabulary = folder / "vocab.txt"
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    vocabulary.write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters)])
    )
    return BertTokenizerFast(str(vocabulary))


def _tiny(model_type: str) -> Any:
    from transformers import AutoConfig

    sizes = {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 99,
        "n_embd": 32, "n_layer": 2, "n_head": 4, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
        "num_key_value_heads": 2, "image_size": 32, "patch_size": 8,
    }  # fmt: skip
    known = vars(AutoConfig.for_model(model_type))
    attributes = {*known, *AutoConfig.for_model(model_type).attribute_map}
    return AutoConfig.for_model(model_type, **{name: size for name, size in sizes.items() if name in attributes})


def _optimum(model_type: str, task: str, **options: Any) -> Callable[[Path], None]:
    """Returns an export of optimum, which compares the numbers itself, with a tolerance of 1e-4."""

    def run(folder: Path) -> None:
        from optimum.exporters.onnx import onnx_export_from_model
        from optimum.exporters.tasks import TasksManager

        torch.manual_seed(0)
        model = TasksManager.get_model_class_for_task(task, model_type=model_type).from_config(_tiny(model_type)).eval()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            onnx_export_from_model(model, output=folder, task=task, preprocessors=[], **options)
        assert list(folder.glob("*.onnx")), "no file was written"
        assert not [each for each in caught if "max diff" in str(each.message)]

    return run


for _type, _task, _options in (
    ("bert", "text-classification", {}),
    ("bert", "feature-extraction", {"opset": 14}),
    ("gpt2", "text-generation-with-past", {}),
    ("llama", "text-generation-with-past", {}),
    ("t5", "text2text-generation-with-past", {}),
    ("vit", "image-classification", {}),
    ("distilbert", "token-classification", {"opset": 11}),
):
    _given = "".join(f", {key}={value}" for key, value in _options.items())
    call("optimum-onnx", f'onnx_export_from_model({_type}, "{_task}"{_given})')(_optimum(_type, _task, **_options))


@call("sentence-transformers", 'SentenceTransformer(path, backend="onnx")')
def _sentences(folder: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from transformers import BertModel

    tokenizer = _tokenizer(folder)
    torch.manual_seed(0)
    BertModel(_tiny("bert")).save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    eager = SentenceTransformer(str(folder / "bert"), device="cpu")
    eager.save_pretrained(str(folder / "sentences"))
    exported = SentenceTransformer(str(folder / "sentences"), backend="onnx", device="cpu")
    texts = ["a cat", "the quick brown fox jumps over the lazy dog"]
    torch.testing.assert_close(
        exported.encode(texts, convert_to_tensor=True), eager.encode(texts, convert_to_tensor=True)
    )


# ---------------------------------------------------------------- Lightning, skorch, fastai


def _network() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(), nn.Linear(288, 4)
    )
    settle(model, torch.rand(4, 3, 8, 8))
    return model


def _lightning(**options: Any) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        from lightning.pytorch import LightningModule

        class Module(LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.network = _network()

            def forward(self, x: Tensor) -> Tensor:
                """Returns the network's result."""
                result: Tensor = self.network(x)
                return result

        module, sample, path = Module(), torch.rand(2, 3, 8, 8), folder / "lightning.onnx"
        module.to_onnx(path, sample, **options)
        with torch.no_grad():
            assert_right(path, [sample], module.eval()(sample))

    return run


call("lightning", "to_onnx(path, sample)")(_lightning())
call("lightning", "to_onnx(path, sample, export_params=True, opset_version=11, dynamic_axes=...)")(
    _lightning(
        export_params=True,
        opset_version=11,
        input_names=["x"],
        output_names=["y"],
        dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}},
        do_constant_folding=True,
    )
)


@call("skorch", "torch.onnx.export(net.module_, X, path)")
def _skorch(folder: Path) -> None:
    import numpy as np
    from skorch import NeuralNetClassifier

    net = NeuralNetClassifier(_network(), max_epochs=1, verbose=0, iterator_train__shuffle=False)
    generator = np.random.default_rng(0)
    images, classes = generator.random((32, 3, 8, 8), np.float32), generator.integers(0, 4, 32)
    net.fit(images, classes)
    path, sample = folder / "skorch.onnx", torch.from_numpy(images[:2])
    torch.onnx.export(net.module_.eval(), sample, path, input_names=["x"], dynamic_axes={"x": [0]}, opset_version=12)
    assert_right(path, [torch.from_numpy(images)], net.module_(torch.from_numpy(images)).detach())


def _fastai(build: Callable[[], nn.Module]) -> Callable[[Path], None]:
    """Returns the call that fastai's users write; fastai has no function for it."""

    def run(folder: Path) -> None:
        torch.manual_seed(0)
        model = build()
        settle(model, torch.rand(4, 3, 64, 64))
        image, path = torch.rand(1, 3, 64, 64), folder / "model.onnx"
        torch.onnx.export(
            model,
            image,
            str(path),
            export_params=True,
            opset_version=11,
            do_constant_folding=True,
            input_names=["image"],
            output_names=["result"],
            dynamic_axes={"image": {0: "batch"}, "result": {0: "batch"}},
        )
        images = torch.rand(3, 3, 64, 64)
        with torch.no_grad():
            assert_right(path, [images], model(images))

    return run


def _classifier() -> nn.Module:
    from fastai.vision.learner import create_vision_model
    from torchvision.models import resnet18

    model: nn.Module = create_vision_model(resnet18, 3, pretrained=False)
    return model


def _unet() -> nn.Module:
    from fastai.vision.models.unet import DynamicUnet
    from torchvision.models import resnet18

    model: nn.Module = DynamicUnet(nn.Sequential(*list(resnet18().children())[:-2]), 3, (64, 64))
    return model


call("fastai", "torch.onnx.export(learner.model.eval(), x, path) of a resnet18")(_fastai(_classifier))
call("fastai", "torch.onnx.export(learner.model.eval(), x, path) of a DynamicUnet")(_fastai(_unet))


# ---------------------------------------------------------------- calls by keyword


def _keywords(**options: Any) -> Callable[[Path], None]:
    """Returns a call with keywords as in detectron2 and in the tools of ONNX Runtime, which need no installation."""

    def run(folder: Path) -> None:
        model, image, path = _network(), torch.rand(2, 3, 8, 8), folder / "model.onnx"
        with torch.no_grad():
            want = model(image)
        torch.onnx.export(model=model, args=(image,), f=str(path), **options)
        assert_right(path, [image], want)

    return run


_STYLES: Mapping[str, Mapping[str, Any]] = {
    "export_params, verbose, operator_export_type, keep_initializers_as_inputs": {
        "export_params": True, "verbose": True, "keep_initializers_as_inputs": True,
        "operator_export_type": torch.onnx.OperatorExportTypes.ONNX_ATEN_FALLBACK,
    },
    "training, do_constant_folding, opset_version=9": {
        "training": torch.onnx.TrainingMode.EVAL, "do_constant_folding": True, "opset_version": 9,
    },
    "use_external_data_format, enable_onnx_checker, strip_doc_string, opset_version=12": {
        "use_external_data_format": True, "enable_onnx_checker": True, "strip_doc_string": False, "opset_version": 12,
    },
    "example_outputs, _retain_param_name, dynamo=False": {
        "example_outputs": torch.zeros(2, 4), "_retain_param_name": True, "dynamo": False,
    },
    "custom_opsets, export_modules_as_functions=False, autograd_inlining": {
        "custom_opsets": {"my": 1}, "export_modules_as_functions": False, "autograd_inlining": True,
    },
}  # fmt: skip
for _text, _options in _STYLES.items():
    call("by keyword", _text)(_keywords(**_options))


def main(client: str, text: str) -> None:
    """Prints the outcome of one call as a line of JSON: "right", or what went wrong."""
    found = "right"
    with tempfile.TemporaryDirectory() as folder, fx_onnx.replacing_torch_onnx():
        try:
            CALLS[client][text](Path(folder))
        except Exception as error:
            found = f"{type(error).__name__}: {' '.join(str(error).split())}"[:600]
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
