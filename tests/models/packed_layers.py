"""Linear layers with packed weights, written from the formats of GPTQ and AWQ, as transformers loads them.

The packages that have these layers need CUDA. Their fallbacks for the CPU compute the same arithmetic.
"""

import torch

__all__ = ["AwqLinear", "GptqLinear"]

AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""Which of 8 columns each nibble of a 32-bit word has, from the lowest on, is the inverse of this order."""


def _packed(values: torch.Tensor, bits: int, dim: int) -> torch.Tensor:
    """Packs integers along a dim into words of 32 bits, the first into the lowest bits."""
    parts = values.to(torch.int64).unflatten(dim, (-1, 32 // bits))
    shifts = torch.arange(0, 32, bits).reshape([-1, *[1] * (parts.dim() - dim - 2)])
    words = (parts << shifts).sum(dim + 1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


class GptqLinear(torch.nn.Module):
    """A layer of GPTQ: words along the rows, stored zeros that are 1 smaller, and the group of each row."""

    def __init__(self, rows: int, columns: int, group: int = 32, bits: int = 4, *, act_order: bool = False) -> None:
        super().__init__()
        high, groups = 2**bits, rows // group
        self.bits = bits
        self.register_buffer("qweight", _packed(torch.randint(0, high, (rows, columns)), bits, 0))
        self.register_buffer("qzeros", _packed(torch.randint(0, high - 1, (groups, columns)), bits, 1))
        self.register_buffer("scales", torch.rand(groups, columns) * 0.01 + 0.001)
        index = torch.arange(rows, dtype=torch.int32) // group
        self.register_buffer("g_idx", index[torch.randperm(rows)] if act_order else index)
        self.register_buffer("shifts", torch.arange(0, 32, bits, dtype=torch.int32).unsqueeze(0), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., rows) to (..., columns)."""
        each, high = 32 // self.bits, 2**self.bits - 1
        zeros = torch.bitwise_right_shift(self.qzeros.unsqueeze(2).expand(-1, -1, each), self.shifts.unsqueeze(0))
        zeros = torch.bitwise_and(zeros.to(torch.int16), high) + 1
        zeros = zeros.reshape(self.scales.shape)
        weight = torch.bitwise_right_shift(self.qweight.unsqueeze(1).expand(-1, each, -1), self.shifts.unsqueeze(-1))
        weight = torch.bitwise_and(weight.to(torch.int16), high).flatten(0, 1)
        groups = self.g_idx.long()
        return x @ (self.scales[groups] * (weight - zeros[groups]))


class AwqLinear(torch.nn.Module):
    """A layer of AWQ: words along the columns, in an order of their own."""

    def __init__(self, rows: int, columns: int, group: int = 32) -> None:
        super().__init__()
        self.group = group
        self.register_buffer("qweight", _packed(torch.randint(0, 16, (rows, columns)), 4, 1))
        self.register_buffer("qzeros", _packed(torch.randint(0, 16, (rows // group, columns)), 4, 1))
        self.register_buffer("scales", torch.rand(rows // group, columns) * 0.01 + 0.001)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., rows) to (..., columns)."""
        shifts = torch.arange(0, 32, 4)
        weight = torch.bitwise_right_shift(self.qweight[:, :, None], shifts[None, None, :]).to(torch.int8)
        zeros = torch.bitwise_right_shift(self.qzeros[:, :, None], shifts[None, None, :]).to(torch.int8)
        weight, zeros = weight.view(weight.shape[0], -1), zeros.view(zeros.shape[0], -1)
        order = torch.arange(weight.shape[1]).view(-1, 8)[:, AWQ_ORDER].view(-1)
        weight = torch.bitwise_and(weight[:, order], 15)
        zeros = torch.bitwise_and(zeros[:, order], 15)
        scales = self.scales.repeat_interleave(self.group, dim=0)
        zeros = zeros.repeat_interleave(self.group, dim=0)
        return x @ ((weight - zeros) * scales)
