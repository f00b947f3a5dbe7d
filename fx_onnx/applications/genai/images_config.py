"""The configs of a decoder that reads images: what ``genai_config.json`` tells of it, and the operations on an image.

Source: "Configuration reference" in the documentation of ONNX Runtime's generate() API, and the operations of
onnxruntime-extensions that onnxruntime-genai 0.18 has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fx_onnx.applications.genai.images import FAMILIES
from fx_onnx.applications.parts import Part
from fx_onnx.files.destination import write_json
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId

__all__ = ["write_images_config"]

_SIZES = ("spatial_merge_size", "patch_size", "window_size", "tokens_per_second")
_TOKENS = ("image_token_id", "video_token_id", "vision_start_token_id")
_RESAMPLE = {0: "NEAREST", 1: "LANCZOS", 2: "LINEAR", 3: "CUBIC"}
"""The number of a filter in Pillow → its name in onnxruntime-extensions."""


def write_images_config(
    folder: Path, *, config: Any, parts: Sequence[Part], processor: Any = None, extractor: Any = None
) -> None:
    """Adds the programs of images to ``genai_config.json``, and writes ``processor_config.json``.

    Args:
        folder: has the config of the decoder.
        config: the config of the model.
        parts: the parts of the model.
        processor: its image processor; None writes no ``processor_config.json``.
        extractor: its feature extractor; without it, the config has no program of sounds.

    Raises:
        ArgumentError: onnxruntime-genai does not compute the features of this extractor.
    """
    file = folder / "genai_config.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    model = content["model"]
    model["type"] = FAMILIES[config.model_type].kind
    # The size of the embeddings, which is larger than that of the layers if features of images follow in them.
    model["decoder"]["hidden_size"] = parts[-1].kwargs["inputs_embeds"].shape[-1]
    model |= {name: number for name in _TOKENS if isinstance(number := getattr(config, name, None), int)}
    for part in parts:
        if part.name != "decoder":
            model[part.name] = {
                "filename": f"{part.name}.onnx",
                "inputs": {name: name for name in part.kwargs},
                "outputs": {name: name for name in part.outputs},
            }
    values = {
        name: getattr(source, name)
        for source in (config, config.vision_config)
        for name in _SIZES
        if hasattr(source, name)
    }
    model["vision"] |= {"config_filename": "processor_config.json", **values}
    if "speech" in model and extractor is not None:
        model["speech"]["config_filename"] = "audio_processor_config.json"
        write_json(folder / "audio_processor_config.json", _features(extractor))
    else:
        if "speech" in model:
            warn(
                "The folder takes no sounds, because the source has no feature extractor; pass processor=.",
                MessageId.GENAI_FOLDER,
            )
        model["speech"] = {"config_filename": ""}
    write_json(file, content)
    if processor is None:
        warn(
            "The folder has no processor_config.json, because the source has no image processor; pass processor=.",
            MessageId.GENAI_FOLDER,
        )
    else:
        rows = _operations(config, processor)
        operations = [{"operation": {"name": name, "type": name, "attrs": attrs}} for name, attrs in rows.items()]
        write_json(folder / "processor_config.json", {"processor": {"name": "image", "transforms": operations}})


def _operations(config: Any, processor: Any) -> dict[str, Mapping[str, Any]]:
    """Returns the operations from the bytes of a file to the inputs of ``vision``."""
    vision, kind, patch = config.vision_config, config.model_type, config.vision_config.patch_size
    decode = {"DecodeImage": {"color_space": "RGB"}}
    if kind == "gemma4":
        limits = {name: getattr(processor, name) for name in ("patch_size", "max_soft_tokens", "pooling_kernel_size")}
        return {**decode, "Gemma4ImageTransform": limits}
    merge, size = getattr(config, "spatial_merge_size", 0) or getattr(vision, "spatial_merge_size", 1), processor.size
    resize = {"interpolation": _RESAMPLE[int(processor.resample)], "keep_aspect_ratio": 0}
    last: dict[str, Any] = {"Permute3D": {"dims": [2, 0, 1]}}
    if kind == "gemma3":
        resize |= {"height": size["height"], "width": size["width"]}
    else:
        pixels = size.get("shortest_edge", (patch * merge) ** 2), size["longest_edge"]
        if kind == "mistral3":  # its limit is a side, that of the others a number of pixels
            pixels, last["PixtralImageSizes"] = (pixels[0], pixels[1] ** 2), {}
        else:
            last = {
                "PatchImage": {
                    "temporal_patch_size": vision.temporal_patch_size,
                    "patch_size": patch,
                    "merge_size": merge,
                }
            }
        limits = dict(zip(("min_pixels", "max_pixels"), pixels, strict=True))
        resize |= {"smart_resize": 1, "patch_size": patch, "merge_size": merge, **limits}
    return {
        **decode,
        "Resize": resize,
        "Rescale": {"rescale_factor": processor.rescale_factor},
        "Normalize": {"mean": list(processor.image_mean), "std": list(processor.image_std)},
        **last,
    }


_OF_FRAMES = ("feature_size", "sampling_rate", "min_frequency", "max_frequency", "preemphasis")
_NOT_COMPUTED = {"dither": 0.0, "input_scale_factor": 1.0}


def _features(extractor: Any) -> dict[str, Any]:
    """Returns the operations from the bytes of a file with sound to the frames that ``speech`` takes."""
    for name, value in _NOT_COMPUTED.items():
        if (own := getattr(extractor, name)) != value:
            raise ArgumentError(
                f"onnxruntime-genai computes sounds with {name} {value}, but the feature extractor has {own}.",
                id=MessageId.GENAI_FOLDER,
            )
    attributes = {name: getattr(extractor, name) for name in _OF_FRAMES}
    for name in ("frame_length", "hop_length"):
        attributes[f"{name}_ms"] = getattr(extractor, name) * 1000 / extractor.sampling_rate
    for name in ("preemphasis_htk_flavor", "fft_overdrive"):
        attributes[name] = int(getattr(extractor, name))
    for name in ("per_bin_mean", "per_bin_stddev"):
        if (values := getattr(extractor, name)) is not None:
            attributes[name] = values.flatten().tolist()
    attributes["mel_floor"] = float(extractor.mel_floor)
    rows = {"AudioDecoder": {"target_sample_rate": extractor.sampling_rate}, "Gemma4LogMel": attributes}
    operations = [{"operation": {"name": name, "type": name, "attrs": attrs}} for name, attrs in rows.items()]
    return {"feature_extraction": {"sequence": operations}}
