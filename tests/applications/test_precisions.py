"""The precisions: what is changed, what is kept, and the results of the export."""

from contextvars import ContextVar
from typing import Any

import pytest
import torch
from torch import nn

import fx_onnx
from fx_onnx.applications.layouts import PRECISIONS
from fx_onnx.applications.precisions import convert, quantizes
from fx_onnx.messages.errors import ArgumentError


class Net(nn.Module):
    """Two layers; ``factor`` makes the sum of squares between them too large for float16."""

    def __init__(self, factor: float = 1.0, sizes: tuple[int, ...] = (64, 96, 64)) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(*sizes[:2]), Squares(factor), nn.Linear(*sizes[1:])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, 64) to (batch, 64)."""
        return self.last(self.norm(self.first(x)))


class Squares(nn.Module):
    """Divides by the root of the sum of squares of large numbers."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Keeps the shape."""
        y = x * self.factor
        return y / (y * y).sum(-1, keepdim=True).sqrt()


class Limited(nn.Module):
    """Limits float16 values that are not all finite, as the layers of BART do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Keeps the shape."""
        y = self.layer(x)
        if y.dtype == torch.float16 and not torch.isfinite(y).all():
            y = torch.clamp(y, min=-64504, max=64504)
        return y


class Shared(nn.Module):
    """Reads the weight of a layer itself, as WavLM does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Keeps the shape."""
        return self.last(x @ torch.cat([self.first.weight, self.first.weight])[:64])


def kwargs() -> dict[str, Any]:
    return {"x": torch.randn(3, 64, generator=torch.Generator().manual_seed(1))}


@pytest.mark.parametrize(
    ("precision", "farthest", "dtypes"),
    [
        ("fp32", 0, {"FLOAT"}),
        ("fp16", 5e-3, {"FLOAT16"}),
        ("int8", 5e-2, {"INT8"}),
        ("q4", 0.3, {"INT4"}),
        ("q4f16", 0.3, {"INT4", "FLOAT16"}),
    ],
)
def test_exported(precision: str, farthest: float, dtypes: set[str]) -> None:
    """The inputs and outputs stay float32, the weights have the bits, and the module itself does not change."""
    if PRECISIONS[precision].config:
        pytest.importorskip("torchao")
    model = Net().eval()
    expected = model(**kwargs())
    found = convert(model, kwargs(), precision)
    assert found.kept == () and found.distance <= farthest
    program = fx_onnx.export(
        found.module,
        kwargs=kwargs(),
        dynamic_shapes={"x": {0: "batch"}},
        opset_version=PRECISIONS[precision].opset_version,
    )
    assert program.verify(rtol=found.rtol).ok
    (result,) = program(**kwargs())
    assert result.dtype == torch.float32 and (result - expected).abs().max() <= (farthest + 2e-3) * expected.abs().max()
    assert dtypes <= {weight.dtype.name for weight in program.model.graph.initializers.values()}
    assert torch.equal(model(**kwargs()), expected)


def test_overflow() -> None:
    """Only the module that overflows keeps float32."""
    found = convert(Net(factor=1e3).eval(), kwargs(), "fp16")
    assert found.kept == ("norm",) and found.distance < 5e-3
    assert found.module.first.weight.dtype == found.module.last.weight.dtype == torch.float16


@pytest.mark.parametrize("factor", [1.0, 1e3])
def test_a_buffer_of_float32_does_not_keep_the_layers_after_it(factor: float) -> None:
    """Nor do positions that the model adds itself. A module that overflows there still keeps float32."""

    class Positions(Net):
        def __init__(self) -> None:
            super().__init__(factor)
            self.register_buffer("positions", torch.rand(64, generator=torch.Generator().manual_seed(2)), False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x + self.positions)

    model = nn.Sequential(Positions(), nn.Linear(64, 64)).eval()
    found = convert(model, {"input": kwargs()["x"]}, "fp16")
    assert found.kept == (("0.norm",) if factor > 1 else ()) and found.distance < 5e-3
    assert found.module[0].first.weight.dtype == torch.float16 and found.module[0].positions.dtype == torch.float32
    assert fx_onnx.export(found.module, kwargs={"input": kwargs()["x"]}).verify(rtol=found.rtol).ok


def test_kept_weights() -> None:
    """A result that float16 cannot hold keeps the module around it, and not a layer that shares a weight with it."""
    model = nn.Sequential(Net(sizes=(64, 64, 64)), nn.Linear(64, 64)).eval()
    model[1].weight = model[0].first.weight
    model[0].first.bias.data.fill_(1e5)
    found = convert(model, {"input": kwargs()["x"]}, "fp16")
    assert found.kept == ("0",) and found.distance < 5e-3
    assert found.module[0].first.weight.dtype == torch.float32 and found.module[1].weight.dtype == torch.float16


def test_other_rows() -> None:
    """A layer whose rows are no multiple of a block is named; a module without any other layer does not change."""
    pytest.importorskip("torchao")
    assert convert(Net(sizes=(64, 40, 64)).eval(), kwargs(), "q4").kept == ("last",)
    other = nn.Sequential(nn.Linear(40, 8)).eval()
    assert not quantizes(other, "q4") and quantizes(other, "int8") and not quantizes(other, "fp16")
    found = convert(other, {"input": torch.randn(2, 40)}, "q4")
    assert found.kept == ("0",) and found.distance == 0
    assert convert(Net(sizes=(64, 1, 64)).eval(), kwargs(), "int8").kept == ("last",)


def test_largest_negative_number() -> None:
    """In int8, the largest number of a row has one integer, although the last bits of the row change."""
    pytest.importorskip("torchao")
    rows = -torch.rand(200, 8, generator=torch.Generator().manual_seed(0))
    module = convert(nn.Sequential(nn.Linear(8, 8)).eval(), {"input": rows}, "int8").module
    changed = rows * (1 + 1e-7 * torch.randn(200, 8, generator=torch.Generator().manual_seed(1)))
    torch.testing.assert_close(module(input=changed), module(input=rows), rtol=1e-5, atol=1e-6)


def test_collectors_of_a_model() -> None:
    """What a model collects during its call does not have the results of the comparison."""
    collected: ContextVar[list[Any] | None] = ContextVar("collected", default=None)

    class Collecting(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            collected.set(found := [])
            super().forward(x)
            return torch.stack(found)

    def collect(*call: Any) -> None:
        if (found := collected.get()) is not None:
            found.append(call[-1])

    model = Collecting().eval()
    model.norm.register_forward_hook(collect)
    assert convert(model, kwargs(), "fp16").distance < 5e-3


def test_not_finite() -> None:
    """A model whose own code overflows is refused."""

    class Large(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * 1e6 * 1e-6

    with pytest.raises(ArgumentError, match="not finite; choose fp32"):
        convert(Large().eval(), kwargs(), "fp16")


def test_a_limit_of_float16_is_in_the_graph() -> None:
    found = convert(Limited().eval(), kwargs(), "fp16")
    program = fx_onnx.export(found.module, kwargs=kwargs())
    program.verify(rtol=1e-2).check()
    assert "Clip" in {node.op_type for node in program.model.graph} and not found.kept
    assert found.module(x=torch.full((1, 64), 6e4)).abs().max() <= torch.tensor(64504, dtype=torch.float16)


def test_a_layer_that_is_not_called_keeps_its_weight() -> None:
    pytest.importorskip("torchao")
    found = convert(Shared().eval(), kwargs(), "int8")
    assert found.kept == ("first",) and type(found.module.get_submodule("last").weight) is not nn.Parameter


def test_the_distance_of_a_module_that_draws_random_numbers_is_of_the_same_numbers() -> None:
    net = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5)).train()
    assert convert(net, {"input": torch.randn(2, 64)}, "int8").distance < 0.05
