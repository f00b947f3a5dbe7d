"""The layouts: the names of files, inputs and outputs in the folder that an application loads.

A layout is one row of ``LAYOUTS``. All files of the source but its weights are copied as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fx_onnx.core.plugins import Group, Records
from fx_onnx.pretrained.model_package import write_manifest
from fx_onnx.pretrained.precisions import PRECISIONS

__all__ = ["LAYOUTS", "Layout"]


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
        target: the runtime of the application, unless the caller names one; None is the default of ``export``.
        external_data: as for ``save``; False if the application reads one file only.
        form: which parts of a model with several forms it takes, such as ``merged`` for an encoder and a decoder.
        shares_weights: whether equal weights of several files are stored once, which takes external data.
        write_index: writes the file of the application that names the ONNX files, from the folder and these names.
        is_genai: whether ``ONNXProgram.save_genai`` writes a decoder and its config. Of a model that reads images or
            sounds too, it is the decoder of tokens.
    """

    files: Mapping[str, str]
    suffixes: Mapping[str, str]
    dims: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = ("config.json",)
    target: str | None = None
    external_data: bool | None = None
    form: str = "merged"
    shares_weights: bool = False
    write_index: Callable[[Path, Sequence[str]], None] | None = None
    is_genai: bool = False

    def __post_init__(self) -> None:
        if wrong := [name for name in self.suffixes if name not in PRECISIONS]:
            raise ValueError(f"{wrong[0]!r} in suffixes is not one of the precisions {', '.join(PRECISIONS)}")


_ONE_NAME = dict.fromkeys(PRECISIONS, "")
_SUFFIXES = {name: "" if name == "fp32" else f"_{name}" for name in PRECISIONS}
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

_RUNTIME = "onnxruntime"
"""It has products with weights of 4 bits in float32. Those of the standard are rounded to 8 bits by default."""

_OWN = {
    "optimum": Layout(
        files={"model": "model", "decoder": "model", **{name: name for name in _PAIR}},
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
        suffixes=_SUFFIXES,
        dims={"batch": "batch_size"},
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
        files={"decoder": "model", **{name: name for name in (*_IN_JS, *_OF_PIPELINES)}},
        suffixes=_SUFFIXES,
        required=(),
        target=_RUNTIME,
        shares_weights=True,
        write_index=write_manifest,
    ),
    "genai": Layout(
        files={"decoder": "model", "encoder_with_cross": "encoder", "decoder_with_past_model": "decoder"},
        suffixes=_ONE_NAME,
        form="cross cache",
        inputs={"input_features": "audio_features"},
        target="onnxruntime-genai",
        external_data=True,
        is_genai=True,
    ),
}

LAYOUTS = Records(
    _OWN,
    Group("fx_onnx.layouts", "a record of fx_onnx.pretrained.layouts.Layout", lambda each: isinstance(each, Layout)),
)
"""The name of a layout → its record."""
