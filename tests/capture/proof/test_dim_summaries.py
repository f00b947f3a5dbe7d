"""The table of dims says for each dim for which sizes the program is correct."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.export import Dim

from fx_onnx.capture.capture import capture
from fx_onnx.requests.request import parse_request
from tests.capture.sample_modules import Function

ROWS = Dim("rows", min=4, max=512)


@pytest.mark.filterwarnings("ignore::fx_onnx.OnnxExporterWarning")
@pytest.mark.parametrize(
    ("function", "shapes", "expected"),
    [
        (lambda x: x + 1, ({0: "rows"},), ["rows: any"]),
        (lambda x: x + 1, ({0: Dim.AUTO},), ["x.shape[0]: any"]),
        (lambda x: x + 1, ({0: ROWS},), ["rows: 4 to 512"]),
        (lambda x: x + 1, ({0: Dim("rows", min=1)},), ["rows: 1 or more"]),
        (lambda x: x + 1, ({0: Dim("rows", min=1, max=9)},), ["rows: 1 to 9"]),
        (lambda x: x + 1, ({0: "rows", 1: "width"},), ["rows: any", "width: any"]),
        (lambda x: x if x.shape[0] > 4 else -x, ({0: "rows"},), ["rows: 5 or more, "]),
        (lambda x: x if x.shape[0] % 3 == 0 else -x, ({0: "rows"},), ["rows: a multiple of 3, "]),
        (lambda x: x if (x.shape[0] / 3).is_integer() else -x, ({0: "rows"},), ["rows: a multiple of 3, "]),
        (lambda x: x if x.shape[0] / 4 > 1.1 else -x, ({0: "rows"},), ["rows: 5 or more, "]),
        (lambda x: x.squeeze(0), ({0: "rows"},), ["rows: not 1, "]),
        (lambda x: torch.cov(x), ({0: "rows"},), ["rows: not 1, "]),
        (lambda x: F.pixel_unshuffle(x[None, None], 2), ({0: "rows"},), ["rows: even, "]),  # not "4 or more"
        (lambda x: F.conv1d(x.mT[None], torch.ones(1, 4, 5)), ({0: "rows"},), ["rows: 5 or more, "]),
        (lambda x: x + torch.ones(6, 4), ({0: "rows"},), ["rows: fixed at 6, "]),
        (
            lambda x: x if x.shape[0] % 4 == 2 and x.shape[0] % 2 == 0 else -x,
            ({0: "rows"},),
            ["rows: where rows % 4 == 2, "],
        ),
        (lambda x: x if (x.shape[0] + 1) % 2 == 1 else -x, ({0: "rows"},), ["rows: even, "]),
        (lambda x: x if (x.shape[0] - 3) % 2 == 1 else -x, ({0: "rows", 1: "width"},), ["rows: even, ", "width: any"]),
        (lambda x: x[:, : x.shape[1] - 1].view(6, -1, 3), ({1: "width"},), ["width: where width % 3 == 1, "]),
        (lambda x: x.unfold(0, 2, 1), ({0: "rows", 1: "width"},), ["rows: 2 or more, ", "width: any"]),
        (lambda x: x.reshape(x.shape[0], 2, -1), ({0: "rows", 1: "width"},), ["rows: any", "width: even, "]),
        (lambda x: sum(x.split(x.shape[1] // 2, 1)), ({0: "rows", 1: "width"},), ["rows: any", "width: even, not 0, "]),
        (lambda x: F.instance_norm(x[None]), ({0: "rows", 1: "width"},), ["rows: any", "width: not 1, "]),
        (
            lambda x: F.embedding(torch.arange(x.shape[0] - 3, x.shape[0]), torch.ones(9, 2)),
            ({0: "rows"},),
            ["rows: 3 to 9, "],
        ),
        (lambda x: x + 1, None, []),
    ],
)
def test_sizes_in_words(function: Callable[[Tensor], Tensor], shapes: object, expected: list[str]) -> None:
    captured = capture(parse_request(Function(function).eval(), (torch.ones(6, 4),), dynamic_shapes=shapes))
    found = list(map(str, captured.dims))
    assert len(found) == len(expected)
    for text, start in zip(found, expected, strict=True):
        assert text.startswith(f"{start}/") if start.endswith(", ") else text == start


def test_an_exception_has_one_cause() -> None:
    """Five columns leave one, which fails for two rows, but not for four: the number of elements is the bound."""
    module = Function(lambda x: x[:, 2:-2].reshape(-1, 4)).eval()
    shapes = ({0: "rows", 1: "width"},)
    dims = capture(parse_request(module, (torch.ones(2, 16),), dynamic_shapes=shapes)).dims
    (condition,) = dims.conditions
    assert (condition.kind, condition.cause) == ("bound", "raises an exception for other sizes")
    assert [condition.holds({"rows": rows, "width": 5}) for rows in (2, 4, 8)] == [False, True, True]


@pytest.mark.filterwarnings("ignore::fx_onnx.OnnxExporterWarning")
def test_each_limit_has_its_line() -> None:
    def between(x: Tensor) -> Tensor:
        windows = x.unfold(0, 4, 1)
        return windows + 1 if x.shape[0] < 12 else windows - 1

    (rows,) = capture(parse_request(Function(between).eval(), (torch.ones(6, 4),), dynamic_shapes=({0: "rows"},))).dims
    lines = [f"{__file__}:{between.__code__.co_firstlineno + each}: " for each in (1, 2)]
    assert rows.sizes == "4 to 11"
    assert [part.startswith(line) for part, line in zip(rows.place[1:-1].split("; "), lines, strict=True)] == [True] * 2


@pytest.mark.filterwarnings("ignore::fx_onnx.OnnxExporterWarning")
def test_related_dims() -> None:
    arguments = (torch.ones(6, 4), torch.ones(12, 4))
    spec = ({0: "a"}, {0: "b"})
    captured = capture(
        parse_request(Function(lambda x, y: torch.cat([x, x]) + y).eval(), arguments, dynamic_shapes=spec)
    )
    assert [dim.sizes for dim in captured.dims] == ["any", "equal to 2*a"]
