"""Shape rules: the specs equal those that torch finds by running the operators on fake tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from fx_onnx.aten.tracing.fake_tensors import TensorSpec
from fx_onnx.aten.tracing.shape_rules import find_rule, infer_spec
from fx_onnx.sizes.symbolic_sizes import size_of

aten = torch.ops.aten

X, Y = torch.ones(5, 7), torch.ones(2, 5, 7)
INTS, BOOLS, NUMBER = torch.ones(5, 7, dtype=torch.int32), torch.ones(7, dtype=torch.bool), torch.tensor(3)
PAIRS = torch.ones(2, 5, 7, dtype=torch.complex64)
INDEX, PLACES = torch.tensor([0, 1, 1]), torch.zeros(2, 7, dtype=torch.int64)

# Cases that a rule decides both for static and for symbolic sizes.
ANY_SIZE: list[tuple[Any, ...]] = [
    (aten.add.Tensor, X, Y), (aten.eq.Tensor, Y, X), (aten.atan2.default, X, Y), (aten.div.Tensor, INTS, NUMBER),
    (aten.mul.Tensor, X, INTS), (aten.mul.Tensor, INTS, BOOLS), (aten.mul.Tensor, BOOLS, NUMBER),
    (aten.add.Scalar, INTS, 2.5), (aten.mul.Scalar, X, 2), (aten.bitwise_and.Tensor, INTS, BOOLS),
    (aten.sqrt.default, INTS), (aten.abs.default, PAIRS), (aten.where.self, BOOLS, X, Y),
    (aten.where.ScalarOther, BOOLS, INTS, 1.0), (aten.where.ScalarSelf, BOOLS, 1, X),
    (aten.where.Scalar, BOOLS, 1, 0.5), (aten.__or__.Tensor, BOOLS, BOOLS), (aten.complex.default, X, Y),
    (aten.clamp.default, X, 0, 1), (aten.masked_fill.Scalar, X, BOOLS, 2.0), (aten.clone.default, X),
    (aten.tril.default, Y), (aten.triu.default, Y, 1), (aten.roll.default, X, [1], [0]), (aten.flip.default, X, [0]),
    (aten.cumsum.default, INTS, 0), (aten.cumprod.default, X, 1), (aten.zeros_like.default, INTS),
    (aten.ones_like.default, X), (aten.full_like.default, INTS, 2), (aten.empty_like.default, PAIRS),
    (aten._softmax.default, X, 1, False), (aten._log_softmax.default, X, 1, False), (aten.to.dtype, X, torch.float16),
    (aten._to_copy.default, X), (aten.real.default, PAIRS), (aten.imag.default, PAIRS), (aten.conj.default, X),
    (aten.resolve_conj.default, X), (aten.alias.default, X), (aten.new_zeros.default, INTS, [3, 4]),
    (aten.new_full.default, INTS, [2], 1.5), (aten.unsqueeze.default, X, 0), (aten.unsqueeze.default, X, -1),
    (aten.unsqueeze.default, NUMBER, 0), (aten.index_select.default, X, 0, INDEX),
    (aten.index_select.default, Y, -1, NUMBER), (aten.slice.Tensor, X, 1), (aten.slice.Tensor, X, 0, 0, 2**63 - 1),
    (aten.expand.default, X, [3, -1, -1]), (aten.expand.default, NUMBER, [2, 2]), (aten.mT.default, Y),
    (aten.mH.default, PAIRS), (aten.adjoint.default, X), (aten.transpose.int, Y, 0, -1),
    (aten.permute.default, Y, [2, 0, -2]), (aten.flatten.using_ints, Y, 1, 2), (aten.flatten.using_ints, Y),
    (aten.reshape.default, Y, [-1]), (aten.reshape.default, Y, [1, -1, 1]), (aten.view.default, X, [5 * 7]),
    (aten.pad.default, Y, [0, 0]), (aten.stack.default, [X, X, X], 1), (aten.stack.default, [X, INTS], -1),
    (aten.cat.default, [X, INTS], 0), (aten.cat.default, [Y, Y, Y], -1), (aten.sum.dim_IntList, INTS, [0]),
    (aten.sum.dim_IntList, X, None, True), (aten.mean.dim, Y, [0, -1], True), (aten.amax.default, Y, [1]),
    (aten.amin.default, X), (aten.prod.dim_int, INTS, 0), (aten.any.dim, BOOLS, 0), (aten.all.dim, X, 1, True),
    (aten.argmax.default, X), (aten.argmax.default, X, 1, True), (aten.argmin.default, X, 0),
    (aten.linalg_vector_norm.default, X, 2, [0]), (aten.sum.default, INTS), (aten.any.default, X),
    (aten.max.default, X), (aten.matmul.default, X, Y.mT), (aten.mm.default, X, X.t()), (aten.bmm.default, Y, Y.mT),
]  # fmt: skip

# Cases that a rule decides for static sizes only, or that create a tensor.
STATIC_ONLY: list[tuple[Any, ...]] = [
    (aten.full.default, [2, 3], 1), (aten.full.default, [], 1.5), (aten.zeros.default, [4]),
    (aten.ones.default, [2, 0]), (aten.rand.default, [2]), (aten.eye.default, 3), (aten.eye.m, 3, 4),
    (aten.arange.default, 5), (aten.arange.start, 2, 9), (aten.arange.start_step, 9, 0, -2),
    (aten.arange.start_step, 0, 9, 4), (aten.arange.default, 0), (aten.squeeze.dim, torch.ones(2, 1), -1),
    (aten.squeeze.dims, torch.ones(1, 2, 1), [0, -1]), (aten.select.int, X, -1, 3),
    (aten.gather.default, X, 0, PLACES[:1]), (aten.gather.default, X, 0, PLACES.expand(2, 7)),
    (aten.slice.Tensor, X, 1, 1, 6, 2), (aten.slice.Tensor, X, 0, -2), (aten.slice.Tensor, X, 0, 3, 99),
    (aten.narrow.default, X, 1, 2, 3), (aten.diagonal.default, Y, 1, -2, -1), (aten.diagonal.default, X, -2),
    (aten.diagonal.default, X, 9), (aten.reshape.default, Y, [7, -1]), (aten.reshape.default, Y, [2, -1, 5]),
    (aten.pad.default, X, [1, 2, -1, 0]), (aten.constant_pad_nd.default, X, [1, 1], 0.5),
]  # fmt: skip


def _arguments(case: tuple[Any, ...], mode: FakeTensorMode, symbolic: bool) -> tuple[list[Any], list[Any]]:
    """Returns the arguments of a case with fake tensors, and with specs."""
    fakes = pytree.tree_map_only(Tensor, lambda x: mode.from_tensor(x, static_shapes=not symbolic), list(case[1:]))
    return fakes, pytree.tree_map_only(Tensor, _spec, fakes)


def _spec(value: Tensor) -> TensorSpec:
    return TensorSpec(value.dtype, tuple(map(size_of, value.shape)))


def _named(case: tuple[Any, ...]) -> str:
    return f"{case[0]}{[tuple(x.shape) if isinstance(x, Tensor) else x for x in case[1:]]}".removeprefix("aten.")


def _check(case: tuple[Any, ...], symbolic: bool) -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    mode.cache_enabled = False  # the cache would return the sizes of another test
    fakes, specs = _arguments(case, mode, symbolic)
    found = infer_spec(case[0], specs, {}, mode)
    assert found is not None
    with mode, enable_python_dispatcher():  # the tracer enables it; without it torch specializes some sizes
        assert found == _spec(case[0](*fakes))


@pytest.mark.parametrize("case", [*ANY_SIZE, *STATIC_ONLY], ids=_named)
def test_static_sizes(case: tuple[Any, ...]) -> None:
    _check(case, symbolic=False)


@pytest.mark.parametrize("case", [case for case in ANY_SIZE if case[0] is not aten.view.default], ids=_named)
def test_symbolic_sizes(case: tuple[Any, ...]) -> None:
    _check(case, symbolic=True)


S = torch.ones(4, 6)

# Cases in which the rule declines or there is none: the values of the symbols decide, or an argument is not a tensor.
UNDECIDED: list[tuple[Any, ...]] = [
    (aten.reshape.default, S, [2, -1]), (aten.add.Tensor, S, torch.ones(3, 6)),
    (aten.matmul.default, S, torch.ones(5, 6)), (aten.select.int, S, 0, 1), (aten.slice.Tensor, S, 0, 1),
    (aten.slice.Tensor, S, 0, 0, 2), (aten.squeeze.dim, S, 0), (aten.diagonal.default, S),
    (aten.expand.default, S, [4, 6]), (aten.reshape.default, S, [5, -1]), (aten.cat.default, [S, torch.ones(4, 5)], 0),
    (aten.stack.default, [S, torch.ones(4, 5)]), (aten.gather.default, S, 0, torch.zeros(2, 3, dtype=torch.int64)),
    (aten._to_copy.default, 2), (aten.nonzero.default, S), (aten.max.dim, S, 0),
    (aten.matmul.default, S, torch.ones(3)),
]  # fmt: skip


@pytest.mark.parametrize("case", UNDECIDED, ids=_named)
def test_undecided_cases_are_declined(case: tuple[Any, ...]) -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    _, specs = _arguments(case, mode, True)
    assert infer_spec(case[0], specs, {}, mode) is None


def test_rules_add_no_guards() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    for case in (*ANY_SIZE, *UNDECIDED):
        _, specs = _arguments(case, mode, True)
        infer_spec(case[0], specs, {}, mode)
    assert not mode.shape_env.guards  # type: ignore[union-attr]


def test_a_range_up_to_a_size_has_that_size() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    m, n = map(size_of, mode.from_tensor(torch.ones(5, 7)).shape)
    assert infer_spec(aten.arange.default, [m], {}, mode) == TensorSpec(torch.int64, (m,))
    assert infer_spec(aten.arange.default, [m - n], {}, mode) is None  # type: ignore[operator]
    assert infer_spec(aten.eye.m, [m, n], {"dtype": torch.bool}, mode) == TensorSpec(torch.bool, (m, n))


def test_keyword_arguments_decide_dtypes() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    spec = _spec(INTS)
    assert infer_spec(aten.sum.dim_IntList, [spec, [0]], {"dtype": torch.float64}, mode) == TensorSpec(
        torch.float64, (7,)
    )
    assert infer_spec(aten.div.Tensor_mode, [spec, spec], {"rounding_mode": "floor"}, mode) == spec


def test_operators_that_write_or_alias_have_no_rule() -> None:
    assert all(find_rule(target) is None for target in (aten.add_.Tensor, aten.conj_physical.default, aten.add.out))
