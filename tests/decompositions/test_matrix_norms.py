"""Decompositions of the norms of matrices against torch, with static and with dynamic sizes."""

import math
from typing import Any

import pytest
import torch

import fx_onnx
from tests.capture.sample_modules import Function
from tests.compare import assert_close
from tests.decompositions.harness import assert_matches_torch, randn

aten = torch.ops.aten
ORDERS = [1, -1, 2, -2, math.inf, -math.inf]


@pytest.mark.parametrize("ord", ORDERS)
@pytest.mark.parametrize("shape", [(3, 4), (2, 4, 3), (1, 1)])
@pytest.mark.parametrize("options", [{}, {"dim": (0, -1), "keepdim": True}, {"dim": (-1, 0), "dtype": torch.float64}])
def test_norms(ord: float, shape: tuple[int, ...], options: dict[str, Any]) -> None:
    dtype = {name: options[name] for name in options if name == "dtype"}
    given = [value for name, value in options.items() if name != "dtype"]
    assert_matches_torch(aten.linalg_matrix_norm.default, randn(*shape), ord, *given, **dtype)
    axes, keepdim = options.get("dim", (0, 1)), options.get("keepdim", False)
    assert_matches_torch(aten.linalg_norm.default, randn(*shape), ord, axes, keepdim, **dtype)


@pytest.mark.parametrize("ord", [1, 2, math.inf])
def test_norms_of_empty_matrices(ord: float) -> None:
    for shape in ((0, 3), (3, 0), (2, 0, 0)):
        assert_matches_torch(aten.linalg_matrix_norm.default, randn(*shape), ord)


@pytest.mark.parametrize("arguments", [(), (None, [1]), (3, [0]), (None, None, True)])
def test_norms_of_vectors(arguments: tuple[Any, ...]) -> None:
    assert_matches_torch(aten.linalg_norm.default, randn(3, 4), *arguments)


@pytest.mark.parametrize("p", [None, *ORDERS])
def test_condition_numbers(p: float | None) -> None:
    assert_matches_torch(aten.linalg_cond.default, randn(2, 4, 4), p, tolerance=1e-3)
    assert_matches_torch(aten.linalg_cond.default, randn(2, 0, 0), p)


@pytest.mark.parametrize("p", [1, -1, math.inf, -math.inf])
def test_the_condition_number_of_a_singular_matrix(p: float) -> None:
    assert_matches_torch(aten.linalg_cond.default, torch.ones(3, 3).tril(-1), p)
    assert_matches_torch(aten.linalg_cond.default, torch.diag(torch.tensor([3.0, 0, -2])), p)


@pytest.mark.parametrize(
    "function",
    [
        *(lambda x, ord=ord: torch.linalg.matrix_norm(x, ord) for ord in (1, 2, -math.inf)),
        lambda x: torch.linalg.norm(x, math.inf, keepdim=True),
        lambda x: torch.linalg.cond(x),
        lambda x: torch.linalg.cond(x @ x.T + torch.eye(x.shape[0]), -1),
        lambda x: torch.linalg.matrix_rank(x),
        lambda x: torch.linalg.matrix_rank(x, rtol=0.5),
    ],
)
@pytest.mark.parametrize("shape", [(3, 5), (2, 1), (1, 6)])
def test_dynamic_sizes(function: Any, shape: tuple[int, ...]) -> None:
    module = Function(function)
    program = fx_onnx.export(module, (randn(*shape),), dynamic_shapes=({0: "n", 1: "m"},), verbose=False)
    assert not program.findings
    for sizes in ((4, 6), (7, 2), (1, 3), (3, 1), (2, 0)):
        assert_close(program(randn(*sizes)), module(randn(*sizes)), 1e-3)
