"""Tests of the parts of models with one graph."""

from __future__ import annotations

import pytest
import torch
import transformers

from fx_onnx.core.errors import ArgumentError
from fx_onnx.pretrained.parts import half, multiple_choice, one_graph

_SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


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
    text = {**_SMALL, "vocab_size": 50, "max_position_embeddings": 16}
    model = transformers.AutoModel.from_config(
        config(text_config=text, vision_config={**_SMALL, "image_size": 8, "patch_size": 4}, projection_dim=12)
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


def test_what_does_not_run_is_refused() -> None:
    model = transformers.BertModel(transformers.BertConfig(**_SMALL, vocab_size=50)).eval()
    with pytest.raises(ArgumentError, match="BertModel returns no logits, which the task needs; choose another task"):
        one_graph(model, ("logits",), {})
    with pytest.raises(ArgumentError, match=r"BertModel does not run on the examples of input_ids: .*; pass inputs="):
        one_graph(model, ("last_hidden_state",), {"input_ids": torch.full((1, 3), 99)})
