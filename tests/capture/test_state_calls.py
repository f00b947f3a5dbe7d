"""On which values that the forward changes the results of later calls depend, by calls."""

from __future__ import annotations

import logging
import warnings

import pytest
import torch
from torch import Tensor, nn

import fx_onnx

log = logging.getLogger(__name__)


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.table = None
        self.first = True
        self.scale = 1.0
        self.n = None
        self.cos = None
        self.register_buffer("buf", None)
        self.prev = None
        self.w = nn.Parameter(torch.ones(4))
        self.debug = False
        self.log = []
        self.bias = torch.nn.Parameter(torch.zeros(4))
        self.max = 0


class NoLazy(Base):
    def forward(self, x: Tensor) -> Tensor:
        if self.table is None:
            self.table = torch.arange(4.0)
        return x * self.table


class NoLazyLocal(Base):
    def forward(self, x: Tensor) -> Tensor:
        if self.table is None:
            t = torch.arange(4.0)
            t = t * 2
            self.table = t
        else:
            t = self.table
        return x * t


class NoEarly(Base):
    def get(self) -> Tensor:
        if self.table is not None:
            return self.table
        self.table = torch.arange(4.0)
        return self.table

    def forward(self, x: Tensor) -> Tensor:
        return x * self.get()


class NoFromWeight(Base):
    def forward(self, x: Tensor) -> Tensor:
        if self.table is None:
            self.table = self.w.exp()
        return x * self.table


class NoRotary(Base):
    def _set(self, n: int) -> None:
        self.n = n
        self.cos = torch.arange(n).float().cos()

    def forward(self, x: Tensor) -> Tensor:
        if self.n is None or x.shape[0] > self.n:
            self._set(x.shape[0])
        return x * self.cos[: x.shape[0], None]


class NoRotaryMax(Base):
    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        if n > self.max:
            self.max = n
            self.cos = torch.arange(n).float().cos()
        return x * self.cos[:n, None]


class NoBuf(Base):
    def forward(self, x: Tensor) -> Tensor:
        if self.buf is None or self.buf.shape[0] < x.shape[0]:
            self.buf = torch.ones(x.shape[0]).cumsum(0)
        return x * self.buf[: x.shape[0], None]


class NoLogCalls(Base):
    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls % 10 == 0:
            warnings.warn("x", stacklevel=2)
            log.info("calls %d", self.calls)
        return x * 2


class NoAttn(Base):
    def forward(self, x: Tensor) -> Tensor:
        self.prev = x.softmax(-1)
        return x * self.prev


class NoParent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([NoAttn(), NoAttn()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return (x, [layer.prev for layer in self.layers])


class NoDebug(Base):
    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.debug and self.calls > 3:
            return x * self.calls
        return x


class NoTraining(Base):
    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.training:
            return x * self.calls
        return x


class NoRepr(Base):
    def extra_repr(self) -> str:
        return str(self.calls)

    def reset(self) -> int:
        self.calls = 0
        return self.calls

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x


class NoLog(Base):
    def forward(self, x: Tensor) -> Tensor:
        self.log.append(x.shape)
        self.scale = x.shape[1]
        return x * self.scale


class YesFirst(Base):
    def forward(self, x: Tensor) -> Tensor:
        if self.first:
            self.first = False
            x = x * 2
        return x


class YesFirstReturn(Base):
    def forward(self, x: Tensor) -> Tensor:
        if self.prev is None:
            self.prev = torch.zeros(4)
            return x
        return x + self.prev + 1


class YesActNorm(Base):
    def init(self, x: Tensor) -> None:
        self.bias.data.copy_(x.mean(0))
        self.first = False

    def forward(self, x: Tensor) -> Tensor:
        if self.first:
            self.init(x)
        return x + self.bias


class YesBefore(Base):
    def forward(self, x: Tensor) -> Tensor:
        y = x * self.scale
        self.scale = 2.0
        return y


class YesData(Base):
    def forward(self, x: Tensor) -> Tensor:
        if self.prev is None:
            self.prev = x.sum()
        return x * self.prev


class YesSize(Base):
    def forward(self, x: Tensor) -> Tensor:
        if self.n is None:
            self.n = x.shape[0]
        return x * self.n


class YesRandom(Base):
    def forward(self, x: Tensor) -> Tensor:
        if self.prev is None:
            self.prev = torch.rand(4)
        return x * self.prev


class YesProp(Base):
    @property
    def s(self) -> int:
        return self.calls * 2

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.s


class YesGetattr(Base):
    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        k = "calls"
        return x * getattr(self, k)


def helper(m: YesHelper, x: Tensor) -> Tensor:
    return x * m.calls


class YesHelper(Base):
    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return helper(self, x)


class YesGuardAttr(Base):
    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls > 3:
            self.scale = 2.0
        return x * self.scale


class YesRecur(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = NoAttn()
        self.cell.prev = torch.zeros(4)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.cell.prev
        return self.cell(x)


class NoCond(Base):
    """Branches on a size that is static in the program, so that each call takes the same branch."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] == 4:
            self.prev = x * 2
        else:
            self.prev2 = 1
        return x * 1 if self.prev is None else self.prev


class YesBufData(Base):
    def forward(self, x: Tensor) -> Tensor:
        if self.buf is None:
            self.buf = x * 2
        return x + self.buf


class YesHook(Base):
    def __init__(self) -> None:
        super().__init__()
        self.register_forward_pre_hook(lambda m, a: (a[0] * m.calls,))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x


class Kind(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kind = "sparse"

    def set_kind(self, kind: str) -> None:
        self.kind = kind


class YesLazyInPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sum: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.sum is None:
            self.sum = torch.zeros(4)
        self.sum.add_(x.sum(0))
        return self.sum * 1


class NoLazyInPlace(YesLazyInPlace):
    def forward(self, x: Tensor) -> Tensor:
        if self.sum is None:
            self.sum = torch.zeros(4)
        self.sum.copy_(x.sum(0))
        return self.sum * 1


class NoKind(Kind):
    """Modules have a setter of one name, as in BigBird."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Kind()

    def set_kind(self, kind: str) -> None:
        self.kind = kind
        self.inner.set_kind(kind)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind != "full" and x.shape[0] < 9:
            self.set_kind("full")
        return x * 2 if self.inner.kind == "full" else x * 3


def findings(model: type[nn.Module]) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fx_onnx.OnnxExporterWarning)
        program = fx_onnx.export(nn.Sequential(model()).eval(), (torch.ones(3, 4),), dynamic_shapes=({0: "n"},))
    return [str(finding.place) for finding in program.findings if finding.id == "FX1117"]


@pytest.mark.parametrize(
    "model",
    [
        NoLazy,
        NoLazyLocal,
        NoEarly,
        NoFromWeight,
        NoRotary,
        NoRotaryMax,
        NoBuf,
        NoLogCalls,
        NoAttn,
        NoParent,
        NoDebug,
        NoTraining,
        NoRepr,
        NoLog,
        NoCond,
        NoLazyInPlace,
    ],
)
def test_a_value_that_no_later_call_reads(model: type[nn.Module]) -> None:
    assert findings(model) == []


@pytest.mark.parametrize(
    "model",
    [
        YesFirst,
        YesFirstReturn,
        YesActNorm,
        YesBefore,
        YesData,
        YesSize,
        YesRandom,
        YesProp,
        YesGetattr,
        YesHelper,
        YesGuardAttr,
        YesRecur,
        YesBufData,
        YesHook,
        YesLazyInPlace,
    ],
)
def test_a_value_that_a_later_call_may_read(model: type[nn.Module]) -> None:
    assert all(place.startswith(f"{__file__}:") for place in findings(model)) and findings(model)


def test_a_setter_that_calls_setters_of_its_name(caplog: pytest.LogCaptureFixture) -> None:
    """Its code is read without end otherwise, and strict mode repeats the capture."""
    with caplog.at_level(logging.DEBUG, "fx_onnx.stages"):
        assert findings(NoKind) == []
    assert "strict=True" not in caplog.text
