"""A model that treats size 0 or 1 differently gives one warning, or a static dim if the example has this size."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import fx_onnx
from fx_onnx.capture.capture import capture
from fx_onnx.capture.request import parse_request
from fx_onnx.core.errors import OnnxExporterWarning
from tests.capture.sample_modules import Function
from tests.compare import assert_close


def messages(module: nn.Module, x: Tensor, dim: object = "n") -> list[str]:
    """Returns the warnings of a capture with a dynamic axis 0."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", OnnxExporterWarning)
        capture(parse_request(module.eval(), (x,), dynamic_shapes=({0: dim},)))
    return [str(each.message) for each in caught if each.category is OnnxExporterWarning]


DIFFERENT = [
    (lambda x: x if x.shape[0] == 1 else x + 1, 1, "takes another branch"),
    (lambda x: x if x.shape[0] > 1 else x + 1, 1, "takes another branch"),
    (lambda x: x if x.size(0) > 1 else x + 1, 1, "takes another branch"),
    (lambda x: x if x.shape[0] in (1, 77) else x + 1, 1, "takes another branch"),
    (lambda x: x * (2 if x.shape[0] != 1 else 3), 1, "takes another branch"),
    (lambda x: x[1:] * 2 if x.shape[0] > 1 else x, 1, "takes another branch"),
    (lambda x: x if x.shape[0] else x.new_ones(2), 0, "takes another branch"),
    (lambda x: x if x.numel() == 0 else x.sum(), 0, "takes another branch"),
    (lambda x: x.squeeze(), 1, "removes the axis"),
    (lambda x: x.squeeze(0), 1, "removes the axis"),
    (lambda x: x[..., :1].squeeze((0, 1)), 1, "removes the axis"),
]


@pytest.mark.parametrize(
    ("function", "size", "cause", "dim"), [*((*each, "n") for each in DIFFERENT), (*DIFFERENT[0], Dim.AUTO)]
)
def test_a_different_result_is_reported(function: object, size: int, cause: str, dim: object) -> None:
    found = [message for message in messages(Function(function), torch.ones(4, 2), dim) if f"== {size}," in message]
    (message,) = found
    name = "n" if dim == "n" else "x.shape[0]"
    assert message.startswith(f"The exported model is wrong where {name} == {size}, because the code {cause} for this")


@pytest.mark.parametrize(("function", "size"), [each[:2] for each in (DIFFERENT[0], DIFFERENT[-4], DIFFERENT[-1])])
def test_an_example_of_this_size_is_right(function: object, size: int) -> None:
    x = torch.rand(size, 2)
    with pytest.warns(OnnxExporterWarning, match=f"Axis 0 .* is static with size {size}: "):
        program = fx_onnx.export(Function(function).eval(), (x,), dynamic_shapes=({0: "n"},))
    assert_close(program(x), function(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 1 if x.shape[0] > 1 else 1 + x,
        lambda x: x.sum(0) if x.shape[0] != 1 else x[0],
        lambda x: x if x.numel() == 0 else x * 1,
        lambda x: torch.cat([x, x]) if x.shape[0] > 0 else x,
        lambda x: x[..., None].squeeze(-1),
    ],
)
@pytest.mark.parametrize("size", [1, 3])
def test_equal_results_are_not_reported(function: object, size: int) -> None:
    assert messages(Function(function), torch.ones(size, 2)) == []


def test_a_size_for_which_the_model_fails_is_not_reported() -> None:
    def positive(x: Tensor) -> Tensor:
        if x.shape[0] < 2:
            raise ValueError("too short")
        return x + 1

    assert messages(Function(positive), torch.ones(3, 2)) == []


class Counting(nn.Module):
    """Writes a buffer and an attribute in each call, and branches on the batch size."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2))
        self.weight = nn.Parameter(torch.ones(2))
        self.calls, self.doubled = [], self.weight * 2

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 2) to (batch, 2)."""
        if x.shape[0] == 1:
            self.calls.append(1)
            self.total.add_(1)
        self.total.add_(1)
        return x * self.weight + self.total + self.doubled.detach()


def test_the_comparison_leaves_the_module_unchanged() -> None:
    module = Counting()
    assert len(messages(module, torch.ones(3, 2))) == 1
    assert module.total.tolist() == [0, 0]
    assert module.calls == []


def test_a_model_without_values_may_be_wrong() -> None:
    with torch.device("meta"):
        module = Counting()
    (message,) = messages(module, torch.ones(3, 2, device="meta"))
    assert "may be wrong where n == 1, because the code takes another branch for this size (" in message


@pytest.mark.parametrize("mask", [torch.ones(4, 2), torch.ones(4, 2).long(), torch.ones(4, 2).bool()])
def test_a_mask_of_ones_does_not_hide_a_difference(mask: Tensor) -> None:
    class Masked(nn.Module):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return x if x.shape[0] == 1 else x * mask

    with pytest.warns(OnnxExporterWarning, match="The exported model is wrong where n == 1, because the code takes"):
        capture(parse_request(Masked().eval(), (torch.ones(4, 2), mask), dynamic_shapes=({0: "n"}, {0: "n"})))


def test_a_mask_that_does_not_matter_is_not_reported() -> None:
    class Unmasked(nn.Module):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return x * mask if x.shape[0] == 1 else mask * x

    with warnings.catch_warnings():
        warnings.simplefilter("error", OnnxExporterWarning)
        mask = torch.ones(4, 2, dtype=torch.long)
        capture(parse_request(Unmasked().eval(), (torch.ones(4, 2), mask), dynamic_shapes=({0: "n"}, {0: "n"})))
