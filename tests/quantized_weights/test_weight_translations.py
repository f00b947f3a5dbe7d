"""The ONNX forms of dequantized weights: equal numbers, and weights that keep their bits."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.quantized_weights.weight_operators import dequantize, stored

HALF, FLOAT, BFLOAT16 = torch.float16, torch.float32, torch.bfloat16
FLOAT8 = torch.float8_e4m3fn


def integers(low: int, high: int, *sizes: int) -> Tensor:
    return torch.randint(low, high + 1, sizes, dtype=torch.uint8 if low >= 0 else torch.int8)


def floats8(*sizes: int) -> Tensor:
    """Returns all kinds of codes of float8_e4m3fn, also subnormal numbers and NaN."""
    return torch.randint(0, 256, sizes, dtype=torch.uint8).view(FLOAT8)


class Case(NamedTuple):
    """A weight, and the dtype in which it is stored at opset 18, 21, 23 and 25."""

    data: Tensor
    scale: Tensor
    stored: tuple[str, str, str, str]
    zero: Tensor | None = None
    given: Mapping[str, Any] = MappingProxyType({})
    dtype: torch.dtype = FLOAT


def exponents(*sizes: int) -> Tensor:
    return integers(0, 254, *sizes)


_F8, _I4, _U4 = ("", *["FLOAT8E4M3FN"] * 3), ("INT8", *["INT4"] * 3), ("UINT8", *["UINT4"] * 3)
_I8, _U2 = ("INT8",) * 4, ("UINT8", "UINT4", "UINT4", "UINT2")
_FP4 = {"kind": "float4_e2m1", "bits": 4}


def cases() -> dict[str, Case]:
    return {
        "8-bit floats": Case(floats8(6, 32), torch.rand(()), _F8),
        "8-bit floats, rows": Case(floats8(6, 32), torch.rand(6, 1), _F8),
        "8-bit floats, blocks": Case(floats8(6, 32), torch.rand(6, 2), _F8, given={"blocks": [1, 16]}),
        "8-bit floats, blocks of both axes": Case(floats8(6, 32), torch.rand(2, 2), _F8, given={"blocks": [3, 16]}),
        "8-bit floats, a shorter block": Case(floats8(6, 33), torch.rand(6, 3), _F8, given={"blocks": [1, 16]}),
        "8-bit floats, wide blocks": Case(floats8(6, 32), torch.rand(6, 1), _F8, given={"blocks": [1, 128]}),
        "8-bit floats, exponents": Case(floats8(6, 32), exponents(6, 2), _F8, given={"blocks": [1, 16]}),
        "4 bits": Case(integers(-8, 7, 6, 32), torch.rand(6, 2), _I4, given={"blocks": [1, 16], "bits": 4}),
        "4 bits, zeros": Case(
            integers(-8, 7, 6, 32), torch.rand(6, 2), _I4, integers(-8, 7, 6, 2), {"blocks": [1, 16], "bits": 4}
        ),
        "4 bits, a shorter block": Case(
            integers(0, 15, 6, 33), torch.rand(6, 3), _U4, integers(0, 15, 6, 3), {"blocks": [1, 16], "bits": 4}
        ),
        "4 bits, zeros that are floats": Case(
            integers(0, 15, 6, 32), torch.rand(6, 2), _U4, torch.rand(6, 2) * 15, {"blocks": [1, 16], "bits": 4}
        ),
        "4 bits, zeros that are floats, a shorter block": Case(
            integers(0, 15, 6, 33), torch.rand(6, 3), _U4, torch.rand(6, 3) * 15, {"blocks": [1, 16], "bits": 4}
        ),
        "4 bits, offsets": Case(
            integers(0, 15, 6, 32), torch.rand(6, 2), _U4,
            given={"blocks": [1, 16], "bits": 4, "offset": torch.rand(6, 2)},
        ),
        "2 bits": Case(integers(0, 3, 6, 32), torch.rand(6, 1), _U2, given={"bits": 2}),
        "8 bits, rows": Case(integers(-128, 127, 6, 32), torch.rand(6, 1), _I8, integers(-128, 127, 6, 1)),
        "4-bit floats": Case(integers(0, 15, 6, 32), torch.rand(6, 2), _U4, given={"blocks": [1, 16], **_FP4}),
        "4-bit floats, exponents": Case(
            integers(0, 15, 6, 64), exponents(6, 2), _U4, given={"blocks": [1, 32], **_FP4}
        ),
        "4-bit floats of experts": Case(
            integers(0, 15, 3, 6, 64), exponents(3, 6, 2), _U4, given={"blocks": [1, 1, 32], **_FP4}
        ),
        "4-bit floats, scales of 8 bits": Case(
            integers(0, 15, 6, 32), torch.rand(6, 2).to(FLOAT8), ("", *_U4[1:]), given={"blocks": [1, 16], **_FP4}
        ),
        "a table, flat blocks": Case(
            integers(0, 15, 100), torch.rand(2), _U4,
            given={"blocks": [64], "kind": "table", "table": torch.randn(16), "bits": 4},
        ),
        "float16": Case(
            integers(-8, 7, 6, 32), torch.rand(6, 2).half(), _I4, None, {"blocks": [1, 16], "bits": 4}, HALF
        ),
        "float16 of float32": Case(floats8(6, 32), torch.rand(6, 1) * 1e-3, _F8, dtype=HALF),
        "float16 of exponents": Case(floats8(6, 32), integers(90, 130, 6, 1), _F8, dtype=HALF),
        "bfloat16": Case(floats8(6, 32), torch.rand(6, 1).bfloat16(), _F8, dtype=BFLOAT16),
    }  # fmt: skip


with torch.random.fork_rng(devices=[]):  # other files make random networks when they are imported
    torch.manual_seed(0)
    CASES = cases()


class Dequantizes(nn.Module):
    """Returns a weight and a part of it; the input makes no difference."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        given = {"data": case.data, "scale": case.scale, "zero": case.zero, "offset": case.given.get("offset")}
        for name, tensor in given.items():
            self.register_parameter(name, None if tensor is None else nn.Parameter(tensor, requires_grad=False))
        self.others = {name: value for name, value in case.given.items() if name != "offset"}

    def forward(self, x: Tensor) -> Tensor:
        weight = dequantize(self.data, self.scale, self.zero, offset=self.offset, dtype=self.case.dtype, **self.others)
        return weight.float() + x


@pytest.mark.parametrize("opset", [18, 21, 23, 25])
@pytest.mark.parametrize("name", CASES)
def test_a_weight_keeps_its_bits(name: str, opset: int) -> None:
    case = CASES[name]
    module, x = Dequantizes(case).eval(), torch.zeros(1)
    dtype = case.stored[[18, 21, 23, 25].index(opset)]
    if not dtype:  # the opset has no 8-bit floats
        with pytest.raises(fx_onnx.OnnxExporterError, match="from opset 19 on"):
            fx_onnx.export(module, (x,), opset_version=opset, verbose=False)
        return
    program = fx_onnx.export(module, (x,), opset_version=opset, verbose=False)
    torch.testing.assert_close(program(x)[0], module(x), rtol=0, atol=0, equal_nan=True)
    values = program.model.graph.initializers.values()
    weights = {value.dtype.name for value in values if value.const_value.size == case.data.numel()}
    assert weights == {dtype}


def test_a_packed_weight_is_unpacked_when_it_is_saved() -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("packed", torch.randint(0, 256, (512, 256), dtype=torch.uint8))
            self.register_buffer("scale", 2.0 ** torch.randint(-4, 1, (512, 1)))

        def forward(self, x: Tensor) -> Tensor:
            weight = dequantize(stored("nibbles", self.packed), self.scale, bits=4, dtype=x.dtype)
            return nn.functional.linear(x, weight)

    # Small integers and powers of two: each order of summation gives the same value.
    module, other, x = Packed().eval(), Packed(), torch.randint(-3, 4, (2, 512)).float()
    program = fx_onnx.export(module, (x,), opset_version=21, verbose=False)
    torch.testing.assert_close(program(x)[0], module(x), rtol=0, atol=0)
    assert sum(value.const_value.nbytes for value in program.model.graph.initializers.values()) < 1.05 * 512 * 256
    program.apply_weights(other.state_dict())
    torch.testing.assert_close(program(x)[0], other(x), rtol=0, atol=0)


def test_a_computed_tensor_is_no_packed_weight() -> None:
    class Unpacks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return stored("nibbles", x)

    with pytest.raises(fx_onnx.OnnxExporterError, match="must be a parameter or a buffer"):
        fx_onnx.export(Unpacks().eval(), (torch.zeros(2, dtype=torch.uint8),))
