"""The layouts: the names of files, inputs and outputs in the folder that an application loads, and its precisions.

A layout is one row of ``LAYOUTS``, a precision one of ``PRECISIONS``; both are read without torch.
All files of the source but its weights are copied as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fx_onnx.applications.model_package import write_manifest
from fx_onnx.extension_points.plugins import Group, Records
from fx_onnx.messages.arguments import check_names, did_you_mean, shown
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId

__all__ = ["LAYOUTS", "PRECISIONS", "Layout", "Precision", "choose"]


@dataclass(frozen=True)
class Precision:
    """One precision.

    Attributes:
        half: whether weights and activations are float16. Inputs and outputs stay float32.
        config: returns torchao's configuration that quantizes the weights of Linear layers; None if they stay floats.
        block: the number of weights that share a scale; the rows of a weight are a multiple of it.
        opset_version: the first opset that has weights of 4 bits and a scale for each block; None if any will do.
        rtol: the tolerance of ``verify``, because runtimes round at other places than torch; None is the usual one.
        rounds_activations: whether activations become integers when the model runs. A number between two of them may be
            rounded either way, and what follows is then rounded otherwise too. So two right results may be as far apart
            as each is from fp32, and ``verify`` allows twice this distance.
        is_static: whether ``quantize`` changes the exported program, with ranges from calibration inputs, which the
            caller gives. The module does not change before.
    """

    half: bool = False
    config: Callable[[], Any] | None = None
    block: int = 1
    opset_version: int | None = None
    rtol: float | None = None
    rounds_activations: bool = False
    is_static: bool = False


def _int8() -> Any:
    """Returns a scale and a zero point for each row of the activations.

    Without a zero point, torchao divides by the largest magnitude / 127.5. The largest negative number is then between
    two integers, and the last bit of a sum decides to which of them it is rounded.
    """
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, MappingType

    return Int8DynamicActivationInt8WeightConfig(act_mapping_type=MappingType.ASYMMETRIC)


def _int4() -> Any:
    import torch
    from torchao.quantization import IntxWeightOnlyConfig, PerGroup

    return IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(_BLOCK))  # type: ignore[attr-defined]


_BLOCK = 32

_INT8 = Precision(config=_int8, rtol=1e-2, rounds_activations=True)

PRECISIONS = {
    "fp32": Precision(),
    "fp16": Precision(half=True, rtol=1e-2),
    "int8": _INT8,
    "q8": _INT8,
    "q4": Precision(config=_int4, block=_BLOCK, opset_version=21),
    "q4f16": Precision(half=True, config=_int4, block=_BLOCK, opset_version=21, rtol=1e-2),
    "int8-static": Precision(is_static=True),
    "a16w8": Precision(is_static=True, opset_version=21),
    "a16w4": Precision(is_static=True, opset_version=21),
}
"""The name of a precision → its record."""


@dataclass(frozen=True)
class Layout:
    """One layout.

    Attributes:
        files: the part's name → its file, relative to the folder and without ``.onnx``. A task whose parts it lacks is
            refused.
        suffixes: precision → what follows the name of the file. A precision that it lacks is refused.
        dims: the name of a dynamic dim → the name by which the application knows it.
        inputs: the name of an input → the name by which the application knows it.
        required: files of the source without which the application does not load the folder.
        tokenizer: the files of which the application reads one for its tokenizer; empty if it has its own way.
        target: the runtime of the application, unless the caller names one; None is the default of ``export``.
        external_data: as for ``save``; False if the application reads one file only.
        form: which parts of a model with several forms it takes, such as ``merged`` for an encoder and a decoder, or
            ``streams`` for those that sherpa-onnx takes.
        shares_weights: whether equal weights of several files are stored once, which takes external data.
        write_index: writes the file of the application that names the ONNX files, from the folder and these names.
        metadata: returns the metadata of the file of each part, by its name, from the parts.
        is_genai: whether ``ONNXProgram.save_genai`` writes a decoder and its config. Of a model that reads images or
            sounds in a way that onnxruntime-genai does not know, it is the decoder of tokens.
    """

    files: Mapping[str, str]
    suffixes: Mapping[str, str]
    dims: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = ("config.json",)
    tokenizer: tuple[str, ...] = ()
    target: str | None = None
    external_data: bool | None = None
    form: str = "merged"
    shares_weights: bool = False
    write_index: Callable[[Path, Sequence[str]], None] | None = None
    metadata: Callable[[Sequence[Any]], Mapping[str, Mapping[str, str]]] | None = None
    is_genai: bool = False

    def __post_init__(self) -> None:
        if wrong := [name for name in self.suffixes if name not in PRECISIONS]:
            raise ValueError(f"{wrong[0]!r} in suffixes is not one of the precisions {', '.join(PRECISIONS)}")


_SUFFIXES = {name: "" if name == "fp32" else f"_{name}" for name in PRECISIONS if name != "q8"}
_ONE_NAME = dict.fromkeys(_SUFFIXES, "")
_NOT_STATIC = {name: suffix for name, suffix in _SUFFIXES.items() if not PRECISIONS[name].is_static}
_PAIR = ("encoder_model", "decoder_model_merged")
_IN_JS = (
    *("model", *_PAIR, "text_model", "vision_model"),
    *("vision_encoder", "embed_tokens", "prompt_encoder_mask_decoder"),
    *("text_encoder", "encodec_decode", "decoder_postnet_and_vocoder"),
)
_OF_PIPELINES = (
    *("text_encoder", "text_encoder_2", "text_encoder_3"),
    *("unet", "transformer", "vae_encoder", "vae_decoder"),
)
_OF_POLICIES = ("policy_prefix", "policy_step")

_RUNTIME = "onnxruntime"
"""It has products with weights of 4 bits in float32. Those of the standard are rounded to 8 bits by default."""


def _sherpa_metadata(parts: Sequence[Any]) -> Mapping[str, Mapping[str, str]]:
    from fx_onnx.applications.sherpa import sherpa_metadata  # it imports torch

    return sherpa_metadata(parts)


_OWN = {
    "optimum": Layout(
        files={"model": "model", "decoder": "model", **{name: name for name in ("mtp", *_PAIR, *_OF_POLICIES)}},
        suffixes=_ONE_NAME,
        target=_RUNTIME,
        shares_weights=True,
    ),
    "optimum-two-decoders": Layout(
        files={name: name for name in ("encoder_model", "decoder_model", "decoder_with_past_model")},
        suffixes=_ONE_NAME,
        target=_RUNTIME,
        form="two decoders",
        shares_weights=True,
    ),
    "sentence-transformers": Layout(
        files={"model": "onnx/model"},
        suffixes=_ONE_NAME,
        required=("config.json", "modules.json"),
        target=_RUNTIME,
    ),
    "transformers.js": Layout(
        files={"decoder": "onnx/model", **{name: f"onnx/{name}" for name in _IN_JS}},
        suffixes={**_NOT_STATIC, "q8": "_quantized"},  # the name of 8 bits that it takes by default
        dims={"batch": "batch_size"},
        tokenizer=("tokenizer.json",),
        target=_RUNTIME,  # onnxruntime-web has the same operators
        external_data=False,
    ),
    "diffusers": Layout(
        files={name: f"{name}/model" for name in _OF_PIPELINES},
        suffixes=_ONE_NAME,
        required=("model_index.json",),
        target=_RUNTIME,
    ),
    "model-package": Layout(
        files={"decoder": "model", **{name: name for name in ("mtp", *_IN_JS, *_OF_PIPELINES, *_OF_POLICIES)}},
        suffixes=_SUFFIXES,
        required=(),
        target=_RUNTIME,
        shares_weights=True,
        write_index=write_manifest,
    ),
    "sherpa-onnx": Layout(
        files={name: name for name in ("model", "encoder", "decoder", "joiner", *_PAIR)},
        suffixes=_ONE_NAME,
        required=(),
        target=_RUNTIME,
        external_data=False,
        form="streams",
        metadata=_sherpa_metadata,
    ),
    "genai": Layout(
        files={
            "decoder": "model",
            "encoder_with_cross": "encoder",
            "decoder_with_past_model": "decoder",
            **{name: name for name in ("vision", "speech", "embedding")},
        },
        suffixes=dict.fromkeys(_NOT_STATIC, ""),
        form="cross cache",
        inputs={"input_features": "audio_features"},
        tokenizer=("tokenizer.json", "tokenizer.model"),
        target="onnxruntime-genai",
        external_data=True,
        is_genai=True,
    ),
}

LAYOUTS = Records(
    _OWN,
    Group("fx_onnx.layouts", "a record of fx_onnx.Layout", lambda row: isinstance(row, Layout)),
)
"""The name of a layout → its record."""


def choose(layout: str, precision: str | Sequence[str], opset_version: int | None) -> tuple[Layout, tuple[str, ...]]:
    """Returns the layout of this name and the precisions, without importing torch.

    Raises:
        ArgumentError: there is no such layout, it lacks a precision or has only one, or the opset is too old for one.
    """
    chosen = LAYOUTS[_checked("layout", layout, LAYOUTS)]
    given = [precision] if precision is None or isinstance(precision, str) else precision
    precisions = tuple(dict.fromkeys(check_names("precision", given)))
    for name in precisions:
        first = PRECISIONS[_checked("precision", name, chosen.suffixes)].opset_version
        if first is not None and opset_version is not None and opset_version < first:
            raise ArgumentError(
                f"The precision {name} needs opset {first} or above, not {opset_version}; leave out the opset.",
                id=MessageId.OPSET_VERSION,
            )
    if len({chosen.suffixes[name] for name in precisions}) < max(len(precisions), 1):
        raise ArgumentError(
            f"A folder of the layout {layout} has one precision, not {len(precisions)}; write one folder for each.",
            id=MessageId.COMMAND_OPTION,
        )
    return chosen, precisions


def _checked(parameter: str, value: str, known: Collection[str]) -> str:
    if not isinstance(value, str) or value not in known:
        hint = did_you_mean(value, known) or "."
        raise ArgumentError(
            f"The {parameter} {shown(value)} is not one of {', '.join(known)}{hint}", id=MessageId.COMMAND_OPTION
        )
    return value
