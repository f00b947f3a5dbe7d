"""What kernels check of sizes without a guard of torch are conditions on a node."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from fx_onnx.capture.proof.kernel_checks import kernel_checks
from fx_onnx.capture.proof.size_condition import BRANCH
from fx_onnx.sizes.size_text import expression_text
from fx_onnx.torch_internals.torch_private import size_oblivious
from tests.capture.sample_modules import Function

CHECKS: dict[str, tuple[Callable[[Tensor], Tensor], dict[str, bool]]] = {
    "crop": (lambda x: nn.functional.pad(x, (-3, 1, x.shape[0] - 8, 0)), {"n + min(0, n - 8) >= 0": True}),
    "wrap": (lambda x: nn.functional.pad(x.T[None], (1, 2), mode="circular"), {}),
    "reflection": (lambda x: nn.functional.pad(x[None], (-1, 1), mode="reflect"), {}),
    "row": (lambda x: x.select_scatter(torch.ones(4), 0, 2), {}),
    "column": (lambda x: x.select_scatter(torch.ones(6), -1, 2), {"6 == n": False}),
    "slice": (lambda x: x.slice_scatter(torch.ones(3, 4), 0, -3), {"3 == max(0, n - max(0, n - 3))": False}),
    "step": (
        lambda x: x.slice_scatter(torch.ones(torch.sym_min(3, x.shape[0]), 4), 0, 0, None, 2),
        {"min(3, n) == floor(n/2 - 1/2) + 1": False},
    ),
    "diagonal": (lambda x: x.diagonal_scatter(torch.ones(4), -2), {"4 == max(0, min(4, n - 2))": False}),
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_node_has_what_its_kernel_checks(name: str) -> None:
    function, want = CHECKS[name]
    with size_oblivious():
        program = torch.export.export(
            Function(function), (torch.ones(6, 4),), dynamic_shapes={"x": {0: Dim.DYNAMIC}}, strict=False
        )
    checks = [made for node in program.graph.nodes for made in kernel_checks(node) if made.symbols]
    texts = {expression_text(each.expression, {str(s): "n" for s in each.symbols}): each.is_checked for each in checks}
    assert texts == want
    assert all(check.raises and check.cause == BRANCH for check in checks)
