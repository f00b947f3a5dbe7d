"""Generates modules that branch on data, forces each outcome, and compares their programs with them.

Run it as ``python -m tests.fuzz.branches --count 500``. It prints the programs that differ, and how many were refused.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import fx_onnx

OPSETS = (15, 18, 23)
_SIGNS = 3
"""The number of the inputs that decide: each condition is true for some of their signs."""

_CONDITIONS = (
    "c[{i}] > 0", "(c[{i}] > 0).all()", "c[{i}].item() > 0", "not c[{i}] > 0", "(c > 0).sum() > 1", "bool(c[{i}] > 0)",
    "c[{i}] > 0 and c[{j}] > 0", "c[{i}] > 0 or h.sum() > 0", "0 < c[{i}]", "(h * c[{i}]).sum() > 0",
    "h[h[:, 0] > c[{i}]].shape[0] > 1", "(c > 0).sum().item() > 1", "any(each > 0 for each in c)", "h.amax() > 1",
    "c[{i}] > c[{j}]", "torch.isfinite(h).all()", "bool(c.any())", "torch.equal(h, h.relu())",
    "torch.allclose(c[{i}], c[{i}].abs())", "torch.is_nonzero(c[{i}].relu())", "len((c > 0).nonzero()) > 1",
    "len(h[h[:, 0] > c[{i}]])", "(c > 0).sum().item()",
)  # fmt: skip
_STEPS = (
    "h = self.a(h)", "h = self.b(h).relu()", "h = h * 2", "h = h - c[{i}]", "h = h.clone(); h[0] = 7",
    "h = h + 0; v = h[:, 1]; v.mul_(3)", "self.count.add_(1)", "self.count.mul_(c[{i}])", "self.count = self.count + 2",
    "h = h + self.count", "h = h.softmax(-1)", "h = h + torch.rand_like(h) * 0", "h = torch.where(h > 0, h, -h)",
    "k = k + 1", "h = h * k", "items.append(h.sum())", "h = h + len(items)", "x.mul_(2)", "h = h + x[:1]",
    "h = self.inner(h, c)", "h = self.step(h, c)", "h = torch.cat([h[:1], h[1:] * 2])", "h = h.double().float()",
    "h = h.flip(0)", "h = h - h.amax(0, keepdim=True)", "t = c + 1; h = h * t[{i}]",
)  # fmt: skip
_ENDS = ("return h, k, self.count + 0", "return h.relu(), k, self.count * 2", "raise ValueError('refused')")
_HEADER = """
import torch
from torch import Tensor, nn

class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, h, c):
        if {condition}:
            return self.linear(h)
        return h

class Program(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed({seed})
        self.a, self.b, self.inner = nn.Linear(4, 4), nn.Linear(4, 4), Inner()
        self.register_buffer("count", torch.ones(1))
        self.register_buffer("flag", torch.tensor(True))

    def step(self, h, c):
        if {other}:
            h = h + 1
        return h

    def forward(self, x, c):
        h, k, items = x + 0, 1, []
"""


def source(seed: int) -> str:
    """Returns a module as text, whose forward takes (n, 4) and three numbers that decide."""
    draw = random.Random(seed)

    def filled(text: str) -> str:
        i, j = draw.sample(range(_SIGNS), 2)
        return text.replace("{i}", str(i)).replace("{j}", str(j))

    def condition() -> str:
        return filled(draw.choice(_CONDITIONS))

    def block(depth: int, branches: list[int]) -> Iterator[str]:
        for _ in range(draw.randint(1, 3)):
            kind = draw.random()
            if branches[0] > 0 and kind < 0.5:
                branches[0] -= 1
                yield from branch(depth, branches)
            elif branches[0] > 1 and kind < 0.6:
                branches[0] -= 2
                yield "for layer in (self.a, self.b):"
                yield "    h = layer(h)"
                yield f"    if {condition()}:"
                yield f"        {draw.choice(('break', 'continue', 'h = h * 2'))}"
                yield "    h = h + 1"
            elif branches[0] > 0 and kind < 0.65:
                branches[0] -= 1
                yield "try:"
                yield f"    if {condition()}:"
                yield "        raise ValueError"
                yield f"    {filled(draw.choice(_STEPS))}"
                yield "except ValueError:"
                yield f"    {filled(draw.choice(_STEPS))}"
            else:
                yield filled(draw.choice(_STEPS))

    def branch(depth: int, branches: list[int]) -> Iterator[str]:
        yield f"if {condition()}:"
        yield from ("    " + line for line in block(depth + 1, branches))
        if draw.random() < 0.25:
            yield "    " + draw.choice(_ENDS)
        if draw.random() < 0.6:
            yield "else:"
            yield from ("    " + line for line in block(depth + 1, branches))

    branches = [draw.randint(1, 3)]
    lines = [filled(draw.choice(_STEPS)), *branch(0, branches), *block(0, branches)]
    header = _HEADER.format(condition=condition(), other=condition(), seed=seed)
    return header + "".join(f"        {line}\n" for line in (*lines, "return h, k, self.count + 0"))


def check(seed: int, folder: Path) -> str:
    """Exports a module and compares each outcome; returns ``equal``, the id of the refusal, or what differs."""
    path = folder / f"program_{seed}.py"
    path.write_text(source(seed), encoding="utf-8")
    program_of = _module(path).Program
    draw = random.Random(seed)
    is_dynamic, opset = draw.random() < 0.5, draw.choice(OPSETS)
    x, c = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed)), torch.tensor([1.0, -1.0, 1.0])
    shapes = ({0: "n"}, None) if is_dynamic else None
    try:
        program = fx_onnx.export(program_of().eval(), (x.clone(), c), dynamic_shapes=shapes, opset_version=opset)
    except fx_onnx.OnnxExporterError as error:
        return f"{error.id}: {error.message}"
    excluded = program.dims.conditions
    for signs, rows in itertools.product(
        itertools.product((1.0, -1.0), repeat=_SIGNS), (3, 5, 2) if is_dynamic else (3,)
    ):
        if not all(each.holds({"n": rows}) for each in excluded):
            continue
        given = torch.randn(rows, 4), torch.tensor(signs) * (1 + torch.rand(_SIGNS))
        text = _difference(program_of().eval(), program, given)
        if text:
            return f"WRONG for {rows} rows, {signs}, opset {opset}: {text}"
    return "equal"


def _difference(module: Any, program: Any, given: tuple[torch.Tensor, ...]) -> str:
    """Returns what differs between a module and its program: a result, a buffer or an input; empty if nothing."""
    copies = [each.clone() for each in given]
    try:
        with torch.no_grad():
            want = [torch.as_tensor(each) for each in module(*copies)]
    except Exception:
        return ""
    states = {"count_out": module.count, "x_out": copies[0]}
    names = [str(each.name) for each in program.model.graph.outputs]
    got = program(*(each.clone() for each in given))
    want += [states[name] for name in names[len(want) :]]
    for name in states.keys() - {*names}:
        before = torch.ones(1) if name == "count_out" else given[0]
        if not torch.equal(states[name], before):
            return f"{name} is missing"
    for name, one, other in zip(names, want, got, strict=True):
        if one.shape != other.shape or not torch.allclose(one.double(), other.double(), 1e-3, 1e-4, equal_nan=True):
            return f"{name}: {one.tolist()} and {other.tolist()}"
    return ""


def _module(path: Path) -> ModuleType:
    spec: Any = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def main() -> int:
    """Checks programs; returns the number of those that differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    verdicts = Counter[str]()
    wrong = 0
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(options.first, options.first + options.count):
            try:
                verdict = check(seed, Path(name))
            except Exception as error:
                verdict = f"WRONG: {type(error).__name__}: {error}"
            verdicts[verdict[:6]] += 1
            if verdict != "equal":
                print(f"--- {seed}: {verdict[:400]}", flush=True)
            wrong += verdict.startswith("WRONG")
    print(dict(verdicts))
    return wrong


if __name__ == "__main__":
    raise SystemExit(main())
