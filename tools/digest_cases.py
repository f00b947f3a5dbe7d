"""What ``python -m tools.export_digests`` exports: a name and a function for each export.

Only public names of fx_onnx are used, so that the same cases run at commits with other folders of the package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import fx_onnx

Case = Callable[[Path], Any]
"""Gets an empty folder, and returns a program, or what else the digest has: text, or a list of these."""

CASES: dict[str, Case] = {}
"""The exports by name. The modules digest_*.py add theirs."""


class Function(nn.Module):
    """A module whose forward calls a function of tensors."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Any) -> Any:
        """Returns the results of the function."""
        return self.function(*tensors)


def t(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Returns a tensor of normal random numbers, always the same for a shape."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)


def i(high: int, *shape: int) -> Tensor:
    """Returns a tensor of random integers below a bound, always the same for a shape."""
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(high))


def copied(values: Any) -> Any:
    """Returns arguments with copies of their tensors, because a model may write to them."""
    return pytree.tree_map_only(Tensor, torch.clone, values)


def add(name: str, build: Callable[[], Any], args: tuple[Any, ...], **options: Any) -> None:
    """Adds the export of a model, which is built when its turn comes and is set to eval mode if it is not yet."""

    def case(folder: Path) -> Any:
        model = build()
        if (
            getattr(model, "training", False)
            and "training" not in options
            and not isinstance(model, torch.fx.GraphModule)
        ):
            model.eval()
        return fx_onnx.export(model, copied(args), **options)

    add_case(name, case)


def add_case(name: str, case: Case) -> None:
    """Adds an export.

    Raises:
        ValueError: there is one of this name.
    """
    if name in CASES:
        raise ValueError(f"There are two cases {name}.")
    CASES[name] = case


def add_both(name: str, build: Callable[[], Any], args: tuple[Any, ...], shapes: Any, **options: Any) -> None:
    """Adds a static and a dynamic export."""
    add(f"{name}/static", build, args, **options)
    add(f"{name}/dynamic", build, args, dynamic_shapes=shapes, **options)


def add_functions(group: str, rows: Iterable[tuple[Any, ...]]) -> None:
    """Adds exports of functions. A row is a name, the function, its arguments and, if any, the dynamic dims.

    The dims are a number for each tensor, of which these first axes are dynamic, or what ``dynamic_shapes`` takes.
    """
    for name, function, args, *shapes in rows:
        for each in shapes:
            dims = tuple({axis: f"d{axis}" for axis in range(n)} for n in each) if isinstance(each, list) else each
            add(f"{group}/{name}/dynamic", lambda f=function: Function(f), args, dynamic_shapes=(dims,))
        add(f"{group}/{name}", lambda f=function: Function(f), args)
