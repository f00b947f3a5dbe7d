"""Small models of ordinary kinds, with their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.models.resnet import ResNet


class Decoder(nn.Module):
    """A layer of a causal decoder with rotary embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, 16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.norm, self.head = nn.RMSNorm(16), nn.Linear(16, 32)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns the logits (batch, token, 32) of tokens (batch, token)."""
        x = self.embedding(tokens)
        q, k, v = (each.unflatten(-1, (2, 8)).transpose(1, 2) for each in self.qkv(self.norm(x)).chunk(3, -1))
        angle = torch.arange(tokens.shape[1])[:, None] * 0.1 ** torch.arange(4)
        cos, sin = (torch.cat([each, each], -1) for each in (angle.cos(), angle.sin()))
        q, k = (each * cos + torch.cat([-each[..., 4:], each[..., :4]], -1) * sin for each in (q, k))
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(x + self.out(attended.transpose(1, 2).flatten(2)))


def _llama() -> tuple[nn.Module, tuple[Any, ...]]:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=32, **sizes)).eval(), (torch.randint(0, 32, (1, 4)),)


def _encoder() -> tuple[nn.Module, tuple[Any, ...]]:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")
    return nn.Sequential(nn.Embedding(32, 16), nn.TransformerEncoder(layer, 1)).eval(), (torch.randint(0, 32, (1, 4)),)


MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...]]]] = {
    "linear": lambda: (nn.Linear(4, 4), (torch.randn(2, 4),)),
    "resnet": lambda: (ResNet((1, 1), 8, 10).eval(), (torch.randn(1, 3, 32, 32),)),
    "encoder": _encoder,
    "decoder": lambda: (Decoder().eval(), (torch.randint(0, 32, (1, 4)),)),
    "llama": _llama,
}
