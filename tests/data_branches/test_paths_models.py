"""Models of transformers that branch on data, as they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fx_onnx
from fx_onnx.passes.traversal import subgraphs
from tests import torchvision_cpu  # noqa: F401  before transformers, which imports torchvision
from tests.compare import assert_close

transformers = pytest.importorskip("transformers")

_SIZES = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}


def fsmt() -> tuple[Any, Any]:
    """Masks the padding of the decoder's input, if it has some."""
    config = transformers.FSMTConfig(
        langs=["en", "de"], src_vocab_size=50, tgt_vocab_size=50, d_model=16, encoder_layers=1, decoder_layers=1,
        max_position_embeddings=64, use_cache=False, **_SIZES,
    )  # fmt: skip

    def arguments(rows: int, is_padded: bool) -> dict[str, Any]:
        ids = torch.randint(3, 50, (2, rows))
        target = torch.randint(3, 50, (2, 5))
        target[1, 3:] = 1 if is_padded else 7
        return {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "decoder_input_ids": target,
            "use_cache": False,
        }

    return transformers.FSMTModel(config).eval(), arguments


def longformer() -> tuple[Any, Any]:
    """Attends to some tokens globally, if the mask has some."""
    config = transformers.LongformerConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        attention_window=[4], max_position_embeddings=64,
    )  # fmt: skip

    def arguments(rows: int, is_global: bool) -> dict[str, Any]:
        ids = torch.randint(2, 50, (2, rows))
        attends = torch.zeros_like(ids)
        attends[0, :2] = int(is_global)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "global_attention_mask": attends}

    return transformers.LongformerModel(config).eval(), arguments


def led() -> tuple[Any, Any]:
    """Attends to some tokens globally in the encoder of an encoder and a decoder."""
    config = transformers.LEDConfig(
        vocab_size=50, d_model=16, encoder_layers=1, decoder_layers=1, attention_window=[4],
        max_encoder_position_embeddings=64, max_decoder_position_embeddings=64, use_cache=False, **_SIZES,
    )  # fmt: skip

    def arguments(rows: int, is_global: bool) -> dict[str, Any]:
        ids = torch.randint(3, 50, (2, rows))
        attends = torch.zeros_like(ids)
        attends[0, :2] = int(is_global)
        target = torch.randint(3, 50, (2, 5))
        return {"input_ids": ids, "decoder_input_ids": target, "global_attention_mask": attends, "use_cache": False}

    return transformers.LEDModel(config).eval(), arguments


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("model", "most"), [(fsmt, 4), (longformer, 140), (led, 140)])
def test_both_outcomes(model: Any, most: int) -> None:
    """What follows the masks stands once behind the If."""
    torch.manual_seed(0)
    module, arguments = model()
    program = fx_onnx.export(module, (), kwargs=arguments(8, False))
    (branches,) = [[*subgraphs(node)] for node in program.model.graph if node.op_type == "If"]
    assert sum(len(branch) for branch in branches) <= most
    for outcome in (True, False):
        given = arguments(8, outcome)
        with torch.no_grad():
            want = module(**given).to_tuple()
        assert_close(program(**given), want)
