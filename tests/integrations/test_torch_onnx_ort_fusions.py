"""The fusions of transformers' exporter for ONNX Runtime, in its export through torch.onnx and through fx_onnx."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest
import torch

pytest.importorskip("transformers.exporters", reason="transformers 5.20 or newer is not installed")

from transformers import BertConfig, BertModel, PreTrainedModel
from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

import fx_onnx

SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}


def _bert(dtype: torch.dtype) -> tuple[PreTrainedModel, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    mask = torch.ones(2, 8, dtype=torch.int64)
    mask[1, 5:] = 0
    model = BertModel(BertConfig(**SIZES, vocab_size=99)).to(dtype).eval()
    return model, {"input_ids": torch.randint(1, 99, (2, 8)), "attention_mask": mask}


def _export(model: PreTrainedModel, inputs: dict[str, Any], provider: str, *, dynamic: bool, ours: bool) -> Any:
    with fx_onnx.replacing_torch_onnx() if ours else nullcontext():
        return OnnxExporter().export(model, dict(inputs), config=OnnxConfig(dynamic=dynamic, ort_fusions=provider))


def _operators(exported: Any) -> Counter[str]:
    return Counter(node.op_type for node in exported.program.graph.all_nodes())


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_attentions_of_an_encoder(dtype: torch.dtype) -> None:
    """Each attention becomes one node for CUDA, as in the graph of torch.onnx, which has more nodes in all."""
    model, inputs = _bert(dtype)
    exported = _export(model, inputs, "cuda", dynamic=True, ours=True)
    theirs = _operators(_export(model, inputs, "cuda", dynamic=True, ours=False))
    found = _operators(exported)
    fused = "MultiHeadAttention", "SkipLayerNormalization", "BiasGelu", "Softmax"
    assert [found[name] for name in fused] == [theirs[name] for name in fused] == [2, 4, 2, 0]
    assert found.total() <= theirs.total()
    if dtype == torch.float32:  # the operator has no float16 kernel in the CPU provider
        want = model(**inputs).last_hidden_state.detach()
        torch.testing.assert_close(exported(**inputs).last_hidden_state, want, rtol=1e-4, atol=1e-4)


def test_static_shapes() -> None:
    found = _operators(_export(*_bert(torch.float16), "cuda", dynamic=False, ours=True))
    assert (found["MultiHeadAttention"], found["Softmax"]) == (2, 0)
