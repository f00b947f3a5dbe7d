"""The random state of torch, which all threads share, around a run of a captured module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram

from fx_onnx.torch_internals.operators import nodes_of

__all__ = ["random_numbers_of"]


@contextmanager
def random_numbers_of(program: ExportedProgram | None, seed: int | None = None) -> Iterator[None]:
    """Restores the random state at the end, and sets a seed at the beginning, if the program may draw random numbers.

    Otherwise the random state stays as it is: another thread may draw meanwhile, and would draw the same numbers again.
    Nobody knows what the operators of other libraries draw, nor what a module without a program does.
    """
    may_draw = program is None or any(map(_may_draw, nodes_of(program)))
    with torch.random.fork_rng(devices=[], enabled=may_draw):
        if may_draw and seed is not None:
            torch.manual_seed(seed)
        yield


_WITHOUT_NUMBERS = {"train": False, "training": False, "dropout_p": 0}


def _may_draw(node: torch.fx.Node) -> bool:
    target: Any = node.target
    if getattr(target, "namespace", "aten") not in ("aten", "higher_order"):  # the bodies of the latter are looked at
        return True
    if torch.Tag.nondeterministic_seeded not in getattr(target, "tags", ()):
        return False
    given = {argument.name: argument.default_value for argument in target._schema.arguments}
    given |= {**dict(zip(given, node.args, strict=False)), **node.kwargs}
    return not any(name in given and given[name] == value for name, value in _WITHOUT_NUMBERS.items())
