"""Tests of the operations from a file to the inputs of the program of images."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers", reason="transformers is in the extra 'test'", exc_type=ImportError)

from fx_onnx.applications.genai.images_config import _features, _operations
from fx_onnx.messages.errors import ArgumentError
from tests.models.image_readers import READERS

_PIXELS = ["DecodeImage", "Resize", "Rescale", "Normalize"]


@pytest.mark.parametrize(
    ("name", "operations", "resize"),
    [
        ("gemma3", [*_PIXELS, "Permute3D"], {"height": 32, "width": 32}),
        ("gemma4", ["DecodeImage", "Gemma4ImageTransform"], {}),
        (
            "mistral3",
            [*_PIXELS, "Permute3D", "PixtralImageSizes"],
            {"min_pixels": 64, "max_pixels": 4096, "merge_size": 2},
        ),
        ("qwen3_vl", [*_PIXELS, "PatchImage"], {"min_pixels": 64, "max_pixels": 4096, "patch_size": 4}),
    ],
)
def test_operations(name: str, operations: list[str], resize: dict[str, int]) -> None:
    found = _operations(READERS[name].config(), READERS[name].processor())
    assert list(found) == operations and found.get("Resize", {}).items() >= resize.items()


@pytest.mark.parametrize(("name", "value"), [("dither", 0.1), ("input_scale_factor", 2.0)])
def test_features_that_onnxruntime_genai_lacks_are_refused(name: str, value: float) -> None:
    extractor = READERS["gemma4 with sounds"].processor().feature_extractor
    setattr(extractor, name, value)
    with pytest.raises(ArgumentError, match=f"onnxruntime-genai computes sounds with {name} .*, but the feature extra"):
        _features(extractor)
