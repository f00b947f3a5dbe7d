"""Expressions of dynamic sizes, each a module of its own, and what becomes of each of them.

    python -m tests.capture.size_expressions [FAMILY ...] [--wrong]

prints a Markdown table: the expression, its conditions and a verdict. An expression is exported once, with its sizes
named. The program and eager mode then run at other sizes. The conditions of ``program.dims`` decide what is expected.

- "right": there are no conditions, and the program equals eager mode, or both fail.
- "bound": it is right within the conditions, and eager mode fails outside of them.
- "finding": it is right within the conditions, and outside of each finding the program is wrong, or a side fails.
- "refused": the export fails, as the table says.
- "SILENT WRONG": the program is wrong at a size within all conditions.
- "excludes the example": a condition is false for the sizes of the example.
- "untrue bound": eager mode runs at a size that only bounds exclude.
- "untrue finding": the program equals eager mode at all tried sizes that a finding excludes.
"""

from __future__ import annotations

import argparse
import logging
import math
from collections import Counter

import numpy as np
import torch
import torch.nn.functional as F

from tests.capture.size_trials import Family, Row, examine
from tests.torch_versions import has

# ---------------------------------------------------------------- expressions that need statements


def slow_sum(x, n):
    total = torch.zeros(4)
    for i in range(n):
        total = total + x[i] * i
    return total


def every_third(x, n):
    return torch.stack([x[i] for i in range(0, n, 3)])


def sum_of_blocks(x, n):
    return sum(x[i * 2 : i * 2 + 2].sum(0) for i in range(n // 2))


def halve(x, n):
    while n > 1:
        x, n = x * 2, n // 2
    return x


def shorten(x, n):
    while x.shape[0] > 4:
        x = x[: x.shape[0] // 2]
    return x


def count_up(x, n):
    power = 1
    while power < n:
        power *= 2
    return x * power


def at_least_4(x, n):
    assert n >= 4
    return x * 2


def at_most_12(x, n):
    assert n <= 12, "too long"
    return x * n


def multiple_of_3(x, n):
    assert n % 3 == 0, f"{n} rows"
    return x.view(-1, 12)


def not_8(x, n):
    assert n != 8
    return x - 1


def odd_only(x, n):
    if n % 2 == 0:
        raise ValueError(f"{n} is even")
    return x * n


def at_most_20(x, n):
    if n > 20:
        raise ValueError("too long")
    return x[:4] + 1


def between(x, n):
    if not 4 <= n < 16:
        raise RuntimeError("out of range")
    return x.sum(0)


def checked_above_3(x, n):
    torch._check(n > 3)
    return x[:4] * 2


def checked_multiple(x, n):
    torch._check(n % 3 == 0)
    return x.reshape(n // 3, 12)


def checked_then_branch(x, n):
    torch._check(n > 8)
    return x * 2 if n > 4 else x


def cut_long(x, n):
    if n > 16:
        x = x[:16]
    return x * 2


def pad_short(x, n):
    if n < 8:
        x = F.pad(x, (0, 0, 0, 8 - n))
    return x * 2


def pad_to_multiple(x, n):
    if n % 4:
        x = F.pad(x, (0, 0, 0, 4 - n % 4))
    return x.view(-1, 4, 4)


def early_return(x, n):
    if n > 50:
        return x
    return x.flip(0)


def several_branches(x, n):
    if n < 4:
        return x
    if n < 8:
        return x * 2
    return x * 3


def caught(x, n):
    try:
        return x.view(-1, 8)
    except RuntimeError:
        return x.reshape(-1)


def into_buffer(x, n):
    buffer = torch.zeros(12, 4)
    buffer[:n] = x
    return buffer


def into_rows(x, n):
    buffer = torch.zeros(12, 4)
    buffer[torch.arange(n)] = x
    return buffer


def into_half(x, n):
    y = x.clone()
    y[: n // 2] = 0
    return y


def into_first_4(x, n):
    y = x.clone()
    y[:4] = 1
    return y


def into_tail(x, n):
    y = x.clone()
    y[n - 2 :] *= 2
    return y


def into_copy_without_grad(x, n, m):
    y = x.clone()
    with torch.no_grad():
        y.t().reshape(-1)[0] = 4
    return y


def two_pieces(x, n):
    first, second = x.split(5)
    return second * 2, first


def first_and_second(x, n):
    pieces = x.split(3)
    return pieces[1], pieces[0] * 2


def scaled_piece(x, n):
    y = x.clone()
    y.split(4)[1].mul_(3)
    return y


def windows(x, n):
    padded = F.pad(x, (0, 0, 0, -n % 4))
    return padded.view(padded.shape[0] // 4, 4, 4).mean(1)


def rotary(x, n):
    angles = torch.arange(n)[:, None] / torch.tensor([10.0, 100.0])
    first, second = x.chunk(2, 1)
    return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], 1)


def heads(x, n):
    q = x.view(n, 2, 2).transpose(0, 1)
    return F.scaled_dot_product_attention(q, q, q).transpose(0, 1).reshape(n, 4)


def sliding_window(x, n):
    i = torch.arange(n)
    return (x @ x.T).masked_fill((i[:, None] - i).abs() > 3, -1e4).softmax(1) @ x


def chunked_attention(x, n):
    blocks = x[: n // 4 * 4].view(-1, 4, 4)
    return F.scaled_dot_product_attention(blocks, blocks, blocks)


# ---------------------------------------------------------------- the table


SIGNAL = ((1, 4, "n"),)
CHANNELS = ((2, "c", 6),)
TWO = (("n", 4), ("m", 4))
WEIGHT = torch.linspace(-1, 1, 48).view(4, 4, 3)
TABLE = torch.linspace(-1, 1, 64).view(16, 4)

SWITCH = "torch.export takes no comparison of sizes as a flag"
ATTRIBUTE = "an attribute of ONNX is no expression"
TRANSLATION = "ONNX has no form"

FAMILIES = (
    Family("slices", [
        lambda x, n: x[: n // 2],
        lambda x, n: x[n // 2 :],
        lambda x, n: x[2:],
        lambda x, n: x[:5],
        lambda x, n: x[-3:],
        lambda x, n: x[-10:10],
        lambda x, n: x[n // 2 :][:4],
        lambda x, n: x[1 : n - 1],
        lambda x, n: x[::2],
        lambda x, n: x[1::3],
        lambda x, n: x[n % 3 :],
        lambda x, n: x[: n - n % 4],
        lambda x, n: x[: min(n, 6)],
        lambda x, n: x[: max(n - 4, 2)],
        lambda x, n: x[: n * 2],
        lambda x, n: x[n - 5 :],
        lambda x, n: x[-n:],
        lambda x, n: x[: n - 8],
        lambda x, n: x[: round(n / 3)],
        lambda x, n: x[: math.ceil(n / 4)],
        lambda x, n: x[: math.floor(n * 0.7)],
        lambda x, n: x[:: n // 3 + 1],
        lambda x, n: x[:: n // 4],
        lambda x, n: x[n // 3 : 2 * n // 3],
        lambda x, n: x[[0, -1]],
        lambda x, n: x[7],
        lambda x, n: x[n - 1],
        lambda x, n: x[n - 5],
        lambda x, n: torch.ones(12, 4)[n - 1 - torch.arange(n)],
        lambda x, n: x[n // 2],
        lambda x, n: x[:, n % 4],
        Row(lambda x, n: x[n], refused="eager mode fails too"),
        lambda x, n: x[torch.arange(n - 1, -1, -1)],
        lambda x, n: x[torch.arange(0, n, 2)],
        lambda x, n: x.narrow(0, 1, n - 2),
        lambda x, n: x.narrow(0, n // 2, 2),
        lambda x, n: x.narrow(0, -(n // 4), n // 4),
        lambda x, n: x.narrow(0, n - 9, 1),
        lambda x, n: x.narrow(0, 0, 5),
        lambda x, n: x.select(0, n // 2),
        lambda x, n: x.index_select(0, torch.arange(n // 2)),
        lambda x, n: x.diff(n=n // 4, dim=0),
        lambda x, n: x[3:].diff(dim=0).diff(dim=0),
        into_half,
        into_first_4,
        into_tail,
        Row(lambda x, n: x[:2], (3,)),
        Row(lambda x, n: x[2:], (3,)),
        Row(lambda x, n: x[:1], (1,)),
    ]),
    Family("views", [
        lambda x, n: x.view(-1, 12),
        Row(lambda x, n: x.view(-1, 24), (12,)),
        Row(lambda x, n: x.view(n // 2, 8), (8,)),
        lambda x, n: x.view(n // 3, 12),
        lambda x, n: x.reshape(2, n, 2),
        Row(lambda x, n: x[: max(n - 8, 1), 0].reshape(-1, 1), (9,)),
        Row(lambda x, n: torch.outer(x[: max(n - 8, 1), 0], x[:, 0]), (9,)),
        lambda x, n: x.reshape(4, n),
        lambda x, n: x.reshape(3, -1),
        lambda x, n: x.view(9, 4),
        lambda x, n: x.T.reshape(-1, 6),
        lambda x, n: x.unflatten(0, (-1, 3)),
        lambda x, n: x.unflatten(0, (3, -1)),
        lambda x, n: x[: n - n % 4].reshape(-1, 4, 4),
        lambda x, n: x[: n // 2 * 2].view(n // 2, 2, 4),
        lambda x, n: torch.cat([x, x.new_zeros(-n % 4, 4)]).view(-1, 4, 4),
        lambda x, n: x.reshape(n // 2 * 2 + n % 2, 4),
        lambda x, n: x.reshape(x.numel() // 4, 4) * 2,
        lambda x, n: x.split(3)[0],
        lambda x, n: x.split(3)[2],
        lambda x, n: x.split(5)[1],
        lambda x, n: x.split(5)[-1],
        lambda x, n: x.split(split_size=4, dim=0)[1].softmax(0),
        lambda x, n: torch.cat([x, x.split(4)[1]]),
        lambda x, n: x.split(n // 3)[2] * 2,
        lambda x, n: x.split(max(-n % 4, 1))[1],
        two_pieces,
        first_and_second,
        scaled_piece,
        lambda x, n: torch.stack([part.sum(0) for part in x.split(3)]),
        lambda x, n: x.split(n // 2)[0],
        lambda x, n: x.split([4, n - 4])[1],
        lambda x, n: x.split([2, 3, 4])[2],
        lambda x, n: x.chunk(3)[0],
        lambda x, n: x.chunk(2)[1],
        lambda x, n: torch.chunk(x, 4)[1],
        lambda x, n: torch.cat(x.chunk(4)[::2]),
        lambda x, n: x.tensor_split(3)[1],
        lambda x, n: x.tensor_split(n // 3)[0],
        lambda x, n: x.unfold(0, 3, 2),
        lambda x, n: x.unfold(0, n // 2, 1),
        lambda x, n: x.unfold(0, 2, n // 4),
        lambda x, n: x[: n - 8].squeeze(0),
        lambda x, n: x[: n // 9].squeeze(0),
        lambda x, n: x[n - 1 :].squeeze(0),
        lambda x, n: x.unsqueeze(n % 2),
        lambda x, n: x.transpose(0, n % 2),
        lambda x, n: x.permute(n % 2, 1 - n % 2),
        lambda x, n: x.as_strided((n - 1, 4), (4, 1)),
        lambda x, n: x.as_strided((n // 2, 4), (8, 1)),
        lambda x, n: x.unbind()[0],
        lambda x, n: torch.stack(x.unbind()[::2]),
        lambda x, n: sum(x),
        Row(lambda x, n: x.squeeze(0) * 2, (1,)),
        Row(lambda x, n: x.expand(3, 4), (1,)),
        Row(lambda x, n: x.flatten(), (1,)),
    ]),
    Family("movement", [
        lambda x, n: x.repeat(n // 3, 1),
        lambda x, n: x.repeat(1, n % 3 + 1),
        lambda x, n: x.repeat_interleave(n // 3, 0),
        lambda x, n: x.repeat_interleave(2, n % 2),
        lambda x, n: x.tile((n // 2, 1)),
        lambda x, n: x[:1].expand(n // 2, 4),
        lambda x, n: x.expand(9, 4),
        lambda x, n: x.roll(n // 2, 0),
        lambda x, n: x.roll(2, 0),
        lambda x, n: x.roll(1, n % 2),
        lambda x, n: x.flip(n % 2),
        lambda x, n: x.rot90(n % 4),
        lambda x, n: x.diagonal(n // 4),
        lambda x, n: x.diagonal(1 - n // 3),
        lambda x, n: torch.diag(x[:, 0], n // 3),
        lambda x, n: torch.diag_embed(x, n // 4),
        lambda x, n: x.tril(n // 4),
        lambda x, n: x.triu(n // 3 - 2),
        lambda x, n: x.tril(-(n // 3)),
        lambda x, n: x.new_zeros(12, 4).index_add(0, torch.arange(n), x),
        lambda x, n: torch.broadcast_to(x[:1], (n // 2, 4)),
        lambda x, n: torch.meshgrid(x[:, 0], x[: n // 2, 1], indexing="ij")[1],
        into_buffer,
    ]),
    Family("creation", [
        Row(lambda x, n: F.one_hot(torch.arange(n)), refused="the depth depends on values"),
        lambda x, n: F.one_hot(torch.arange(n), n + 1),
        lambda x, n: F.one_hot(torch.arange(4), n // 2 + 4),
        lambda x, n: torch.arange(n) + x.sum(),
        lambda x, n: torch.arange(0, n, 2),
        lambda x, n: torch.arange(n // 2, n),
        lambda x, n: torch.arange(0, 12, n // 3),
        lambda x, n: torch.linspace(0, 1, n),
        lambda x, n: torch.linspace(0, n, 5),
        lambda x, n: torch.logspace(0, 1, n // 2),
        lambda x, n: torch.full((n // 2,), 1.5),
        lambda x, n: torch.full((3,), n / 2),
        lambda x, n: x.new_full((2, n), 1 / n),
        lambda x, n: torch.full_like(x, n // 2),
        lambda x, n: torch.eye(n),
        lambda x, n: torch.zeros(n - 2, n + 1),
        lambda x, n: torch.ones(n % 3 + 1),
        lambda x, n: torch.tensor([n, n // 2]),
        lambda x, n: torch.hamming_window(n // 2),
        lambda x, n: torch.triu_indices(n // 2, n),
        lambda x, n: torch.vander(x[:, 0], n // 3 + 1),
        lambda x, n: TABLE[:n] + x,
        lambda x, n: F.embedding(torch.arange(n), TABLE) + x,
        lambda x, n: F.embedding(torch.arange(n - 2, n), TABLE),
        lambda x, n: TABLE[n // 2],
    ]),
    Family("pools", [
        lambda x, n: F.avg_pool1d(x, 3),
        lambda x, n: F.avg_pool1d(x, n // 4),
        lambda x, n: F.avg_pool1d(x, 3, 1, n % 2),
        Row(lambda x, n: F.avg_pool1d(x, 2, ceil_mode=n > 8), refused=SWITCH),
        Row(lambda x, n: F.avg_pool1d(x, 3, 1, 1, count_include_pad=n % 2 == 0), refused=SWITCH),
        lambda x, n: F.avg_pool1d(x, n),
        lambda x, n: F.avg_pool2d(x[None], 2, divisor_override=n),
        lambda x, n: F.max_pool1d(x, 5),
        lambda x, n: F.max_pool1d(x, 3, 3, ceil_mode=True),
        lambda x, n: F.avg_pool1d(x, 3, max(n % 3, 1), ceil_mode=True),
        lambda x, n: F.max_pool1d(x, n // 2),
        lambda x, n: F.max_pool1d(x, 2, n // 3),
        lambda x, n: F.max_pool1d(x, 2, dilation=n // 4),
        lambda x, n: F.max_pool1d(x, n),
        lambda x, n: F.max_pool2d(x[None], (2, n // 2)),
        lambda x, n: F.adaptive_avg_pool1d(x, 3),
        lambda x, n: F.adaptive_avg_pool1d(x, n),
        lambda x, n: F.adaptive_avg_pool1d(x, n // 2),
        lambda x, n: F.adaptive_avg_pool1d(x, min(n, 4)),
        lambda x, n: F.adaptive_avg_pool2d(x[None], (2, n // 2)),
        lambda x, n: F.adaptive_max_pool1d(x, 3),
        lambda x, n: F.adaptive_max_pool1d(x, n // 2),
        lambda x, n: F.adaptive_max_pool1d(x, n // 3),
        lambda x, n: F.adaptive_avg_pool1d(x, n // 3),
        lambda x, n: F.lp_pool1d(x, 2, n // 3),
        lambda x, n: F.lp_pool1d(x.abs() + 1, n // 4, 2),
        lambda x, n: F.lp_pool1d(x.abs() + 1, n // 3 + 1, 2),
    ], SIGNAL),
    Family("convolutions", [
        lambda x, n: F.conv1d(x, WEIGHT),
        lambda x, n: F.conv1d(x, WEIGHT, padding=n // 4),
        Row(lambda x, n: F.conv1d(x, WEIGHT, dilation=n // 4), refused=ATTRIBUTE),
        Row(lambda x, n: F.conv1d(x, WEIGHT, stride=n // 4), refused=ATTRIBUTE),
        Row(lambda x, n: F.conv1d(x, WEIGHT[:, :2], groups=n // 4), refused=ATTRIBUTE),
        lambda x, n: F.conv1d(x, WEIGHT[:, :, : n % 3 + 1]),
        lambda x, n: F.conv1d(x, torch.ones(4, 4, n)),
        lambda x, n: F.conv1d(x, torch.ones(2, 4, n // 2)),
        lambda x, n: F.conv1d(x, WEIGHT, bias=torch.ones(4) / n),
        lambda x, n: F.conv_transpose1d(x, WEIGHT, stride=2, output_padding=n % 2),
        lambda x, n: F.unfold(x[:, None], (2, n // 3)),
        lambda x, n: F.pad(x, (n // 4, n % 3)),
        lambda x, n: F.pad(x, (0, 12 - n)),
        lambda x, n: F.pad(x, (0, -n % 4)),
        lambda x, n: F.pad(x, (2, 2), mode="reflect"),
        lambda x, n: F.pad(x, (n // 4, 0), mode="replicate"),
        lambda x, n: F.pad(x, (n // 2, n // 2), mode="circular"),
        lambda x, n: F.pad(x, (0, 1), value=n / 2),
        lambda x, n: F.interpolate(x, size=n // 2),
        lambda x, n: F.interpolate(x, size=2 * n, mode="linear"),
        lambda x, n: F.interpolate(x, size=n + 3, mode="linear", align_corners=True),
        lambda x, n: F.interpolate(x, scale_factor=n // 4),
        lambda x, n: F.interpolate(x, scale_factor=n / 4),
        lambda x, n: F.pixel_shuffle(x[..., None], n // 4),
        lambda x, n: F.fold(x.transpose(0, 2).reshape(n, 4).T[None], (1, n + 3), (1, 4)),
    ], SIGNAL, smallest=2),  # ONNX Runtime does not return from a Conv whose kernel has no elements
    Family("channels", [
        lambda x, c: F.group_norm(x, c // 2),
        lambda x, c: F.group_norm(x, 2),
        lambda x, c: F.group_norm(x, c),
        lambda x, c: F.group_norm(x, 4, eps=1 / c),
        lambda x, c: F.batch_norm(x, torch.zeros(8), torch.ones(8)),
        lambda x, c: F.instance_norm(x, eps=1 / c),
        lambda x, c: F.layer_norm(x, (c, 6)),
        lambda x, c: F.layer_norm(x, (8, 6)),
        lambda x, c: F.conv1d(x, torch.ones(c, 1, 3), groups=c),
        lambda x, c: F.conv1d(x, torch.ones(4, 8, 3)),
        lambda x, c: F.channel_shuffle(x, c // 2),
        lambda x, c: F.pixel_shuffle(x[..., None], 2),
        lambda x, c: F.glu(x, 1),
        lambda x, c: x.view(2, c // 2, 2, 6),
        lambda x, c: x.view(2, 4, -1, 6).transpose(1, 2).reshape(2, c, 6),
        lambda x, c: x.chunk(2, 1)[0],
        lambda x, c: x.split(c // 2, 1)[1],
        lambda x, c: x[:, ::2] + x[:, 1::2],
        lambda x, c: x.transpose(1, 2).reshape(2, 6, 2, c // 2).softmax(-1),
    ], CHANNELS, (8,)),
    Family("reductions", [
        lambda x, n: x.sum(n % 2),
        lambda x, n: x.argmax(n % 2),
        lambda x, n: x.softmax(n % 2),
        lambda x, n: x.cumsum(n % 2),
        lambda x, n: x.sort(n % 2).values,
        Row(lambda x, n: x.sort(0, descending=n % 2 == 0).values, refused=SWITCH),
        Row(lambda x, n: x.sum(0, keepdim=n > 8), refused=SWITCH),
        lambda x, n: x.sum(0) / n,
        lambda x, n: x.sum(tuple(range(n % 2 + 1))),
        lambda x, n: x.var(0, correction=n // 4),
        lambda x, n: x.std(0, correction=n // 3),
        Row(lambda x, n: x.var(0, unbiased=n > 4), refused=SWITCH),
        lambda x, n: x.norm(n // 4),
        lambda x, n: x.norm(p=n / 3, dim=0),
        lambda x, n: torch.linalg.vector_norm(x, n // 3),
        lambda x, n: F.normalize(x, p=n // 4),
        lambda x, n: F.normalize(x / 9, eps=1 / n),
        lambda x, n: F.layer_norm(x.T, (n,)),
        lambda x, n: F.layer_norm(x, (4,), eps=1 / n),
        lambda x, n: F.layer_norm(x.T, (9,)),
        lambda x, n: F.rms_norm(x, (4,), eps=1 / n),
        lambda x, n: F.batch_norm(x, torch.zeros(4), torch.ones(4), eps=1 / n),
        lambda x, n: F.local_response_norm(x.T[None], n // 3),
        lambda x, n: F.local_response_norm(x.T[None], 2, alpha=1 / n),
        Row(lambda x, n: x.quantile(0.5, 0), refused="" if has("quantile of any size") else "torch refuses it"),
        lambda x, n: x.quantile(1 / n, 0),
        lambda x, n: x.kthvalue(n // 2, 0)[0],
        lambda x, n: x.kthvalue(4, 0)[0],
        lambda x, n: x.kthvalue(12 - n, 0)[0],
        lambda x, n: x.kthvalue(max(n // 2, 1), 0)[0],
        lambda x, n: x.topk(5, 0)[0],
        lambda x, n: x.topk(n // 2, 0)[0],
        lambda x, n: x.topk(12 - n, 0)[0],
        lambda x, n: x.topk(2, n % 2)[0],
        Row(lambda x, n: x.topk(2, 0, largest=n > 8)[0], refused=SWITCH),
        lambda x, n: x.renorm(2, 0, n / 4),
        lambda x, n: F.cosine_similarity(x, x.flip(0), dim=n % 2),
        lambda x, n: F.cosine_similarity(x, x.flip(0), eps=n / 4),
        lambda x, n: F.pairwise_distance(x, x.flip(0) + 3, p=n // 4),
        lambda x, n: F.glu(x, n % 2),
        lambda x, n: torch.trapezoid(x, dx=1 / n, dim=0),
        Row(lambda x, n: x.softmax(0), (1,)),
        Row(lambda x, n: x.mean(0), (3,)),
    ]),
    Family("factors", [
        lambda x, n: torch.add(x, x, alpha=1 / n),
        lambda x, n: torch.sub(x, 1, alpha=n // 2),
        lambda x, n: torch.addmm(x, x, torch.eye(4), beta=1 / n, alpha=n // 2),
        lambda x, n: torch.addcmul(x, x, x, value=1 / n),
        lambda x, n: torch.addcdiv(x, x, x.abs() + 1, value=n // 2),
        lambda x, n: torch.lerp(x, x.flip(0), 1 / n),
        lambda x, n: x * n,
        lambda x, n: x + n // 2,
        lambda x, n: n / (x.abs() + 1),
        lambda x, n: x ** (n % 3),
        lambda x, n: x ** (n // 4),
        lambda x, n: torch.pow(n, x),
        lambda x, n: torch.pow(2, x / n),
        lambda x, n: x * n**-0.5,
        lambda x, n: x * math.sqrt(n),
        lambda x, n: x / math.sqrt(n // 2),
        lambda x, n: x * math.log(n),
        lambda x, n: x * math.exp(-n / 9),
        lambda x, n: x * math.sin(n),
        lambda x, n: x * math.floor(n / 2),
        lambda x, n: x * math.gcd(n, 6),
        lambda x, n: x * math.isqrt(n),
        lambda x, n: x * float(np.sqrt(n)),
        lambda x, n: x * int(n),
        lambda x, n: x * int(n / 2),
        lambda x, n: F.pad(x, (0, int(max(1, math.ceil((n - 4) / 2) + 1)) * 2)),
        lambda x, n: x * round(n / 2),
        Row(lambda x, n: x * round(n / 7, 2), refused=TRANSLATION),
        lambda x, n: x * abs(n - 8),
        lambda x, n: x * (n & 3),
        lambda x, n: x * divmod(n, 4)[1],
        lambda x, n: x * bool(n % 2),
        lambda x, n: x * torch.sym_max(n, 6),
        lambda x, n: x * max(n, 6),
        lambda x, n: x * min(n, 6, n // 2 + 3),
        lambda x, n: x.clamp(-n / 9, n / 9),
        lambda x, n: x.clamp(max=n // 8),
        lambda x, n: F.hardtanh(x, -1 / n, 1 / n),
        lambda x, n: F.leaky_relu(x, 1 / n),
        lambda x, n: F.elu(x, n / 4),
        lambda x, n: F.softplus(x, n // 2),
        lambda x, n: F.threshold(x, 1 / n, n),
        lambda x, n: F.softshrink(x, 1 / n),
        lambda x, n: F.gelu(x, approximate="tanh" if n > 4 else "none"),
        lambda x, n: x.masked_fill(x > 0, 1 / n),
        lambda x, n: torch.where(x > 0, x, n / 2),
        lambda x, n: x.round(decimals=n % 3),
        lambda x, n: x.float_power(n // 4),
        lambda x, n: torch.nan_to_num(x / 0, posinf=n, neginf=-n),
        lambda x, n: F.huber_loss(x, x.flip(0), delta=1 / n),
        lambda x, n: F.smooth_l1_loss(x, x.flip(0), beta=1 / n),
        lambda x, n: F.cross_entropy(x, torch.arange(n) % 4, label_smoothing=1 / n),
    ]),
    Family("branches", [
        lambda x, n: x * 2 if n == 9 else x,
        lambda x, n: x * 2 if n == 3 else x,
        lambda x, n: x * 2 if n > 8 else x,
        lambda x, n: x * 2 if n < 8 else x,
        lambda x, n: x * 2 if n <= 9 else x,
        lambda x, n: x * 2 if n % 2 else x,
        lambda x, n: x * 2 if not n % 3 else x,
        lambda x, n: x * 2 if n // 2 == 4 else x,
        lambda x, n: x * 2 if n in (2, 3) else x,
        lambda x, n: x * 2 if int(n * 0.5) % 3 else x,
        lambda x, n: x[: int(n / 2) % 5],
        lambda x, n: x * 2 if n in range(4, 12) else x,
        lambda x, n: x * 2 if 4 < n < 12 else x,
        lambda x, n: x * 2 if n > 4 and n % 2 == 1 else x,
        lambda x, n: x * 2 if n < 3 or n > 8 else x,
        lambda x, n: x * 2 if n == x.shape[1] else x,
        lambda x, n: x * 2 if n / 2 > 4.2 else x,
        lambda x, n: x * 2 if n else x,
        lambda x, n: x * 2 if n > 3 else 2 * x,
        lambda x, n: x if n == 1 else -x,
        lambda x, n: x[: 4 if n > 4 else 2],
        lambda x, n: x * (n if n < 12 else 12),
        lambda x, n: x * {9: 2, 12: 3}.get(n, 4),
        lambda x, n: x * [1, 2, 3][n % 3],
        lambda x, n: [x, -x][n % 2],
        Row(lambda x, n: x * len(str(n)), wrong="the text of a size is torch's symbol; docs/differences.md"),
        lambda x, n: x * sum(range(n)),
        lambda x, n: x * all(n > each for each in (2, 4)),
        lambda x, n: x * sorted([n, 4])[0],
        Row(lambda x, n: x * (2 if isinstance(n, int) else 3), wrong="SymInt is no int; docs/differences.md"),
        lambda x, n: x * n.bit_length(),
        lambda x, n: x * 2 if torch.sym_not(n == 5) else x,
        lambda x, n: x * 2 if x[2:].shape[0] > 4 else x,
        lambda x, n: x * 2 if x.numel() % 8 else x,
        Row(lambda x, n: x * 2 if n == 1 else x, (1,)),
        Row(lambda x, n: x * 2 if n > 2 else x, (3,)),
        Row(lambda x, n: x * 2 if n % 4 == 0 else x, (8,)),
        slow_sum,
        every_third,
        sum_of_blocks,
        halve,
        shorten,
        count_up,
        cut_long,
        pad_short,
        pad_to_multiple,
        early_return,
        several_branches,
        Row(caught, refused="the trace takes the path that does not fail"),
        windows,
    ]),
    Family("checks", [
        at_least_4,
        at_most_12,
        multiple_of_3,
        not_8,
        odd_only,
        at_most_20,
        between,
        checked_above_3,
        checked_multiple,
        checked_then_branch,
        lambda x, n: x + torch.ones(9, 4),
        lambda x, n: x[:4] + torch.eye(4),
        lambda x, n: x[1:] - x[:-1],
        lambda x, n: x[3:] + x[:-3],
        lambda x, n: x[2:].relu() + x[2],
        lambda x, n: x + x[n - 1 :],
        lambda x, n: x[: n // 2] + x[n - n // 2 :],
        Row(lambda x, n: x[::2] + x[1::2], (8,)),
        Row(lambda x, n: x[: n // 2] + x[n // 2 :], (12,)),
        lambda x, n: x @ torch.ones(4, 3),
        lambda x, n: x.T @ torch.ones(9, 2),
        lambda x, n: F.linear(x.T, torch.ones(3, 9)),
        lambda x, n: x @ x.T,
        lambda x, n: torch.cat([x, torch.ones(3, 4)]),
        lambda x, n: torch.stack([x, torch.ones(9, 4)]),
        lambda x, n: torch.zeros(9, 4).copy_(x),
        lambda x, n: torch.where(x > 0, x, torch.ones(9, 1)),
        lambda x, n: F.mse_loss(x, x[:1].expand(n, 4)),
        Row(lambda x, n: x + 1, (1,)),
        Row(lambda x, n: x + torch.ones(3, 4), (3,)),
    ]),
    Family("two inputs", [
        lambda x, y, n, m: torch.cat([x, y]),
        lambda x, y, n, m: x @ y.T,
        lambda x, y, n, m: x[:m],
        lambda x, y, n, m: x[: n - m],
        lambda x, y, n, m: x[: min(n, m)] + y[: min(n, m)],
        lambda x, y, n, m: x[:m] + y,
        lambda x, y, n, m: x.split(m)[1],
        lambda x, y, n, m: torch.cat([x, y]).split(6)[1],
        lambda x, y, n, m: x.T[:, -m:].contiguous() + y.T,
        lambda x, y, n, m: x[:, None] + y,
        lambda x, y, n, m: x * max(n, m, 6),
        lambda x, y, n, m: x * min(n, m),
        lambda x, y, n, m: x * (n * m),
        lambda x, y, n, m: x[: m // 2] + y[: m // 2],
        lambda x, y, n, m: x if n > m else y,
        lambda x, y, n, m: x if n == m else x + 1,
        lambda x, y, n, m: x * 2 if n + m > 3 else x,
        lambda x, y, n, m: x * 2 if n // 2 + int(m * 0.5) != 0 else x,
        lambda x, y, n, m: x * 2 if n + m != 2 else x,
        lambda x, y, n, m: x * 2 if n % m else x,
        lambda x, y, n, m: torch.tril(torch.ones(n, m), m - n),
        lambda x, y, n, m: torch.arange(m, m + n),
        lambda x, y, n, m: torch.zeros(n, m) + x[:, :1],
        lambda x, y, n, m: F.interpolate(y.T[None], size=n),
        lambda x, y, n, m: F.adaptive_avg_pool1d(y.T[None], n),
        lambda x, y, n, m: F.scaled_dot_product_attention(x[None], y[None], y[None]),
        lambda x, y, n, m: F.scaled_dot_product_attention(x[None], y[None], y[None], is_causal=n > 7),
        lambda x, y, n, m: x.index_select(0, torch.arange(m) % n),
        lambda x, y, n, m: F.pad(y, (0, 0, 0, n - m)) + x,
        Row(lambda x, y, n, m: x + y, (9, 9)),
        Row(lambda x, y, n, m: torch.stack([x, y]), (9, 9)),
        Row(lambda x, y, n, m: x[1:] + y, (9, 8)),
        Row(lambda x, y, n, m: x + y[:n], (9, 12)),
        Row(lambda x, y, n, m: x.repeat(2, 1) + y, (8, 16)),
        Row(lambda x, y, n, m: y.reshape(n, -1), (8, 16)),
        Row(lambda x, y, n, m: y.view(n, m // n, 4).sum(1) + x, (8, 16)),
        Row(lambda x, y, n, m: x + y, (9, 1)),
        lambda x, y, n, m: x + torch.ones(abs(min(n, 3) - 2), 1),  # torch has to know that the size is 1
        lambda x, y, n, m: x + y[: max(n - 8, 1)],
        lambda x, y, n, m: x.index_select(0, torch.arange(m)),
        lambda x, y, n, m: x[torch.arange(n // 2) + 3],
        lambda x, y, n, m: F.avg_pool1d(x.T[None], min(m, 4) // 2),
    ], TWO, (9, 7)),
    Family("two axes", [
        lambda x, n, m: x[min(n, m)],
        lambda x, n, m: x[n // 2 + m // 2],
        lambda x, n, m: x[-m] * 2,
        lambda x, n, m: x[torch.arange(m) - m - 1],
        lambda x, n, m: x.select(1, n % 3) + 1,
        lambda x, n, m: x.select_scatter(x[0], 0, m - 3),
        lambda x, n, m: x.narrow(0, n // 2 - 1, 1) * 1,
        lambda x, n, m: x[None, : n - 1].argmax(-1),
        lambda x, n, m: x[None, : n - 1].min(-1).indices,
        lambda x, n, m: F.adaptive_max_pool1d(x[None], n // 2),
        lambda x, n, m: torch.zeros(n, m).narrow(0, n - 2, 1).add_(x[:1]),
        lambda x, n, m: x[:1, :1].expand(n, n - 2),
        lambda x, n, m: torch.broadcast_to(x[:1], (n - 5, m)),
        lambda x, n, m: x[:1, :1].expand(n, n - 2).flatten() * 2,
        lambda x, n, m: x * 2 if m == 4 else x + torch.ones(2, m),
        lambda x, n, m: x * 2 if m == 4 else x.T @ torch.ones(5, 1),
        lambda x, n, m: x * 2 if m // 2 == 2 else x.view(13, -1),
        lambda x, n, m: F.interpolate(x[None, None], size=(max(n - 4, 1), 4)),
        lambda x, n, m: F.interpolate(x[None], size=n, mode="nearest-exact"),
        lambda x, n, m: F.interpolate(x[None], size=3 * m),
        Row(lambda x, n, m: x.narrow(0, m - 3, n % 3), (6, 4)),
        Row(lambda x, n, m: x[: -n % 4] + x[: n // 3], (6, 4)),
        Row(lambda x, n, m: x[:, : n // 2 + m // 2] * x[:, : max(n, m)], (8, 6)),
        Row(lambda x, n, m: F.glu(x[:, : n - 5]), (7, 4)),
        Row(lambda x, n, m: F.glu(x[: n // 4 * 2], 0), (9, 4)),
    ], (("n", "m"),), (9, 4)),
    Family("attention", [
        lambda x, n: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
        lambda x, n: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=n > 1),
        lambda x, n: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=n > 8),
        lambda x, n: F.scaled_dot_product_attention(x[None], x[None], x[None], scale=1 / n),
        lambda x, n: F.scaled_dot_product_attention(x[None], x[None], x[None], torch.ones(n, n).tril().bool()),
        lambda x, n: F.scaled_dot_product_attention(x[None, -1:], x[None], x[None]),
        lambda x, n: F.scaled_dot_product_attention(x[None, n - 2 :], x[None], x[None]),
        lambda x, n: (x @ x.T).masked_fill(torch.ones(n, n).triu(1).bool(), -1e4).softmax(-1) @ x,
        lambda x, n: (x @ x.T * n**-0.5).softmax(-1)[: n // 2],
        lambda x, n: (x @ x.T + torch.arange(1 - n, 1)[None] / 8).softmax(-1),
        lambda x, n: (x @ x.T + torch.zeros(12, 12)[:n, :n]).softmax(-1),
        lambda x, n: torch.bucketize(torch.arange(n), torch.tensor([2, 4, 8])),
        lambda x, n: (torch.arange(n)[:, None] - torch.arange(n)).clamp(-3, n // 3),
        lambda x, n: torch.fft.rfft(x, dim=0).abs(),
        lambda x, n: torch.fft.irfft(torch.fft.rfft(x, dim=0), n=n, dim=0),
        rotary,
        heads,
        sliding_window,
        chunked_attention,
    ]),
    Family("inner sizes", [  # 0 or 1 inside where no input has size 0 or 1, and arguments that kernels check
        lambda x, n: torch.stack(x[: n // 2 * 2].chunk(2)),
        lambda x, n: torch.stack(x[: n // 2].chunk(2)),
        lambda x, n: x[: n // 2].mean(0),
        lambda x, n: x[: max(n - 5, 0)].mean(0),
        lambda x, n: x[: n // 3].mean((0, 1)),
        lambda x, n: x[: n // 2].min(),
        lambda x, n: x[: n // 3 * 3].amax(0),
        lambda x, n: x[: n // 2].squeeze(0),
        lambda x, n: x[: n // 4] + x[:1],
        lambda x, n: x[: n // 2].softmax(0),
        lambda x, n: x[: n % 4].logsumexp(0),
        lambda x, n: x[: n - n % 3].logsumexp(0),
        lambda x, n: x[: n & 3].logsumexp(0),
        lambda x, n: x[: n // 2].argmax(0),
        lambda x, n: F.layer_norm(x.T[:, : n // 3], (n // 3,)),
        lambda x, n: F.interpolate(x.T[None], scale_factor=(n // 2,)),
        lambda x, n: F.interpolate(x.T[None], size=n // 3),
        lambda x, n: torch.cdist(x, x, p=(n - 3) / 2),
        lambda x, n: torch.cdist(x, x, p=abs(n - 6) / 2),
        lambda x, n: torch.cdist(x, x, p=n // 3 / 2),
        lambda x, n: torch.cdist(x, x, p=max(n - 5, 0) / 2),
        lambda x, n: F.conv1d(x.T[None], torch.ones(1, 4, 2), padding=n - 3),
        lambda x, n: F.adaptive_avg_pool1d(x.T[None], n - 2),
        lambda x, n: x.unfold(0, max(n // 3, 1), 1).sum(-1),
        lambda x, n: x[: n // 2].reshape(-1, 2, 2),
        lambda x, n: F.normalize(x[: n // 2], dim=0),
    ]),
    Family("checks of kernels", [  # of which torch records no guard: indices, crops, parts that are replaced
        into_rows,
        lambda x, n: x.take(torch.arange(20)),
        lambda x, n: x.take(torch.arange(n * 3)),
        lambda x, n: F.one_hot(torch.arange(n), 12),
        lambda x, n: F.one_hot(torch.arange(-n % 4), n + 1),
        lambda x, n: F.pad(x, (0, 0, -3, 3)),
        lambda x, n: F.pad(x, (n - 12, 2)),
        lambda x, n: F.pad(x, (10 - n, n - 10)),
        lambda x, n: F.pad(x[None], (n - 9, 0), mode="circular"),
        lambda x, n: F.pad(x[None], (n - 10, 1), mode="replicate"),
        lambda x, n: F.pad(x[None], (n - 8, 8 - n), mode="reflect"),
        lambda x, n: x.select_scatter(torch.ones(4), 0, 2),
        Row(lambda x, n: x.select_scatter(torch.ones(8), 1, n // 3), (8,)),
        lambda x, n: x.slice_scatter(x[:3], 0, n // 2, n // 2 + 3),
        Row(lambda x, n: x.slice_scatter(x[: n // 2], 0, 0, None, 2), (8,)),
        lambda x, n: x.slice_scatter(torch.ones(3, 4), 0, -3),
        lambda x, n: x.diagonal_scatter(torch.ones(3), 1),
        lambda x, n: x.diagonal_scatter(x[:4, 0], 0, 1, 0),
    ]),
    Family("checks of kernels of two dims", [
        lambda x, n, m: F.pad(x[None], (n - 4, n - 2), mode="circular"),
        lambda x, n, m: F.pad(x[None], (1, -3), mode="circular"),
        lambda x, n, m: F.pad(x[None, None], (m - 7, 1, 0, n - 8), mode="circular"),
        lambda x, n, m: F.pad(x[None, None], (n - 2, 0, 1, n - 3), mode="replicate"),
        lambda x, n, m: F.pad(x, (n - m, m - n)),
        lambda x, n, m: F.conv_transpose1d(x[:, None], torch.ones(1, 2, 3), stride=2, output_padding=n // 5),
        lambda x, n, m: x.diagonal_scatter(x[0]),
    ], (("n", "m"),), (7, 5)),
    Family("views, copies and writes", [  # a size decides whether a write goes into the viewed tensor too
        lambda x, n, m: (y := x.clone(), y.t().reshape(-1)[0].fill_(4))[0],
        lambda x, n, m: (y := x.clone(), y.t().reshape(-1)[1:].fill_(4))[0],
        lambda x, n, m: (y := x.clone(), y.t().contiguous().fill_(4))[0],
        lambda x, n, m: (y := x.clone(), y[:, 1:].flatten().fill_(4))[0],
        lambda x, n, m: (y := x.clone(), y[:, :2].ravel().fill_(4))[0],
        lambda x, n, m: (y := x.clone(), y[: n // 2].t().ravel().fill_(4))[0],
        lambda x, n, m: (y := x.clone(), y.mT.reshape(y.shape).add_(1))[0],
        Row(lambda x, n, m: (y := x.clone(), y.mT.reshape(y.shape).add_(1))[0], (4, 4)),
        Row(lambda x, n, m: (y := x.clone(), y.t().contiguous().fill_(4))[0], (4, 1)),
        Row(lambda x, n, m: (y := x.clone(), y.t().contiguous().fill_(4))[0], (1, 1)),
        into_copy_without_grad,
        lambda x, n, m: (y := x.clone(), y.t().contiguous(), y.add_(1))[1],
        lambda x, n, m: (y := x.clone(), y[:1].expand_as(y).reshape(-1), y.add_(1))[1],
        lambda x, n, m: (y := x.clone(), y.t().contiguous().t().contiguous().add_(1))[0],
        lambda x, n, m: (y := x.clone(), y.t().contiguous(), y.mul_(2))[1][0],
        lambda x, n, m: (y := x.clone(), y[:, ::2].reshape(-1).add_(1))[0],
        Row(lambda x, n, m: (y := x.clone(), y[:, ::2].reshape(-1).add_(1))[0], (9, 5)),
        lambda x, n, m: (y := x.clone(), y[:, : m // 2 * 2].reshape(-1).fill_(3))[0],
        lambda x, n, m: (y := x.clone(), y.diagonal().contiguous().add_(1))[0],
        lambda x, n, m: (y := x.clone(), y[None, None].contiguous(memory_format=torch.channels_last).add_(1))[0],
        lambda x, n, m: (y := x.clone(), y[None].expand(3, n, m).permute(2, 0, 1).reshape(m, -1).add_(1))[0],
        lambda x, n, m: (y := x.clone(), y.repeat(2, 1).view(2, n, m).transpose(0, 1).reshape(n, -1).add_(1))[0],
        lambda x, n, m: (y := torch.stack([x, x], 1), y.permute(2, 1, 0).reshape(-1).add_(1))[0],
        lambda x, n, m: (y := torch.stack([x, x], 1), y.transpose(0, 1).reshape(2, -1).add_(1))[0],
        # and where no size decides
        lambda x, n, m: (y := x.clone(), y.reshape(-1).add_(1))[0],
        lambda x, n, m: (y := x.clone(), y.unsqueeze(0).permute(2, 0, 1).reshape(-1, n).mul_(2))[0],
        lambda x, n, m: (y := x.clone(), y.add_(1), y.t().contiguous())[2],
        lambda x, n, m: (y := x.clone(), y.t().clone().add_(1))[0],
    ], (("n", "m"),), (9, 4)),
    Family("inner sizes of two dims", [
        lambda x, n, m: torch.stack(x[:, : m // 2 * 2].chunk(2, -1)),
        lambda x, n, m: torch.stack(x[:, : n - m].chunk(2, -1)),
        lambda x, n, m: torch.cdist(x, x, p=n / 3),
        lambda x, n, m: torch.cdist(x, x, p=(n - m) / 3),
        lambda x, n, m: F.conv1d(x.T[None], torch.ones(1, 4, 2).expand(1, m, 2), padding=n // 2),
        lambda x, n, m: F.conv1d(x.T[None], torch.ones(1, 4, 2).expand(1, m, 2), padding=n + m - 9),
        lambda x, n, m: F.interpolate(x.T[None], scale_factor=(n // 4,)),
        lambda x, n, m: F.interpolate(x.T[None], scale_factor=(m / 4,)),
        lambda x, n, m: x[:, : m // 2].mean(1),
        lambda x, n, m: x[: n % m].amax(-1),
        lambda x, n, m: x[: n - m] @ x.T,
        lambda x, n, m: x + torch.ones(1, 4),
        lambda x, n, m: x[: n if n > m else m].split(2)[0],
        Row(lambda x, n, m: x[: n if n > m else m].split(3)[0], (6, 7)),
        Row(lambda x, n, m: x[: n // m].unsqueeze(0).squeeze(), (7, 5)),
        lambda x, n, m: x[: n // m].squeeze(),
        lambda x, n, m: x[: abs(n - m)].logsumexp(0),
    ], (("n", "m"),), (9, 4)),
)  # fmt: skip


def main() -> None:
    """Prints the table and the number of each verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="default: all")
    parser.add_argument("--wrong", action="store_true", help="print only what is wrong, with the sizes")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    counts: Counter[str] = Counter()
    print("| expression | conditions | verdict |", "|---|---|---|", sep="\n")
    for family in FAMILIES:
        for row in family if not options.families or family.name in options.families else ():
            outcome = examine(family, row)
            counts[outcome.verdict] += 1
            if outcome.problems or not options.wrong:
                verdict = "; ".join(outcome.problems) if options.wrong else outcome.verdict
                text = f"`{outcome.text}`{'' if row.example == family.example else f' at {row.example}'}"
                print(f"| {text} | {'; '.join(outcome.conditions)} | {verdict} |".replace("||", "\\|\\|"), flush=True)
    words = ", ".join(f"{verdict} {number}" for verdict, number in counts.most_common())
    print(f"\n{counts.total()} expressions: {words}")


if __name__ == "__main__":
    main()
