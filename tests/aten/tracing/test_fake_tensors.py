"""Construction of fake tensors from dtypes and sizes."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fx_onnx.aten.tracing.fake_tensors import FakeTensorFactory, TensorSpec
from fx_onnx.sizes.symbolic_sizes import size_of

CPU = torch.device("cpu")


def _mode() -> FakeTensorMode:
    return FakeTensorMode(shape_env=ShapeEnv())


def test_a_tensor_of_a_spec() -> None:
    mode = _mode()
    made = FakeTensorFactory.of(mode).make(TensorSpec(torch.float16, (2, 3)), CPU)
    assert isinstance(made, FakeTensor) and made.fake_mode is mode
    assert (made.dtype, tuple(made.shape), made.stride(), made.device) == (torch.float16, (2, 3), (3, 1), CPU)


def test_each_call_makes_a_new_tensor() -> None:
    mode = _mode()
    fakes, spec = FakeTensorFactory.of(mode), TensorSpec(torch.bool, ())
    assert fakes.make(spec, CPU) is not fakes.make(spec, CPU)


def test_a_spec_has_the_expressions_of_symbolic_sizes() -> None:
    mode = _mode()
    fakes, x = FakeTensorFactory.of(mode), mode.from_tensor(torch.ones(5, 7))
    spec = fakes.spec(x)
    assert spec.sizes == (x.shape[0].node.expr, x.shape[1].node.expr)  # type: ignore[attr-defined]
    again = fakes.make(spec, CPU)
    assert again is not None and fakes.spec(again) == spec


def test_sums_and_products_of_sizes() -> None:
    mode = _mode()
    fakes, x = FakeTensorFactory.of(mode), mode.from_tensor(torch.ones(5, 7))
    m, n = fakes.spec(x).sizes
    made = fakes.make(TensorSpec(torch.int64, (m + n + 1, 2 * m * n)), CPU)
    assert made is not None
    assert [size_of(size) for size in made.shape] == [m + n + 1, 2 * m * n]
    assert not mode.shape_env.guards  # type: ignore[union-attr]


def test_other_expressions_need_their_number_first() -> None:
    mode = _mode()
    fakes, x = FakeTensorFactory.of(mode), mode.from_tensor(torch.ones(5, 7))
    half = x.shape[0] // 2
    spec = TensorSpec(torch.int64, (size_of(half),))
    assert fakes.make(spec, CPU) is None
    fakes.size(half)
    assert fakes.make(spec, CPU) is not None


def test_a_tensor_like_another_with_more_axes() -> None:
    mode = _mode()
    x = mode.from_tensor(torch.ones(5, 7, dtype=torch.complex64))
    made = FakeTensorFactory.of(mode).like(x, torch.float32, 2)
    assert made.dtype == torch.float32
    assert [size_of(size) for size in made.shape] == [*map(size_of, x.shape), 2]


def test_each_mode_has_one_factory() -> None:
    mode = _mode()
    fakes = FakeTensorFactory.of(mode)
    assert FakeTensorFactory.of(mode) is fakes and FakeTensorFactory.of(_mode()) is not fakes
