"""Text networks built from torch.nn's Transformer layers."""

import torch
from torch import Tensor, nn


class Embedding(nn.Module):
    """Maps tokens (batch, sequence) to the sum of token and position embeddings (batch, sequence, dim)."""

    def __init__(self, vocabulary: int, dim: int, longest: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, dim, padding_idx=0)
        self.positions = nn.Embedding(longest, dim)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))


class TextClassifier(nn.Module):
    """Maps tokens (batch, sequence), where 0 is padding, to logits (batch, classes), from the mean without padding."""

    def __init__(
        self, vocabulary: int = 100, dim: int = 32, depth: int = 2, heads: int = 4, longest: int = 64, classes: int = 4
    ) -> None:
        super().__init__()
        self.embedding = Embedding(vocabulary, dim, longest)
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth)
        self.head = nn.Linear(dim, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        padding = tokens == 0
        encoded = self.encoder(self.embedding(tokens), src_key_padding_mask=padding)
        real = (~padding).unsqueeze(-1)
        return self.head((encoded * real).sum(1) / real.sum(1))


class Translator(nn.Module):
    """Maps source tokens (batch, source) and target tokens (batch, target) to the target's next-token logits."""

    def __init__(self, vocabulary: int = 100, dim: int = 32, depth: int = 1, heads: int = 4, longest: int = 64) -> None:
        super().__init__()
        self.source = Embedding(vocabulary, dim, longest)
        self.target = Embedding(vocabulary, dim, longest)
        self.transformer = nn.Transformer(dim, heads, depth, depth, 4 * dim, batch_first=True)
        self.head = nn.Linear(dim, vocabulary)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
        decoded = self.transformer(
            self.source(source), self.target(target), tgt_mask=causal, src_is_causal=False, tgt_is_causal=True
        )
        return self.head(decoded)
