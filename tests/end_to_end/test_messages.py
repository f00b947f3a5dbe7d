"""The messages of exports that warn or fail are about the user's model: no notation of torch, no line of torch.

The models are typical mistakes and models whose sizes are restricted. Each prints nothing but its one message.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import fx_onnx
from fx_onnx.messages.errors import OnnxExporterError
from tests.capture.sample_modules import Function

NOTATION_OF_TORCH = re.compile(
    r"\b(?:s|u|zf|zuf)\d+\b"  # symbols
    r"|int_oo|VR\[|2147483648|9223372036854775807|<= 214748"  # bounds
    r"|TruncToInt|FloorToInt|ToFloat|FloorDiv|IntTrueDiv|\bMod\(|\b(?:Eq|Ne|Ge|Le)\("  # functions
    r"|L\[|unhinted|Size-like|TORCH_LOGS|TORCHDYNAMO|docs\.google"  # explanations
    r"|torch/(?!nn/modules)[a-z_/]+\.py|fx_onnx/(?!tests/)[a-z_/]+\.py"  # lines of torch and of this package
)

X = torch.linspace(0, 1, 64).reshape(4, 16)


class Positions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.zeros(16, 16))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.p


def halves(x: Tensor) -> Tensor:
    first, second = x.split(x.shape[1] // 2, dim=1)
    return first + second


def nonzero(x: Tensor) -> Any:
    found = x.nonzero()
    return (found * 2,) if found.shape[0] > 3 else found


def loop(x: Tensor) -> Tensor:
    for _ in range(int(x.sum())):
        x = x + 1
    return x


def float_branch(x: Tensor, scale: float) -> Any:
    return (x * scale,) if scale > 0.5 else x


CASES: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "wrong width": (nn.Sequential(nn.Linear(8, 4)), (X,), {}),
    "branch on data": (Function(lambda x: (x,) if x.sum() > 0 else x), (X,), {}),
    "branch on a length": (Function(nonzero), (X,), {}),
    "loop on data": (Function(loop), (X,), {}),
    "static": (Positions(), (torch.zeros(16, 16),), {"dynamic_shapes": ({0: "rows"},)}),
    "static Dim": (Positions(), (torch.zeros(16, 16),), {"dynamic_shapes": ({0: Dim("rows")},)}),
    "static by range": (
        Positions(),
        (torch.zeros(16, 16),),
        {"dynamic_shapes": ({0: Dim.DYNAMIC(min=4, max=512)},)},  # type: ignore[operator]
    ),
    "two dims equal": (
        Function(lambda x, y: x + y),
        (X, X),
        {"dynamic_shapes": ({0: "a", 1: "c"}, {0: "b", 1: "d"})},
    ),
    "one dim in terms of another": (
        Function(lambda x, y: torch.cat([x, x]) + y),
        (X, torch.zeros(8, 16)),
        {"dynamic_shapes": ({0: "a"}, {0: "b"})},
    ),
    "half of a size": (
        Function(lambda x: x.rot90(x.shape[1] // 2)),
        (X,),
        {"dynamic_shapes": ({1: "width"},)},
    ),
    "branch on a size": (Function(lambda x: x if x.shape[0] > 3 else -x), (X,), {"dynamic_shapes": ({0: "rows"},)}),
    "branch on size 1": (Function(lambda x: x if x.shape[0] == 1 else -x), (X,), {"dynamic_shapes": ({0: "rows"},)}),
    "part of a size": (
        Function(lambda x: x[: int(0.7 * x.shape[0])] * len(range(int(0.7 * x.shape[0])))),
        (X,),
        {"dynamic_shapes": ({0: "rows"},)},
    ),
    "squeezed": (Function(lambda x: x[:, :4].squeeze(0)), (X,), {"dynamic_shapes": ({0: "rows"},)}),
    "dynamic float": (Function(float_branch), (X, 0.7), {"dynamic_shapes": (None, Dim.DYNAMIC)}),
    "unknown output": (Function(lambda x: object()), (X,), {}),
    "two devices": (nn.Linear(16, 4), (X.to("meta"),), {}),
    "missing argument": (Function(lambda x, y: x + y), (X,), {}),
    "wrong name": (nn.Linear(16, 4), (X,), {"input_names": ["x"], "dynamic_axes": {"inptu": {0: "batch"}}}),
    "old opset": (nn.Linear(16, 4), (X,), {"opset_version": 6}),
    "no such folder": (nn.Linear(16, 4), (X,), {"f": "/no/such/folder/model.onnx"}),
}


def messages(case: Callable[[], object]) -> list[str]:
    """Returns the texts of the warnings and of the error of an export."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            case()
            error = ""
        except OnnxExporterError as failure:
            error = str(failure)
    return [*(str(each.message) for each in caught), *([error] if error else [])]


@pytest.mark.parametrize("name", CASES)
def test_messages_have_no_notation_of_torch(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    model, args, options = CASES[name]
    found = messages(lambda: fx_onnx.export(model.eval(), args, **options))
    assert found, "the model neither warns nor fails"
    for message in found:
        assert NOTATION_OF_TORCH.search(message) is None, message
    assert capfd.readouterr() == ("", "")
