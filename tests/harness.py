"""Tests a translation with one line for each call.

``Case(aten.add.Tensor, i64(2, 3), f32(2, 3), emits=["Cast", "Add"])`` is a model whose inputs are the tensors of the
call; all other arguments are constants. ``check`` exports the model with static sizes at every opset where the
translation differs, and at the highest of these opsets with every dim above 1 dynamic. It runs each export in ONNX
Runtime, the dynamic one also at another size, and compares values, shapes and dtypes with torch.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import sympy
import torch
from torch.export import Dim
from torch.utils import _pytree as pytree

import fx_onnx
import fx_onnx.translations  # registers the translations, which _opsets reads
from fx_onnx.extension_points.translation_table import registered_translations
from fx_onnx.onnx_model.opsets import DEFAULT_OPSET, MINIMUM_NATIVE_OPSET
from fx_onnx.onnx_model.weights import real_view
from tests.compare import assert_close
from tests.one_capture import OneCapture


@dataclass(frozen=True)
class Arg:
    """A tensor argument that can be created in several sizes: random numbers, or ``values`` repeated."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    low: float = -2.0
    high: float = 2.0
    values: tuple[Any, ...] = ()
    fixed: bool = False  # the sizes stay the same when other arguments grow

    def make(self, shape: Sequence[int] | None = None, seed: int = 0) -> torch.Tensor:
        """Returns the tensor in its own sizes or in ``shape``."""
        shape = self.shape if shape is None else tuple(shape)
        generator = torch.Generator().manual_seed(seed)
        if self.values:
            count = int(torch.Size(shape).numel())
            flat = [self.values[i % len(self.values)] for i in range(count)]
            return torch.tensor(flat, dtype=self.dtype).reshape(shape)
        if self.dtype == torch.bool:
            return torch.rand(shape, generator=generator) > 0.5
        if self.dtype.is_complex:
            parts = torch.rand((*shape, 2), generator=generator, dtype=torch.float64)
            return torch.view_as_complex(parts * (self.high - self.low) + self.low).to(self.dtype)
        if self.dtype.is_floating_point:
            uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
            return (uniform * (self.high - self.low) + self.low).to(self.dtype)
        return torch.randint(int(self.low), int(self.high) + 1, shape, generator=generator).to(self.dtype)


def arg(dtype: torch.dtype) -> Callable[..., Arg]:
    """Returns a constructor of arguments: ``f32(2, 3)``, ``i64(4, low=0, high=9)``, ``f32(3, values=(0.0, -0.0))``."""
    floor = 0.0 if dtype in (torch.uint8, torch.uint16, torch.uint32) else -3.0 if not dtype.is_floating_point else -2.0
    return lambda *shape, low=floor, high=3.0, **options: Arg(dtype, shape, low, high, **options)


f16, bf16, f32, f64 = arg(torch.float16), arg(torch.bfloat16), arg(torch.float32), arg(torch.float64)
c64, c128 = arg(torch.complex64), arg(torch.complex128)
i8, i16, i32, i64, u8, b8 = (
    arg(torch.int8), arg(torch.int16), arg(torch.int32), arg(torch.int64), arg(torch.uint8), arg(torch.bool),
)  # fmt: skip


class Case:
    """A call of ``target``. Each ``Arg`` among its arguments, also inside a list, is an input of the model.

    Attributes:
        emits: the ONNX operators of the static export at the highest opset, in any order; None accepts any.
        opsets: the opsets to export at; by default those on both sides of each ``since`` of the translation.
        dynamic: whether to export with dynamic sizes as well.
        tolerance: the allowed relative difference; None for that of the dtype.
    """

    def __init__(
        self,
        target: Callable[..., Any],
        *args: Any,
        emits: Sequence[str] | None = None,
        opsets: Sequence[int] | None = None,
        dynamic: bool = True,
        tolerance: float | None = None,
        **kwargs: Any,
    ) -> None:
        self.target, self.args, self.kwargs = target, args, kwargs
        self.emits, self.dynamic, self.tolerance = emits, dynamic, tolerance
        self.opsets = opsets or _opsets(target)

    def __repr__(self) -> str:
        name = getattr(self.target, "__name__", str(self.target))
        parts = [_short(a) for a in self.args] + [f"{k}={_short(v)}" for k, v in self.kwargs.items()]
        return f"{name}({','.join(parts)})"


def _short(value: Any) -> str:
    if isinstance(value, Arg):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}".replace(" ", "")
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(_short, value))}]"
    return str(value)


def _opsets(target: Any) -> list[int]:
    """Returns the default opset and, for each opset at which the translation changes, this opset and the one before."""
    changes = {entry.since for entry in registered_translations().get(target, ())} - {MINIMUM_NATIVE_OPSET}
    return sorted({DEFAULT_OPSET} | changes | {since - 1 for since in changes})


class _Call(torch.nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.target = case.target
        self.leaves, self.spec = pytree.tree_flatten((case.args, case.kwargs))

    def forward(self, *tensors: torch.Tensor) -> Any:
        rest = iter(tensors)
        leaves = [next(rest) if isinstance(leaf, Arg) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.target(*args, **kwargs)


@dataclass
class _Run:
    module: _Call
    inputs: list[Arg]
    tolerance: float | None
    programs: list[fx_onnx.ONNXProgram] = field(default_factory=list)

    def exports(self, opsets: Iterable[int], dynamic: bool) -> Iterator[fx_onnx.ONNXProgram]:
        tensors = tuple(each.make() for each in self.inputs)
        shapes = None
        if dynamic:
            shapes = (tuple({d: Dim.AUTO for d, n in enumerate(x.shape) if n > 1} for x in self.inputs),)
        captured = OneCapture(self.module, tensors, dynamic_shapes=shapes, optimize=False, verbose=False)
        for opset in opsets:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                program = captured.export(opset_version=opset)
            onnx.checker.check_model(program.model_proto, full_check=True)
            yield program

    def compare(self, program: fx_onnx.ONNXProgram, tensors: Sequence[torch.Tensor]) -> None:
        with torch.no_grad():
            want = self.module(*(t.clone() for t in tensors))
        want = pytree.tree_map_only(torch.Tensor, real_view, want)
        assert_close(program(*tensors), want, self.tolerance)

    def grown(self, program: fx_onnx.ONNXProgram) -> list[torch.Tensor]:
        """Returns inputs in which every symbol of the program's input dims is one larger than in the example."""
        sizes: dict[str, int] = {}
        for value, example in zip(program.model.graph.inputs, self.inputs, strict=True):
            # The shapes differ in rank for a complex input, which has an additional axis for its parts.
            for dim, size in zip(value.shape, example.shape, strict=False):
                if isinstance(dim, ir.SymbolicDim) and str(dim.value).isidentifier() and not example.fixed:
                    sizes[str(dim.value)] = size + 1
        pairs = list(zip(program.model.graph.inputs, self.inputs, strict=True))
        shapes = [[_size(d, sizes, n) for d, n in zip(v.shape, e.shape, strict=False)] for v, e in pairs]
        known = {
            f"{v.name}.shape[{axis}]": n
            for (v, _), shape in zip(pairs, shapes, strict=True)
            for axis, n in enumerate(shape)
        }
        if not all(each.holds(known) for each in program.dims.conditions if known.keys() >= set(each.dims)):
            shapes = [example.shape for _, example in pairs]  # other sizes are no inputs of the operator
        return [example.make(shape, seed=1) for (_, example), shape in zip(pairs, shapes, strict=True)]


def _size(dim: Any, sizes: dict[str, int], size: int) -> int:
    if isinstance(dim, int):
        return dim
    try:
        return int(sympy.sympify(str(dim.value), locals={k: sympy.Symbol(k) for k in sizes}).subs(sizes))
    except (TypeError, ValueError):
        return size


def check(case: Case) -> None:
    """Exports the case and compares it with torch.

    Raises:
        AssertionError: a value, shape, dtype or emitted operator differs.
    """
    module = _Call(case)
    run = _Run(module, [leaf for leaf in module.leaves if isinstance(leaf, Arg)], case.tolerance)
    examples = [each.make() for each in run.inputs]
    for opset, program in zip(case.opsets, run.exports(case.opsets, dynamic=False), strict=True):
        run.compare(program, examples)
        if case.emits is not None and opset == max(case.opsets):
            found = [node.op_type for node in program.model.graph]
            assert Counter(found) == Counter(case.emits), f"emits {found} instead of {list(case.emits)}"
    if case.dynamic and any(n > 1 for each in run.inputs for n in each.shape):
        (program,) = run.exports(case.opsets[-1:], dynamic=True)
        run.compare(program, examples)
        run.compare(program, run.grown(program))


def cases(entries: Iterable[Case]) -> pytest.MarkDecorator:
    """Returns a decorator that parametrizes a test over cases with readable names."""
    entries = list(entries)
    return pytest.mark.parametrize("case", entries, ids=[repr(entry) for entry in entries])


def with_input(target: object, *args: object, **kwargs: object) -> object:
    """Returns a function of one input that returns the input and the result of ``target``, which takes no tensor."""
    return lambda x: (x, target(*args, **kwargs))  # type: ignore[operator]
