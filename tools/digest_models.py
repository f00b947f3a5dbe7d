"""The exports of models of libraries: transformers, torchvision's detectors, folders for applications, TorchScript."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

import fx_onnx
from tools.digest_cases import Case, Function, add, add_both, add_case, copied, i, t

SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 60}
T5 = {
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 32,
    "num_layers": 1,
    "num_heads": 2,
    "vocab_size": 60,
    "decoder_start_token_id": 0,
}
WHISPER = {
    "num_mel_bins": 8,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "vocab_size": 60,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_source_positions": 24,
    "pad_token_id": 0,
    "max_target_positions": 32,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "decoder_start_token_id": 2,
}
GPT2 = {
    "n_embd": 32,
    "n_layer": 1,
    "n_head": 4,
    "n_positions": 64,
    "vocab_size": 60,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
MODELS: dict[str, Callable[[], nn.Module]] = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, num_key_value_heads=2)),
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2)),
    "mistral": lambda: transformers.MistralForCausalLM(
        transformers.MistralConfig(**SMALL, num_key_value_heads=2, sliding_window=4)
    ),
    "qwen3": lambda: transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=8, eos_token_id=1)
    ),
    "bert": lambda: transformers.BertForSequenceClassification(transformers.BertConfig(**SMALL)),
    "bert_model": lambda: transformers.BertModel(transformers.BertConfig(**SMALL)),
    "t5": lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(**T5)),
    "whisper": lambda: transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**WHISPER)),
    "vit": lambda: transformers.ViTForImageClassification(transformers.ViTConfig(**SMALL, image_size=8, patch_size=4)),
}


def built(name: str) -> Any:
    """Returns a model in eval mode with weights that are not zero."""
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    return model


TEXT = {0: "batch", 1: "sequence"}
IDS, MASK = 1 + i(50, 2, 6), torch.ones(2, 6, dtype=torch.int64)


def add_model(name: str, model: str, kwargs: dict[str, Any], shapes: Any, **options: Any) -> None:
    """Adds an export by keyword arguments."""
    add_case(
        f"transformers/{name}",
        lambda folder: fx_onnx.export(built(model), kwargs=copied(kwargs), dynamic_shapes=shapes, **options),
    )


TOKENS, BOTH = {"input_ids": IDS, "attention_mask": MASK}, {"input_ids": TEXT, "attention_mask": TEXT}
for _name in ("bert", "llama", "gpt2", "mistral"):
    _plain = {**TOKENS, "use_cache": False} if _name != "bert" else TOKENS
    _dims = {**BOTH, "use_cache": None} if _name != "bert" else BOTH
    add_model(f"{_name}/static", _name, _plain, None)
    add_model(f"{_name}/dynamic", _name, _plain, _dims)
    add_model(f"{_name}/opset_14", _name, _plain, _dims, opset_version=14)
add_model("bert/openvino", "bert", TOKENS, BOTH, target="openvino")
add_model(
    "t5", "t5", {**TOKENS, "decoder_input_ids": IDS[:, :3]}, {**BOTH, "decoder_input_ids": {0: "batch", 1: "target"}}
)
add_model(
    "whisper",
    "whisper",
    {"input_features": t(2, 8, 48), "decoder_input_ids": IDS[:, :3]},
    {"input_features": {0: "batch"}, "decoder_input_ids": {0: "batch", 1: "target"}},
)
add_model("vit", "vit", {"pixel_values": t(2, 3, 8, 8)}, {"pixel_values": {0: "batch"}})
add_case(
    "transformers/eager_attention", lambda folder: fx_onnx.export(_eager(), kwargs=copied(TOKENS), dynamic_shapes=BOTH)
)


def _eager() -> nn.Module:
    return transformers.BertModel(transformers.BertConfig(**SMALL, attn_implementation="eager")).eval()


def _generation(model: str, options: dict[str, Any], exporting: dict[str, Any], folder: Path) -> Any:
    module = built(model)
    program = fx_onnx.export(module, **fx_onnx.text_generation_arguments(module, **options), **exporting)
    if exporting.get("target") == "onnxruntime-genai":
        program.save_genai(folder / "genai", config=module.config, generation_config=module.generation_config)
    return program


GENERATION = {
    "plain": ({}, {}), "without_padding": ({"padding": False}, {}), "last_logits": ({"logits_to_keep": 1}, {}),
    "static_cache": ({"cache": "static", "max_length": 16}, {}),
    "one_token": ({"single_token": True, "padding": False}, {}),
    "genai": ({"full_cache": True}, {"target": "onnxruntime-genai"}), "opset_23": ({}, {"opset_version": 23}),
}  # fmt: skip
for _model in ("llama", "gpt2", "mistral", "qwen3"):
    for _name, (_options, _exporting) in GENERATION.items():
        if _model == "llama" or _name in ("plain", "genai"):
            add_case(f"generation/{_model}/{_name}", functools.partial(_generation, _model, _options, _exporting))
for _target in ("onnxruntime-genai-accuracy-level-4", "onnxruntime-cuda", "onnxruntime-web", "webgpu", "openvino"):
    add_case(f"generation/llama/{_target}", functools.partial(_generation, "llama", {}, {"target": _target}))

# ---------------------------------------------------------------- folders for applications


def _folder(model: str, options: dict[str, Any], folder: Path) -> Any:
    """Returns the files of an export of a saved model, which has the files that the layouts need."""
    source = folder / "source"
    built(model).save_pretrained(source)
    (source / "modules.json").write_text(json.dumps([]))
    (source / "tokenizer.json").write_text("{}")
    inputs = {"input_features": t(1, 8, 48)} if model == "whisper" else None
    files = fx_onnx.export_pretrained(source, folder / "out", inputs=inputs, **options)
    return [f"{each.name} {each.size} {each.precision} {each.kept}" for each in files]


for _model, _options in (
    ("llama", {}),
    ("llama", {"layout": "genai", "verify": False}),
    ("llama", {"layout": "transformers.js", "precision": ("fp32", "fp16", "q4"), "verify": False}),
    ("llama", {"precision": "q4", "target": "onnxruntime-accuracy-level-4", "verify": False}),
    ("bert", {"opset_version": 17}),
    ("bert", {"layout": "transformers.js", "precision": ("fp32", "int8"), "verify": False}),
    ("bert_model", {"layout": "sentence-transformers", "metadata": "none", "verify": False}),
    ("bert_model", {"layout": "model-package", "precision": ("fp32", "int8"), "verify": False}),
    ("t5", {"verify": False}),
    ("t5", {"layout": "optimum-two-decoders", "verify": False}),
    ("whisper", {"layout": "transformers.js", "verify": False}),
    ("whisper", {"layout": "genai", "verify": False}),
    ("vit", {"precision": "fp16", "verify": False}),
    ("vit", {"layout": "diffusers", "verify": False}),
    ("vit", {"task": "no-task"}),
):
    _name = "/".join(str(value) for key, value in _options.items() if key != "verify")
    add_case(f"pretrained/{_model}/{_name or 'default'}", functools.partial(_folder, _model, _options))

# ---------------------------------------------------------------- torchvision


def _detector(name: str, size: int) -> Case:
    def case(folder: Path) -> Any:
        from tests.models.vision import VISION  # torchvision with operators of its own for the CPU

        (model,) = [each for each in VISION if each.name == name]
        return fx_onnx.export(model.build(), ([torch.rand(3, size, size)],))

    return case


for _name, _size in (("ssdlite320_mobilenet_v3_large", 96), ("retinanet_resnet50_fpn", 96)):
    add_case(f"torchvision/{_name}", _detector(_name, _size))


def _vision_operators(folder: Path) -> Any:
    from tests.torchvision_cpu import torchvision

    ops, boxes = torchvision.ops, torch.tensor([[0.0, 0, 4, 4], [1, 1, 5, 5], [3, 3, 8, 8]])
    rois = torch.cat([torch.zeros(3, 1), boxes], 1)

    def function(x: Tensor, boxes: Tensor, rois: Tensor, scores: Tensor) -> Any:
        aligned = ops.roi_align(x, rois, (2, 2), 0.5, 2, True)
        return ops.nms(boxes, scores, 0.3), aligned, ops.box_iou(boxes, boxes), ops.roi_pool(x, rois, (2, 2))

    return fx_onnx.export(Function(function), (t(1, 3, 8, 8), boxes, rois, t(3)))


add_case("torchvision/operators", _vision_operators)

# ---------------------------------------------------------------- TorchScript


class Steps(nn.Module):
    """A loop whose number of steps is data, a branch on data, and an early return."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        """(rows, 4) to the same shape."""
        for k in range(int(steps.item())):
            x = self.linear(x) + k
        if bool(x.sum() > 0):
            return -x
        return x.relu()


class Lists(nn.Module):
    """Lists, optional values, numbers of sizes, and a constant loop."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x: Tensor, y: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
        """(rows, 4) to a tensor and a list."""
        found: list[Tensor] = []
        for layer in self.layers:
            x = layer(x) * self.scale
            found.append(x)
        if y is not None:
            x = x + y
        return torch.cat(found, 1).view(x.size(0), -1), found


def _from_file(model: Any) -> Any:
    file = io.BytesIO()
    torch.jit.save(model, file)
    file.seek(0)
    return torch.jit.load(file)


def _scripted(x: Tensor, n: int = 2) -> Tensor:
    return torch.stack([x + k for k in range(n)]).mean(0) if x.dim() > 1 else x


ROWS = (t(3, 4),)
STEPS = (t(3, 4), torch.tensor(3))
add_both("torchscript/script", lambda: torch.jit.script(Steps().eval()), STEPS, {"x": {0: "n"}, "steps": None})
add_both(
    "torchscript/file", lambda: _from_file(torch.jit.script(Steps().eval())), STEPS, {"x": {0: "n"}, "steps": None}
)
add_both("torchscript/lists", lambda: torch.jit.script(Lists().eval()), ROWS, {"x": {0: "n"}})
add("torchscript/frozen", lambda: torch.jit.freeze(torch.jit.script(Lists().eval())), ROWS)
add_both(
    "torchscript/trace",
    lambda: torch.jit.trace(nn.Sequential(nn.Linear(4, 4), nn.Tanh()).eval(), ROWS),
    ROWS,
    ({0: "n"},),
)
add("torchscript/function", lambda: torch.jit.script(_scripted), ROWS)
add(
    "torchscript/traced_function",
    lambda: torch.jit.trace(lambda x: x.softmax(1), ROWS),
    ROWS,
    dynamic_axes={"x": [0]},
    input_names=["x"],
)
add("torchscript/opset_11", lambda: torch.jit.script(Steps().eval()), STEPS, opset_version=11, dynamo=False)
