"""Attention in engines of TensorRT for RTX: one fused kernel, which the engine names."""

import pytest
import torch
from torch import nn

import fx_onnx
from tests.backends.test_tensorrt_engine import needs_package

transformers = pytest.importorskip("transformers")

SIZES = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 1, "intermediate_size": 64}


def bert() -> nn.Module:
    return transformers.BertModel(transformers.BertConfig(**SIZES, num_attention_heads=2))


def gpt2() -> nn.Module:
    config = transformers.GPT2Config(vocab_size=100, n_embd=64, n_layer=1, n_head=2, n_positions=64, use_cache=False)
    return transformers.GPT2LMHeadModel(config)


def llama() -> nn.Module:
    """Two query heads share a head of keys."""
    config = transformers.LlamaConfig(**SIZES, num_attention_heads=4, num_key_value_heads=2, use_cache=False)
    return transformers.LlamaForCausalLM(config)


@needs_package
@pytest.mark.parametrize("opset", [18, 23])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("build", [bert, gpt2, llama])
def test_attention_is_fused(build: object, dtype: torch.dtype, opset: int) -> None:
    torch.manual_seed(0)
    module = build().to(dtype).eval()  # type: ignore[operator]
    ids = torch.ones(2, 16, dtype=torch.long)
    program = fx_onnx.export(
        module, kwargs={"input_ids": ids, "attention_mask": ids}, target="tensorrt", opset_version=opset, verbose=False
    )
    compilation = program.supports("tensorrt").compilation
    assert compilation is not None and any("mha" in kernel for kernel in compilation.kernels), compilation.kernels
