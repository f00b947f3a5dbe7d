"""Fuzzes dynamic sizes: ``python -m tests.fuzz.sizes --seed 5 --count 200 [--rows 40:80]``.

A seed draws expressions of the sizes of a matrix, where they are used, and writes to views of the matrix. Each is
exported once and run at many sizes, as the table of tests/capture/size_expressions.py, whose verdicts are printed.
"""

from __future__ import annotations

import argparse
import logging
import math
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from tests.capture.size_trials import Family, Outcome, Row, examine

FAMILY = Family("generated", (), (("n", "m"),), (9, 6))
EXAMPLES = [(7, 4), (6, 4), (9, 4), (7, 5), (8, 6)]
NUMBERS = """
n // 2|n // 3|n // 4|n % 2|n % 3|n % 4|n - 1|n - 2|n - 5|2 * n|n + 1|max(n - 4, 1)|min(n, 6)|n // 2 * 2|-n % 4
round(n / 3)|math.ceil(n * 0.6)|n * m // 4|n - m|abs(n - m)|n + m|(n + m) // 2|int(n ** 0.5)|m // 2|m - 1|m % 3|m - 3
max(n, m)|min(n, m)|n * m|m // 2 * 2|(n - 1) // 2|(n + 3) // 4|n // m|n % m|int(n / 2 + 0.5)|3|1|2|4|max(m - 2, 0)
n - n // 2|m - m // 3|n // 2 + m // 2|math.floor(n / 3)|int(m * 1.5)|(n - 3) // 2|n - 4|n // 5|m // 4|m + 1|2 * m
n >> 1|n // 2 % 3
"""
FRACTIONS = """
n / 3|n / m|1 / n|m / 2|n * 0.5|n ** 0.5|math.sqrt(m)|1 / (n - m)|(n - 1) / 2|n // 2|m % 3|0.5 * n / m|math.log(n)
"""
USES = """
x[: {a}] * 2|x[{a} :].sum(0)|x[:, : {a}].softmax(-1)|x[:, {a} :].mean(1)|x[{a}]|x[:, {a}] + 1|x[{a} : {b}]
x[:: max({a}, 1)]|x[-({a}) :]|x[: {a}, : {b}] @ x[: {a}, : {b}].T|x.narrow(0, {a}, {b})|x.narrow(1, 0, {a})
x.select(0, {a})|x.select(1, {a}).relu()|x.roll({a}, 0)|x.repeat({a}, 1)|x.repeat(1, {a})|x.repeat_interleave({a}, 1)
x.tile(({a},))|x[:1].expand({a}, m)|x[:, :1].expand(n, {a}) * 2|x.reshape({a}, -1)|x.reshape(-1, {a})
x.view({a}, {b})|x.reshape(-1).view({a}, -1)|x[: {a}].reshape(-1)|x[: {a}].reshape(-1, 2)
x[: n // 2 * 2].view(-1, 2, m)|x[:, : m // 2 * 2].view(n, -1, 2).sum(-1)|x.T.reshape({a}, -1)|x.split({a})[0]
x.split({a}, 1)[-1]|torch.stack(x[: {a}].chunk(2))|x.chunk({a})[0]|torch.cat(x[:, : {a}].chunk(2, -1))
x.tensor_split({a})[0]|x[: {a}].tensor_split(2)[1]|x.chunk(2, 1)[1] * 3|x[{a} :].chunk(3)[-1]
torch.stack(x[: {a}].unbind())|x[:, {a} :].split(2, 1)[0]|x.unfold(0, {a}, 1)|x.unfold(1, 2, {a})
x[: {a}].unfold(0, 2, 1).sum(-1)|F.pad(x, (0, {a}))|F.pad(x, (0, 0, {a}, {b}))|F.pad(x, ({a}, 0), value={f})
F.pad(x[None], ({a}, 1), mode="replicate")|F.pad(x[None], (1, {a}), mode="reflect")
F.pad(x[None], ({a}, 0), mode="circular")|x.diagonal({a})|x.tril({a})|x.triu({a} - 2)|torch.diag_embed(x, {a})
x.diff(n={a}, dim=0)|x.flip({a} % 2)|x.cumsum({a} % 2)|x.rot90({a})|x[: {a}].squeeze(0)|x[:, : {a}].squeeze(1)
x[: {a}].squeeze() * 2|x[: {a}].unsqueeze(0) + x|x[: {a}] + x[: {b}]|x[: {a}] * x|x[:, : {a}] - x[:, :1]
x[:, : {a}] * x[:, : {b}]|torch.cat([x, x[: {a}]])|torch.stack([x[: {a}], x[: {a}]]).sum(0)
x[:, : {a}] @ torch.ones({a}, 2)|torch.bmm(x[None, :, : {a}], x[: {a}][None])|x @ x[: {a}].T
torch.outer(x[: {a}, 0], x[0])|torch.arange({a}) + x.sum()|torch.arange({a}, {b}).float() * 2
torch.arange(0, n, max({a}, 1)) + x[0, 0]|torch.linspace(0, {f}, 5) + x[0, 0]|torch.linspace(0, 1, {a}) * x.mean()
torch.full(({a},), {f}) + x[0, 0]|torch.zeros({a}, m) + x[:1]|torch.ones({a}, 2) * {f}|torch.eye({a}, m) + x[:1]
torch.eye(max({a}, 0)).sum() + x|x * {f}|x + {a}|x.sum() / ({a})|x ** ({a})|x.clamp(max={f})
torch.tensor([{a}, {b}]) + x[0, 0]|F.avg_pool1d(x[None], {a})|F.max_pool1d(x[None], {a})
F.max_pool1d(x[None], 2, {a})|F.avg_pool1d(x[None], 3, 1, {a})|F.max_pool1d(x[None, :, {a} :], 2)
F.adaptive_avg_pool1d(x[None], {a})|F.adaptive_avg_pool1d(x[None, :, : {a}], 2)|F.adaptive_max_pool1d(x[None], {a})
F.adaptive_avg_pool2d(x[None], ({a}, {b}))|F.avg_pool2d(x[None], ({a}, 1))|F.lp_pool1d(x[None].abs() + 1, 2, {a})
F.interpolate(x[None], size={a})|F.interpolate(x[None], size={a}, mode="linear")
F.interpolate(x[None], size={a}, mode="linear", align_corners=True)|F.interpolate(x[None, None], size=({a}, {b}))
F.interpolate(x[None, None], size=({a}, {b}), mode="bilinear")
F.interpolate(x[None, None], size=({a}, m), mode="nearest-exact")|F.interpolate(x[None], size={a}, mode="nearest-exact")
F.interpolate(x[None], scale_factor={f})|F.interpolate(x.T[None], scale_factor=({a},))
F.interpolate(x[None, None], scale_factor=({f}, 2), mode="bilinear")
F.interpolate(x[None, None], size=({a}, 5), mode="bicubic")|F.interpolate(x[None], size={a}, mode="area")
F.interpolate(x[None, :, : {a}], size=4)|F.conv1d(x.T[None], torch.ones(1, 1, 2).expand(1, m, 2), padding={a})
F.interpolate(x[None, None, : {a}], size=(4, {b}), mode="bilinear", antialias=True)
F.conv1d(x[:, None], torch.ones(2, 1, 3))|F.conv1d(x[:, None], torch.ones(2, 1, 3), padding={a})
F.conv1d(x[:, None, : {a}], torch.ones(2, 1, 2))|F.conv1d(x[:, None], torch.ones(1, 1, max({a}, 1)))
F.conv_transpose1d(x[:, None], torch.ones(1, 2, 3), stride=2, output_padding={a})|F.unfold(x[None, None], ({a}, 2))
F.conv2d(x[None, None], torch.ones(1, 1, 2, 2), padding=({a}, {b}))|torch.cdist(x, x, p={f})|x.norm({f})
x[: {a}].norm(dim=0)|x[: {a}].mean(0)|x[: {a}].amax(0)|x[: {a}].std(0)|x[:, : {a}].var(1)|x[: {a}].prod(0)
x[:, : {a}].argmax(1)|x[: {a}].logsumexp(0)|x.topk({a}, 0)[0]|x.topk({a}, 1)[1]|x.kthvalue({a}, 0)[0]
x[: {a}].sort(0)[0]|x[: {a}].median(0)[0]|x[: {a}].max()|x[: {a}].flatten().sum()|x[: {a}].cummax(0)[0]
x[: {a}].all()|x[: {a}].min(0)[0]|F.one_hot(torch.arange({a}), n + m)|F.embedding(torch.arange({a}), x)
x[torch.arange({a})]|x[torch.arange(n) % ({a})]|x.gather(0, torch.zeros({a}, m, dtype=torch.long))
x.index_select(0, torch.arange({a}))|x.index_select(1, torch.arange({a}))
x.new_zeros(12, m).index_add(0, torch.arange({a}), x[: {a}])|x.scatter(0, torch.zeros({a}, m, dtype=torch.long), 1.0)
torch.zeros(n, m).index_fill(0, torch.arange({a}), 1.0) + x
x.take_along_dim(torch.zeros({a}, m, dtype=torch.long), 0)|F.layer_norm(x[:, : {a}], (4,))
F.layer_norm(x[: {a}], x.shape[1:])|F.group_norm(x[None], {a})|F.glu(x, {a} % 2)|F.glu(x[:, : {a}])
F.pixel_shuffle(x[None, :, :, None], 2)|F.scaled_dot_product_attention(x[None, : {a}], x[None], x[None])
F.scaled_dot_product_attention(x[None], x[None, : {a}], x[None, : {a}])
F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True, scale={f})|F.normalize(x[: {a}], dim=0)
F.softmax(x[: {a}], 0)|F.cosine_similarity(x[: {a}], x[:1])|F.pairwise_distance(x[: {a}], x[:1])
torch.einsum("ij,kj->ik", x[: {a}], x)|torch.matmul(x[: {a}], x[: {b}].T)|torch.kron(x[: {a}, :1], x)
torch.block_diag(x[: {a}], x)|torch.vander(x[:, 0], {a})|torch.combinations(x[:, 0], 2)
torch.cartesian_prod(x[: {a}, 0], x[0])|torch.fft.rfft(x, {a}).abs()|torch.fft.fft(x[:, : {a}]).abs()
torch.hann_window({a}) + x[0, 0]|torch.nn.utils.rnn.pad_sequence([x[: {a}], x])
torch.baddbmm(x[None, : {a}], x[None, : {a}], torch.ones(1, m, m))|torch.linalg.vector_norm(x[: {a}], {f}, dim=0)
torch.tensordot(x[: {a}], x, dims=([1], [1]))|torch.histc(x, {a})|torch.bucketize(x, torch.arange({a}).float())
torch.searchsorted(torch.arange({a}).float(), x)|torch.where(torch.arange(n)[:, None] < {a}, x, -x)
torch.triu_indices({a}, {b}) + 1|x.as_strided(({a}, 2), (m, 1))
x.masked_fill(torch.ones(n, m).tril({a}) == 0, 0)|x.swapaxes(0, {a} % 2)|x.movedim(0, {a} % 2)
x.unflatten(1, (-1, 2))|x.unflatten(0, (2, -1)).sum(0)|x.flatten().unfold(0, max({a}, 1), max({b}, 1))
x.permute({a} % 2, 1 - {a} % 2)|torch.hstack([x, x[:, : {a}]])|torch.dstack([x[: {a}], x[: {a}]])|x.expand({a}, n, m)
torch.broadcast_to(x[:, :1], (n, {a}))|x.sum({a} % 2)|x * 2 if {a} == {b} else x + 1|x if {a} > 2 else x[: {b}] * 2
"""
BOUNDS = "0|1|2|3|5|-1|-2|-4|n // 2|n - 3|-n + 2|n // 3|m|m - 2|-m|n - m|None"
STEPS = "1|1|1|2|3"
VIEWS = """
y[{s}]|y[{s}]|y[:, {s}]|y[{s}, {t}]|y.T[{s}]|y[0, {s}]|y[-1, {s}]|y[n // 2, {s}]|y[n - 1, {s}]|y[n - 4]
y.narrow(0, n // 2, n - n // 2)[{s}]|y.narrow(0, n // 2 - 1, 1)|y[{s}].diagonal()|y[{s}].diagonal(1)|y[{s}].diagonal(-1)
y[{s}][{t}]|y.chunk(2, 1)[0][{s}]|y.chunk(2, 1)[1][{s}]|y[{s}].unsqueeze(0)[0]|y[..., {s}]|y.view(n, m, 1)[{s}]
"""
WRITES = "fill_(7)|mul_(2)|add_(v.sum())|copy_(v.flip(0))|zero_()|sub_(1).mul_(3)"


def expression(draw: random.Random) -> str:
    """Returns an expression of the sizes ``n`` and ``m`` of a matrix ``x``."""
    use, first, second, fraction = (_one_of(draw, texts) for texts in (USES, NUMBERS, NUMBERS, FRACTIONS))
    first, second = (text if text.isdigit() else f"({text})" for text in (first, second))
    return use.format(a=first, b=second, f=fraction)


def write(draw: random.Random) -> str:
    """Returns an expression whose value is a copy ``y`` of a matrix ``x`` of n × m, after a write to a view of it."""
    first, second = (":".join(_one_of(draw, texts) for texts in (BOUNDS, BOUNDS, STEPS)) for _ in range(2))
    view = _one_of(draw, VIEWS).format(s=first, t=second)
    return f"[y := x * 1, v := {view}, v.{_one_of(draw, WRITES)}, y][-1]"


def rows(seed: int, count: int) -> Iterator[Row]:
    """Yields expressions and writes in turn, all different, that eager mode computes for their examples."""
    draw, texts = random.Random(seed), set[str]()
    while len(texts) < count:
        text, example = ((expression, write)[len(texts) % 2](draw), draw.choice(EXAMPLES))
        if text in texts:
            continue
        texts.add(text)
        namespace: dict[str, Any] = {"torch": torch, "F": F, "math": math}
        function = eval(f"lambda x, n, m: {text}", namespace)
        function.__doc__ = text
        try:
            function(torch.randn(example), *example)
        except Exception:
            continue
        yield Row(function, example)


def judge(row: Row) -> Outcome:
    """Returns what becomes of a row. A refused export is no mistake."""
    outcome = examine(FAMILY, row)
    if outcome.verdict == "REFUSED":
        outcome.problems = []
    return outcome


def main() -> None:
    """Prints the mistakes, what is refused, and the number of each verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200, help="the number of rows, some of which eager mode refuses")
    parser.add_argument("--rows", default=":", help="first:last, for a part of the rows")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    first, last = (int(end) if end else None for end in options.rows.split(":"))
    for number, row in list(enumerate(rows(options.seed, options.count)))[first:last]:
        outcome = judge(row)
        counts[outcome.verdict] += 1
        if outcome.problems or outcome.verdict == "REFUSED":
            words = "; ".join(outcome.problems or outcome.conditions)
            print(f"{number} {outcome.verdict} | {outcome.text} at {row.example} | {words}", flush=True)
    print(", ".join(f"{verdict} {count}" for verdict, count in counts.most_common()))


def _one_of(draw: random.Random, texts: str) -> str:
    return draw.choice(texts.strip().replace("\n", "|").split("|"))


if __name__ == "__main__":
    main()
