"""Names of dims that are expressions or other text, as dynamic_axes allows them."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import sympy
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx import OnnxExporterWarning
from fx_onnx.requests.dim_expressions import DefinedDim, dim_expression
from tests.compare import assert_close

PAST, NEW = sympy.symbols("s1 s2", integer=True)
SIZES = {"past": PAST, "new": NEW}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("past + new", PAST + NEW), ("past+1", PAST + 1), (" 2 * (past - new) ", 2 * (PAST - NEW)),
        ("past // 2", PAST // 2), ("past", None), ("5", None), ("past + other", None), ("batch-size", None),
        ("batch size", None), ("past // 0", None), ("past ** 2", None), ("past / 2", None), ("f(past) + 1", None),
        ("past.x + 1", None), ("past + 1.5", None), ("(", None), ("", None), ("1+" * 500 + "past", None),
    ],
)  # fmt: skip
def test_what_is_an_expression(text: str, expected: Any) -> None:
    assert dim_expression(text, SIZES) == expected


class Decoder(nn.Module):
    """The lengths of a decoder with a cache: the mask is as long as the cache and the new tokens."""

    def forward(self, x: Tensor, past: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        present = torch.cat([past, x], 1)
        return x * 2, present * mask[:, :, None]


class Apart(nn.Module):
    def forward(self, x: Tensor, past: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, torch.cat([past, past], 1) * mask.sum()


def export(model: nn.Module, mask: str, present: str | None = None, new: int = 2, dynamic_new: bool = True) -> Any:
    args = torch.randn(2, new, 4), torch.randn(2, 3, 4), torch.ones(2, 3 + new)
    axes: dict[str, dict[int, str]] = {
        "x": {0: "batch", 1: "new"} if dynamic_new else {0: "batch"},
        "past": {0: "batch", 1: "past"},
        "mask": {0: "batch", 1: mask},
    }
    if present is not None:
        axes["present"] = {0: "batch", 1: present}
    names = {"input_names": ["x", "past", "mask"], "output_names": ["y", "present"]}
    return fx_onnx.export(model.eval(), args, dynamic_axes=axes, **names)  # type: ignore[arg-type]


def dims(program: Any) -> list[str]:
    return [str(value.shape[1]) for value in (*program.model.graph.inputs, *program.model.graph.outputs)]


@pytest.fixture
def without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", OnnxExporterWarning)
        yield


@pytest.mark.usefixtures("without_warnings")
@pytest.mark.parametrize("text", ["past + new", "new+past"])
def test_an_expression_that_the_model_proves_is_the_name(text: str) -> None:
    program = export(Decoder(), text, text)
    assert dims(program) == ["new", "past", text, "new", text]
    x, past, mask = torch.randn(3, 5, 4), torch.randn(3, 1, 4), torch.ones(3, 6)
    assert_close(program(x, past, mask)[1], Decoder()(x, past, mask)[1])


@pytest.mark.usefixtures("without_warnings")
def test_a_number_may_be_part_of_it() -> None:
    program = export(Decoder(), "past + 1", "past + 1", new=1, dynamic_new=False)
    assert dims(program)[1:] == ["past", "past + 1", "1", "past + 1"]


def test_an_expression_that_the_model_contradicts_is_dropped_with_a_warning() -> None:
    with pytest.warns(OnnxExporterWarning, match=r"mask.shape\[1\] is 'new \+ past', not 'past \+ 1' as the call"):
        program = export(Decoder(), "past + 1")
    assert sorted(dims(program)[2].split("+")) == ["new", "past"]


def test_an_output_that_the_model_contradicts_keeps_its_own_name() -> None:
    with pytest.warns(OnnxExporterWarning, match=r"present.shape\[1\] is 'new\+past', not 'past \+ 1' as dynamic_axes"):
        program = export(Decoder(), "new+past", "past + 1")
    assert dims(program)[2:] == ["new+past", "new", "new+past"]


@pytest.mark.usefixtures("without_warnings")
@pytest.mark.parametrize("text", ["past + new", "total-length", "total length", "any text: ("])
def test_any_text_names_a_dim_that_the_model_relates_to_no_other(text: str) -> None:
    assert dims(export(Apart(), text)) == ["new", "past", text, "new", "2*past"]


@pytest.mark.usefixtures("without_warnings")
def test_an_output_gets_an_expression_that_is_right_although_an_unrelated_input_has_it_too() -> None:
    class Unrelated(nn.Module):
        def forward(self, x: Tensor, past: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
            return x * 2, torch.cat([past, x], 1) * mask.sum()

    assert dims(export(Unrelated(), "past + new", "past + new"))[2:] == ["past + new", "new", "past + new"]


def test_a_warning_does_not_use_text_that_is_no_word() -> None:
    class AtLeast(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[:, :1] if x.shape[0] > 5 else x[:, :2]

    with pytest.warns(OnnxExporterWarning, match=r"correct only where x.shape\[0\] >= 6"):
        fx_onnx.export(AtLeast().eval(), (torch.randn(8, 4),), dynamic_axes={"x": {0: "past + 1"}})


@pytest.mark.usefixtures("without_warnings")
def test_text_is_one_operand_in_the_expressions_of_the_model() -> None:
    class Twice(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([x, x, x[:1]])

    program = fx_onnx.export(Twice().eval(), (torch.randn(3, 4),), dynamic_axes={"x": {0: "past + 1"}})
    assert str(program.model.graph.outputs[0].shape[0]) == "2*(past + 1)+1"


def test_one_text_for_dims_of_different_sizes_becomes_a_word() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return x * 2, y * 2

    args = torch.randn(3, 4), torch.randn(5, 4)
    with pytest.warns(OnnxExporterWarning, match=r"y.shape\[0\], of size 5, is called 'a_b'"):
        program = fx_onnx.export(Two().eval(), args, dynamic_axes={"x": {0: "a + b"}, "y": {0: "a + b"}})
    assert [str(value.shape[0]) for value in program.model.graph.inputs] == ["a + b", "a_b"]


def test_a_condition_that_follows_from_a_definition_is_no_finding() -> None:
    class Mask(nn.Module):
        def forward(self, past: Tensor, new: Tensor, mask: Tensor) -> Tensor:
            both = torch.cat([past, new])
            return both * mask[: len(both)] if len(both) <= len(mask) else both

    def findings(name: str) -> list[str]:
        args = (torch.ones(4), torch.ones(3), torch.ones(7))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shapes = ({0: "past"}, {0: "new"}, {0: name})
            return [each.id for each in fx_onnx.export(Mask().eval(), args, dynamic_shapes=shapes).findings]

    assert findings("total") == ["FX1202"]
    assert findings(copy.deepcopy(DefinedDim("total", "past + new"))) == []
    assert findings(DefinedDim("total", "past + new - 1")) == ["FX1202"]
