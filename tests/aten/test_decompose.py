"""Decomposition of every call that the table does not translate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fx_onnx.aten.decompose import decompose, needs_decomposition
from fx_onnx.aten.fx_nodes import is_effect, is_symbolic
from tests.aten.small_programs import CORE, captured, run, table, targets
from tests.compare import assert_close

aten = torch.ops.aten


pytestmark = pytest.mark.usefixtures("no_own_decompositions")


def test_a_translated_program_is_returned_as_it_is() -> None:
    program = captured(lambda x: torch.relu(x) + x, torch.randn(3))
    before = [node.name for node in program.graph.nodes]
    assert decompose(program, table(aten.relu.default, aten.add.Tensor)) is program
    assert [node.name for node in program.graph.nodes] == before


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.nn.functional.silu(x) * 2.0,
        lambda x: torch.softmax(x, -1),
        lambda x: torch.square(x) + torch.nn.functional.softplus(x * 0).sum(1, keepdim=True) * 0 + x,
        lambda x: torch.nn.functional.layer_norm(x, (4,)),
        lambda x: torch.nn.functional.linear(x, x[:3] * 0 + 1),
    ],
    ids=["silu", "softmax", "square", "layer_norm", "linear"],
)
def test_computes_the_same(function: Callable[..., Any], dynamic: bool) -> None:
    extra = (aten.slice.Tensor, aten.native_layer_norm.default, aten.pow.Tensor_Scalar, aten.log1p.default)
    extra += (aten._softmax.default, aten.t.default, aten.permute.default, aten.transpose.int, aten.addmm.default)
    x = torch.randn(5, 4)
    program = captured(function, x, dynamic=dynamic)
    translations = table(*CORE, *extra)
    decompose(program, translations)
    program.graph.lint()
    assert not [node for node in program.graph.nodes if needs_decomposition(node, translations)]
    assert_close(run(program, x), [function(x)])
    if dynamic:
        x = torch.randn(7, 4)
        assert_close(run(program, x), [function(x)])


def test_a_call_that_its_translation_declines_is_decomposed() -> None:
    """``supports`` receives the arguments of the call, with fake tensors."""
    program = captured(lambda x: (torch.nn.functional.silu(x), torch.nn.functional.silu(x[0])), torch.randn(3, 4))
    seen = []

    def only_vectors(self: Tensor) -> bool:
        seen.append(self)
        return self.dim() == 1

    translations = table(*CORE, aten.select.int, supports={aten.silu.default: only_vectors})
    decompose(program, translations)
    assert targets(program).count(aten.silu.default) == 1
    assert all(type(value).__name__ == "FakeTensor" for value in seen)


def test_symbolic_numbers_and_effects_are_not_decomposed() -> None:
    def function(x: Tensor) -> Tensor:
        torch._check(x.shape[0] > 1)
        return torch.relu(x) * (x.shape[0] * 2)

    program = captured(function, torch.randn(3, 4), dynamic=True)
    translations = table(aten.relu.default, aten.mul.Tensor)
    assert any(is_symbolic(node) for node in program.graph.nodes)
    decompose(program, translations)
    for node in program.graph.nodes:
        assert not (is_symbolic(node) or is_effect(node)) or not needs_decomposition(node, translations)


def test_a_call_whose_results_nothing_reads_is_removed() -> None:
    """A library may ask for its version when it is imported, as torchvision does, within the forward."""
    library = torch.library.Library("decompose_tests", "DEF")
    library.define("version() -> int")
    library.impl("version", lambda: 3, "CompositeExplicitAutograd")
    version = torch.ops.decompose_tests.version.default
    program = captured(lambda x: torch.relu(x) if version() else x, torch.randn(3, 4))
    assert version in targets(program)
    decompose(program, table(aten.relu.default))
    assert targets(program) == [aten.relu.default]
