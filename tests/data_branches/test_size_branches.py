"""One row of data: a model that squeezes or broadcasts it is right for any number of rows, or has a finding.

Each case runs with 0, 1, 2 and 3 selected rows. The results equal those of eager mode in shape and values, or eager
mode raises an exception too, or a finding names the number of rows; a finding for a number that is right fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fx_onnx
from tests.modules import FunctionModule

X, Y1, Y3, Y5 = torch.randn(5, 4), torch.randn(1, 4), torch.randn(3, 4), torch.randn(5, 4)
ROWS = (0, 1, 2, 3)


def mask(rows: int) -> Tensor:
    return torch.tensor([4, 2, 3, 0, 1]) < rows


def assigned(x: Tensor, m: Tensor, y: Tensor) -> Tensor:
    y = y.clone()
    y[m] = x[m] * 2
    return y


def written(x: Tensor, m: Tensor) -> Tensor:
    rows = x[m].squeeze(0).clone()
    rows += 1
    return rows.mul_(2)


def checked(x: Tensor, m: Tensor) -> Tensor:
    rows = x[m]
    torch._check(rows.shape[0] >= 2)
    return rows.squeeze(0)


CASES: list[tuple[Callable[..., Any], tuple[Tensor, ...], set[int]]] = [
    # squeeze
    (lambda x, m: x[m].squeeze(), (), set()),
    (lambda x, m: x[m].squeeze(0), (), set()),
    (lambda x, m: torch.squeeze(x[m], -2), (), set()),
    (lambda x, m: x[m].squeeze((0, 1)), (), set()),
    (lambda x, m: x[m].squeeze().squeeze(), (), set()),
    (lambda x, m: x[m][:, :1].reshape(-1, 1).squeeze(), (), set()),
    (lambda x, m: x[m].sum(1, keepdim=True).squeeze(), (), set()),
    (lambda x, m: torch.cat([x[m][:, 0], x[m][:, 0]]).squeeze(), (), set()),
    (lambda x, m: torch.cat([x[m][:, 0], x[0, :1]]).squeeze(0).sum(), (), set()),
    (lambda x, m: x[m][2:].squeeze(0), (), set()),
    (lambda x, m: x[: m.sum().item() // 2].squeeze(0), (), set()),
    (lambda x, m: torch.nan_to_num(x[m].mean(0)).squeeze(), (), set()),
    (checked, (), set()),
    (written, (), set()),
    # what makes the size
    (lambda x, m: torch.nonzero(m).squeeze(), (), set()),
    (lambda x, m: torch.nonzero(m, as_tuple=True)[0].squeeze(), (), set()),
    (lambda x, m: torch.where(m)[0].squeeze(), (), set()),
    (lambda x, m: torch.argwhere(m).squeeze(), (), set()),
    (lambda x, m: torch.unique(x[m][:, 0]).squeeze(), (), set()),
    (lambda x, m: torch.masked_select(x[:, 0], m).squeeze(), (), set()),
    (lambda x, m: torch.repeat_interleave(x[:, 0], m.long()).squeeze(), (), set()),
    (lambda x, m: torch.topk(x[:, 0], m.sum().item()).values.squeeze(), (), set()),  # type: ignore[arg-type]
    (lambda x, m: torch.arange(m.sum().item()).squeeze(), (), set()),
    (lambda x, m: x[: m.sum().item()].squeeze(), (), set()),
    # what reads the result
    (lambda x, m: x[torch.nonzero(m).squeeze()], (), set()),
    (lambda x, m: torch.zeros(4) + x[torch.nonzero(m).squeeze()].sum(0), (), set()),
    (lambda x, m: x[torch.nonzero(m).squeeze(), 1], (), set()),
    (lambda x, m: x[:, :1].T[:, torch.nonzero(m).squeeze()], (), set()),
    (lambda x, m: x.index_select(0, torch.nonzero(m).squeeze()), (), set()),
    (lambda x, m: F.embedding(torch.nonzero(m).squeeze(), x), (), set()),
    (lambda x, m: torch.bincount(torch.nonzero(m).squeeze(), minlength=5), (), set()),
    (lambda x, m: torch.atleast_2d(x[m][:, 0].squeeze()), (), set()),
    (lambda x, m: x[m].squeeze(0) @ x.T, (), set()),
    (lambda x, m: torch.cat([x[m].squeeze(0), x]), (), set()),
    (lambda x, m: torch.outer(x[m].reshape(-1).squeeze(), x[:, 1]), (), set()),
    (lambda x, m: x[m].squeeze(0).transpose(0, 1), (), set()),
    (lambda x, m: x[m].squeeze(0).softmax(0), (), set()),
    (lambda x, m: x[m].squeeze(0).sort(0).values, (), set()),
    (lambda x, m: x[m].squeeze(0).flatten(), (), set()),
    (lambda x, m: x[m].squeeze(0)[0], (), set()),
    (lambda x, m: x[m].squeeze(0).unbind(-1), (), set()),
    (lambda x, m: x[m].squeeze(0).sum(0) + x[~m].squeeze(0).sum(0), (), set()),
    (lambda x, m: (x[m].squeeze(0).sum(0), x[~m].squeeze(0)), (), set()),
    (lambda x, m: (x[m][:, None, 0] * x[~m][None, :, 0]).reshape(-1).squeeze(), (), set()),
    (lambda x, m: x[m].squeeze(0) * x[m].shape[0], (), set()),
    (lambda x, m: x[m].squeeze(0).sum() * x[m].squeeze(0).shape[0], (), {1}),
    (lambda x, m: x[m].squeeze(0) + x[m].squeeze(0).ndim, (), {1}),
    # broadcasts
    (lambda x, m, y: x[m] + y, (Y1,), set()),
    (lambda x, m, y: x[m] + y, (Y3,), set()),
    (lambda x, m, y: (x[m] == y).sum(0), (Y3,), set()),
    (lambda x, m, y: y[(x[m] > y).any(1)], (Y3,), set()),
    (lambda x, m, y: x[: m.sum().item()] + y, (Y3,), set()),
    (lambda x, m, y: y[y[:, 0] > -100] * x[m], (Y3,), set()),
    (lambda x, m, y: x[m] * y[m], (Y5,), set()),
    (lambda x, m: x[m].expand(3, 4), (), set()),
    (lambda x, m, y: torch.broadcast_tensors(x[m], y), (Y3,), set()),
    (lambda x, m, y: torch.where(x[m] > 0, y, 0.0), (Y3,), set()),
    (lambda x, m, y: x[m][:, None, :] @ y[:, :, None], (Y3,), set()),
    (lambda x, m: torch.zeros(3, 4).index_put((torch.arange(3),), x[m]), (), set()),
    (assigned, (Y5,), set()),
    (lambda x, m: F.layer_norm(x[m], (4,)), (), set()),
    (lambda x, m: F.interpolate(x[m][None], size=8, mode="linear"), (), set()),
    (lambda x, m: torch.einsum("ij,kj->ik", x[m], x), (), set()),
    (lambda x, m: torch.cat([x[m], x[~m]]), (), set()),
]


@pytest.mark.parametrize(("function", "more", "told"), CASES)
def test_any_number_of_rows(function: Callable[..., Any], more: tuple[Tensor, ...], told: set[int]) -> None:
    with pytest.warns(fx_onnx.OnnxExporterWarning) if told else nullcontext():
        program = fx_onnx.export(FunctionModule(function), (X, mask(3), *more))
    found = [re.search(r"where a size that depends on data is (\d+)", each.text) for each in program.findings]
    assert {int(each[1]) for each in found if each is not None} == told
    wrong = {rows for rows in ROWS if not right(program, function, (X, mask(rows), *more))}
    assert wrong == told


def right(program: fx_onnx.ONNXProgram, function: Callable[..., Any], args: tuple[Tensor, ...]) -> bool:
    """Returns whether the program computes what the function computes, or the function raises an exception."""
    try:
        want = function(*args)
    except (RuntimeError, IndexError):
        return True
    got, want = program(*args), [want] if isinstance(want, Tensor) else list(want)
    return all(
        a.shape == b.shape and torch.allclose(a, b, atol=1e-5, equal_nan=True) for a, b in zip(got, want, strict=True)
    )


SQUEEZES = [
    (lambda x, m: (torch.nonzero(m).squeeze(), x[torch.nonzero(m).squeeze()].sum(0)), ()),
    (lambda x, m, y: (x[m] + y).sum(0), (Y3,)),
    (lambda x, m: x[m].squeeze(0).sum(0) + x[~m].squeeze(0).sum(0), ()),
]


@pytest.mark.parametrize(("function", "more"), SQUEEZES)
def test_opsets(function: Callable[..., Any], more: tuple[Tensor, ...], capfd: pytest.CaptureFixture[str]) -> None:
    captured = torch.export.export(FunctionModule(function), (X, mask(3), *more))
    for opset in (11, 12, 13, 18, 21, 23):
        program = fx_onnx.export(captured, opset_version=opset, verbose=False)
        assert not program.findings
        assert all(right(program, function, (X, mask(rows), *more)) for rows in ROWS)
    assert "Expected shape from model" not in capfd.readouterr().err  # what ONNX Runtime warns about


@pytest.mark.parametrize("opset", [7, 10])
def test_branches_of_two_ranks_need_opset_11(opset: int) -> None:
    with pytest.raises(fx_onnx.OnnxExporterError, match="different ranks; export with opset_version=11"):
        fx_onnx.export(FunctionModule(lambda x, m: x[: m.sum().item()].squeeze()), (X, mask(3)), opset_version=opset)


def test_an_output_of_two_ranks_has_no_shape() -> None:
    program = fx_onnx.export(FunctionModule(lambda x, m: (x[m].squeeze(0), x[m].squeeze(0).sum())), (X, mask(3)))
    assert [output.shape is None for output in program.model.graph.outputs] == [True, False]


def test_without_another_shape_there_is_no_branch() -> None:
    program = fx_onnx.export(FunctionModule(lambda x, m: (x[m] * 2).sum(0)), (X, mask(3)))
    assert "If" not in {node.op_type for node in program.model.graph}


def test_dynamic_axes() -> None:
    function, shapes = (lambda x, m, y: (x[m].squeeze(), x[m] + y)), ({0: "n"}, {0: "n"}, {0: "rows"})
    program = fx_onnx.export(FunctionModule(function), (X, mask(3), Y3), dynamic_shapes=shapes)
    assert not program.findings
    for x, y, rows in ((X, Y3, 3), (X, Y3, 1), (X, Y5, 1), (X, Y1, 3), (X, Y1, 1), (torch.cat([X, X]), Y3, 1)):
        m = torch.arange(len(x)) >= len(x) - rows
        assert right(program, function, (x, m, y))


def test_too_many_sizes_are_refused() -> None:
    def function(x: Tensor, m: Tensor) -> Tensor:
        return torch.stack([x[m].squeeze(0).sum(0), *(x[x[:, n] > 0].squeeze(0).sum(0) for n in range(4))])

    with pytest.raises(fx_onnx.CaptureError, match="depends on 5 sizes that depend on data"):
        fx_onnx.export(FunctionModule(function), (X.abs(), mask(3)))
