"""Tests of the parts of models with one graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

import fx_onnx
from fx_onnx.applications.parts import graph, half, multiple_choice, one_graph
from fx_onnx.messages.errors import ArgumentError

_SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
_TEXT = {**_SMALL, "vocab_size": 50, "max_position_embeddings": 16}
_IMAGE = {**_SMALL, "image_size": 8, "patch_size": 4}


def test_choices_have_an_axis() -> None:
    model = transformers.BertForMultipleChoice(transformers.BertConfig(**_SMALL, vocab_size=50)).eval()
    (part,) = multiple_choice(model, ("logits",), {})
    assert part.dynamic_shapes["input_ids"] == {0: "batch", 1: "choices", 2: "sequence"}
    assert part.module(**part.kwargs)["logits"].shape == (2, 3)


@pytest.mark.parametrize(
    ("config", "names"),
    [(transformers.CLIPConfig, ("text_embeds", "image_embeds")), (transformers.SiglipConfig, ("pooler_output",) * 2)],
)
def test_halves_have_the_names_of_their_classes(config: type, names: tuple[str, str]) -> None:
    model = transformers.AutoModel.from_config(
        config(text_config=_TEXT, vision_config=_IMAGE, projection_dim=12)
    ).eval()
    makers = (
        half("text_model", "get_text_features", "text_projection", "text_embeds"),
        half("vision_model", "get_image_features", "visual_projection", "image_embeds"),
    )
    (texts,), (images,) = (make(model, (), {}) for make in makers)
    assert (texts.outputs, images.outputs) == tuple((name,) for name in names)
    assert "pixel_values" not in texts.kwargs and list(images.kwargs) == ["pixel_values"]
    with torch.no_grad():
        both = model(**texts.kwargs, **images.kwargs)
        found = torch.nn.functional.normalize(texts.module(**texts.kwargs)[names[0]])
        torch.testing.assert_close(found, torch.nn.functional.normalize(both.text_embeds))


@pytest.mark.parametrize(
    ("config", "options", "batch"),
    [
        (transformers.CLIPConfig, {"text_config": _TEXT, "vision_config": _IMAGE, "projection_dim": 12}, "texts"),
        (transformers.ViltConfig, {**_TEXT, **_IMAGE}, "batch"),
    ],
)
def test_texts_have_a_batch_of_their_own_in_models_that_take_any_number(config: type, options: Any, batch: str) -> None:
    model = transformers.AutoModel.from_config(config(**options)).eval()
    (part,) = one_graph(model, (), {})
    assert part.dynamic_shapes["input_ids"] == {0: batch, 1: "sequence"}
    assert part.dynamic_shapes["pixel_values"][0] == "batch"


def test_a_clip_takes_other_numbers_of_texts_and_images() -> None:
    config = transformers.CLIPConfig(text_config=_TEXT, vision_config=_IMAGE, projection_dim=12)
    model = transformers.AutoModel.from_config(config).eval()
    (part,) = one_graph(model, ("logits_per_image",), {})
    program = fx_onnx.export(part.module, kwargs=part.kwargs, dynamic_shapes=part.dynamic_shapes)
    given = {name: value[: 1 if name == "pixel_values" else 3] for name, value in part.kwargs.items()}
    torch.testing.assert_close(program(**given)[0], part.module(**given)["logits_per_image"], rtol=1e-4, atol=1e-4)


class _Partly(torch.nn.Module):
    """Reads its first input, asks whether the second is given, and passes the third on."""

    def forward(
        self, x: torch.Tensor, given: torch.Tensor | None = None, passed: Any = None
    ) -> dict[str, torch.Tensor]:
        """(2,) to (2,)."""
        return {"y": self.add(x, passed) + (given is not None)}

    def add(self, x: torch.Tensor, passed: Any) -> torch.Tensor:
        """Does not read the second argument."""
        return x + 1


@pytest.mark.parametrize(("names", "kept"), [(("x", "passed"), ["x"]), (("x", "given"), ["x", "given"])])
def test_an_input_that_changes_nothing_is_left_out(names: tuple[str, ...], kept: list[str]) -> None:
    part = graph("model", _Partly(), {name: torch.ones(2) for name in names}, dict.fromkeys(names))
    assert list(part.kwargs) == list(part.dynamic_shapes) == kept


def test_what_does_not_run_is_refused() -> None:
    model = transformers.BertModel(transformers.BertConfig(**_SMALL, vocab_size=50)).eval()
    with pytest.raises(ArgumentError, match="BertModel returns no logits, which the task needs; choose another task"):
        one_graph(model, ("logits",), {})
    with pytest.raises(ArgumentError, match=r"BertModel does not run on the examples of input_ids: .*; pass inputs="):
        one_graph(model, ("last_hidden_state",), {"input_ids": torch.full((1, 3), 99)})
