"""Generates random programs: the source of a module, drawn from a seed, that eager mode runs at three sizes."""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from tests.fuzz.statements import DTYPES, MENU

INPUTS = ("x", "y", "z")
SIZES = ({"n": 5, "m": 4}, {"n": 3, "m": 4}, {"n": 8, "m": 4})
"""The sizes of the example, then two others; ``m`` is static, because weights have this size."""

_ATTEMPTS = 40  # the largest number of draws for one statement; about one in three draws fits its operands
_MAXIMUM_ELEMENTS = 20_000


@dataclass(frozen=True)
class Program:
    """A module as source text.

    Attributes:
        seed: the seed of the statements, the weights and the inputs.
        statements: the lines of its forward.
        results: the names of the values that it returns.
        dynamic: whether ``n`` is exported as a dynamic dim.
    """

    seed: int
    statements: tuple[str, ...]
    results: tuple[str, ...]
    dynamic: bool

    def source(self) -> str:
        """Returns the module as Python source, which runs after the imports of this file."""
        lines = [line for statement in self.statements for line in statement.split("\n")]
        body = "".join(f"        {line}\n" for line in lines)
        return (
            "class Program(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.weight = nn.Parameter(torch.randn(4, 4))\n"
            "        self.bias = nn.Parameter(torch.randn(4))\n"
            "        self.kernel = nn.Parameter(torch.randn(2, 1, 3))\n"
            "        self.register_buffer('state', torch.ones(4))\n\n"
            f"    def forward(self, {', '.join(INPUTS)}):\n{body}"
            f"        return {', '.join(self.results)},\n"
        )

    def module(self) -> nn.Module:
        """Returns a new module with the weights of the seed."""
        namespace = dict(_NAMESPACE)
        exec(self.source(), namespace)
        torch.manual_seed(self.seed)
        made: nn.Module = namespace["Program"]().eval().requires_grad_(False)
        return made

    def inputs(self, size: int) -> tuple[Tensor, ...]:
        """Returns the inputs at one of ``SIZES``: float32 (n, m), int64 (n, m) and float32 (m,)."""
        draw = torch.Generator().manual_seed(1000 * self.seed + size)
        n, m = SIZES[size]["n"], SIZES[size]["m"]
        return (
            torch.randn(n, m, generator=draw),
            torch.randint(-3, 8, (n, m), generator=draw),
            torch.randn(m, generator=draw),
        )

    def eager(self, size: int) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        """Returns the results of eager mode at one of ``SIZES``, and the inputs and the buffer after the run."""
        module, inputs = self.module(), self.inputs(size)
        with _EAGER(), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = tuple(each.clone() for each in module(*inputs))
        return results, {**dict(zip(INPUTS, inputs, strict=True)), "state": module.get_buffer("state")}


def _control_map(function: Any, xs: Tensor) -> Any:
    from torch._higher_order_ops.map import map as higher_order_map

    return higher_order_map(function, xs)


_NAMESPACE: dict[str, Any] = {
    "torch": torch, "nn": nn, "F": F, "scan": scan, "while_loop": while_loop, "control_map": _control_map,
}  # fmt: skip


_EAGER = partial(torch.compiler.set_stance, "force_eager")
"""Without it, scan, while_loop and map compile their functions at each call, which takes half a second."""


class _Trial:
    """A program that grows by statements; it keeps the values at each size, so that a new statement runs alone."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._environments = self._rerun()

    def add(self, out: str, statement: str) -> bool:
        """Adds a statement if it runs at every size and gives small real tensors; returns whether it was added."""
        if all(_execute(statement, environment, out) for environment in self._environments):
            self.program = replace(self.program, statements=(*self.program.statements, statement))
            return True
        if "_(" in statement or "] " in statement:  # it may have written before it failed
            self._environments = self._rerun()
        return False

    def _rerun(self) -> list[dict[str, Any]]:
        environments = []
        for size in range(len(SIZES)):
            inputs = dict(zip(INPUTS, self.program.inputs(size), strict=True))
            environment = {
                **_NAMESPACE,
                **inputs,
                "self": replace(self.program, statements=(), results=("x",)).module(),
            }
            for statement in self.program.statements:
                _execute(statement, environment, None)
            environments.append(environment)
        return environments


def _execute(statement: str, environment: dict[str, Any], out: str | None) -> bool:
    try:
        with _EAGER(), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(statement, environment)
    except (RuntimeError, TypeError, ValueError, IndexError, ZeroDivisionError, NotImplementedError):
        return False
    value = environment.get(out or "x")
    return isinstance(value, Tensor) and value.numel() <= _MAXIMUM_ELEMENTS and not value.is_complex()


def generate(seed: int) -> Program:
    """Returns the program of a seed: 4 to 15 statements that run in eager mode; an odd seed has a dynamic dim."""
    rng = random.Random(seed)
    trial = _Trial(Program(seed, (), ("x",), dynamic=bool(seed % 2)))
    values = list(INPUTS)
    for place in range(rng.randint(4, 15)):
        out = f"v{place}"
        if any(trial.add(out, _statement(rng, values, out)) for _ in range(_ATTEMPTS)):
            values.append(out)
    made = values[len(INPUTS) :]
    results = tuple(dict.fromkeys([*rng.sample(made, min(2, len(made))), made[-1]])) if made else ("x",)
    return replace(trial.program, results=results)


def _statement(rng: random.Random, values: list[str], out: str) -> str:
    weights, groups = zip(*MENU, strict=True)
    (group,) = rng.choices(groups, weights)
    operands = rng.choices(values, [place + 1 for place in range(len(values))], k=3)  # prefer late values
    return rng.choice(group).format(
        out=out,
        a=operands[0],
        b=operands[1],
        c=operands[2],
        i=rng.randint(0, 2),
        j=rng.randint(0, 2),
        f=rng.choice((0, 0.5, 1, -1.5, 2, 3)),
        dtype=rng.choice(DTYPES),
    )
