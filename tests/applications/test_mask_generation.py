"""Tests of the parts of SAM."""

from __future__ import annotations

import pytest
import torch
import transformers

from fx_onnx.applications.mask_generation import mask_generation
from fx_onnx.messages.errors import ArgumentError

_SIZES = {"hidden_size": 16, "num_attention_heads": 2, "mlp_dim": 16}
_IMAGE = {"image_size": 32, "patch_size": 8}


def test_the_decoder_takes_the_embeddings_of_the_encoder() -> None:
    torch.manual_seed(0)
    vision = {"num_hidden_layers": 1, "output_channels": 16, "global_attn_indexes": [0], "window_size": 2}
    config = transformers.SamConfig(
        vision_config={**_SIZES, **_IMAGE, **vision, "num_pos_feats": 8},
        prompt_encoder_config={"hidden_size": 16, **_IMAGE, "mask_input_channels": 4},
        mask_decoder_config={**_SIZES, "num_hidden_layers": 1, "iou_head_hidden_dim": 16},
    )
    model = transformers.SamModel(config).eval()
    encoder, decoder = mask_generation(model, ("iou_scores", "pred_masks"), {})
    assert (encoder.name, decoder.name) == ("vision_encoder", "prompt_encoder_mask_decoder")
    assert encoder.outputs == ("image_embeddings", "image_positional_embeddings")
    assert list(decoder.kwargs) == ["image_embeddings", "input_points", "input_labels"]
    with torch.no_grad():
        points = {name: decoder.kwargs[name] for name in ("input_points", "input_labels")}
        want = model(**encoder.kwargs, **points)
        torch.testing.assert_close(decoder.module(**decoder.kwargs)["pred_masks"], want.pred_masks)


def test_other_models_are_refused() -> None:
    with pytest.raises(ArgumentError, match="The parts of Linear are not known"):
        mask_generation(torch.nn.Linear(1, 1), (), {})
