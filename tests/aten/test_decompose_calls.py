"""Replacement of calls by decompositions: equal calls are traced once; nodes keep the captured name and source."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.aten import decompose as lookup
from fx_onnx.aten.decompose import decompose, find_decomposition, needs_decomposition
from fx_onnx.messages.errors import TranslationError, UnsupportedOperatorError
from fx_onnx.onnx_model import metadata
from tests.aten.small_programs import CORE, captured, run, table, targets
from tests.compare import assert_close
from tests.torch_versions import needs

aten = torch.ops.aten


pytestmark = pytest.mark.usefixtures("no_own_decompositions")


def test_equal_calls_are_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def ours(self: Tensor) -> Tensor:
        calls.append(self.shape)
        return self * 2.0

    monkeypatch.setitem(lookup.DECOMPOSITIONS, aten.silu.default, ours)
    silu = torch.nn.functional.silu
    program = captured(lambda x, y: (silu(silu(x)), silu(y)), torch.randn(3), torch.randn(4))
    decompose(program, table(*CORE))
    assert len(calls) == 2
    assert targets(program) == [aten.mul.Tensor] * 3
    assert_close(run(program, torch.ones(3), torch.ones(4)), [torch.ones(3) * 4, torch.ones(4) * 2])


def test_calls_that_differ_in_the_sign_of_zero_are_traced_separately() -> None:
    class Zeros(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return 1 / (nn.functional.threshold(x, 5.0, 0.0)), 1 / (nn.functional.threshold(x, 5.0, -0.0))

    program = fx_onnx.export(Zeros().eval(), (torch.zeros(2),))
    found = program.call_reference(torch.zeros(2))  # ONNX Runtime itself merges 0.0 and -0.0
    assert_close(found, (torch.full((2,), torch.inf), torch.full((2,), -torch.inf)))


def test_names_and_sources_are_those_of_the_captured_node() -> None:
    program = captured(lambda x: torch.nn.functional.silu(x), torch.randn(3))
    (before,) = [node for node in program.graph.nodes if node.op == "call_function"]
    name, text, trace = before.name, before.format_node(), before.meta["stack_trace"]
    decompose(program, table(*CORE))
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    assert nodes[-1].name == name
    for node in nodes:
        assert node.meta[metadata.SOURCE_NAME] == name
        assert node.meta[metadata.SOURCE_TEXT] == text
        assert node.meta[metadata.SOURCE_TARGET] == "aten.silu.default"
        assert node.meta["stack_trace"] == trace


def test_several_results(monkeypatch: pytest.MonkeyPatch) -> None:
    def ours(self: Tensor, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        return self * 2.0, self + self

    monkeypatch.setitem(lookup.DECOMPOSITIONS, aten.aminmax.default, ours)
    program = captured(lambda x: torch.aminmax(x), torch.tensor(3.0))
    decompose(program, table(*CORE))
    program.graph.lint()
    assert_close(run(program, torch.tensor(3.0)), [torch.tensor(6.0), torch.tensor(6.0)])


@pytest.mark.parametrize(
    ("ours", "found"),
    [
        (lambda self: self.long(), "int64[2, 3]"),
        (lambda self: self.sum(0), "float32[3]"),
        (lambda self: self[:, :1], "float32[2, 1]"),
    ],
)
def test_a_result_of_another_type_is_refused(
    ours: Callable[[Tensor], Tensor], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(lookup.DECOMPOSITIONS, aten.silu.default, ours)
    program = captured(lambda x: torch.nn.functional.silu(x), torch.randn(2, 3))
    with pytest.raises(TranslationError) as raised:
        decompose(program, table(*CORE))
    message = str(raised.value)
    assert f"The decomposition returns {found} where the operator returns float32[2, 3]: silu = aten.silu" in message
    assert "return self.function(*tensors)" in message


def test_a_decomposition_may_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies of the loop become decomposed bodies of the program, which equal calls share."""
    calls = []

    def ours(self: Tensor) -> Tensor:
        calls.append(self.shape)

        def more(k: Tensor, x: Tensor) -> Tensor:
            return k < x.size(0)

        def body(k: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return k + 1, torch.nn.functional.hardswish(x) + torch.tensor([1.0])

        found: Tensor = torch.ops.higher_order.while_loop(more, body, (torch.full((), 0), self), ())[1]
        return found

    monkeypatch.setitem(lookup.DECOMPOSITIONS, aten.silu.default, ours)
    silu = torch.nn.functional.silu
    program = captured(lambda x, y: (silu(x), silu(y)), torch.randn(3), torch.randn(3), dynamic=True)
    extra = (aten.lt.Scalar, aten.full.default, aten.lift_fresh_copy.default, aten.detach.default, aten.clamp.default)
    translations = table(*CORE, *extra, torch.ops.higher_order.while_loop, aten.minimum.default, aten.maximum.default)
    decompose(program, translations)
    assert not [node for graph in program.graphs for node in graph.nodes if needs_decomposition(node, translations)]
    assert targets(program).count(torch.ops.higher_order.while_loop) == len(calls)
    assert len(program.bodies) == 2 * len(calls) and program.constants

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return silu(x)

    find_decomposition.cache_clear()
    exported = fx_onnx.export(Model().eval(), (torch.randn(3),), dynamic_shapes=({0: "n"},))
    for n in (1, 3, 5):
        x = torch.randn(n)
        assert_close(exported(x), [ours(x)])


def test_all_unsupported_operators_are_listed_at_once() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.linalg.eigvals(x).real + torch.geqrf(x)[1] + torch.geqrf(x + 1)[1]

    program = captured(function, torch.randn(3, 3))
    with pytest.raises(UnsupportedOperatorError) as caught:
        decompose(program, table(*CORE, aten.real.default, aten.view_as_real.default, aten.select.int))
    message = str(caught.value)
    assert "aten.geqrf.default: 2 calls, first at" in message
    assert "1 call," in message
    assert "modules.py" in message
    assert "custom_translation_table" in message


@needs("jvp")
def test_a_function_without_decomposition_is_listed_by_its_full_name() -> None:
    program = captured(lambda x: torch.func.jvp(torch.sin, (x,), (x,)), torch.randn(3))
    with pytest.raises(UnsupportedOperatorError, match=r"  torch\._functorch\.predispatch\._make_dual: 1 call"):
        decompose(program, table(*CORE, aten.sin.default))


def test_an_endless_decomposition_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(lookup.DECOMPOSITIONS, aten.silu.default, lambda self: aten.silu.default(self))
    program = captured(lambda x: torch.nn.functional.silu(x), torch.randn(3))
    with pytest.raises(UnsupportedOperatorError, match=r"aten\.silu\.default"):
        decompose(program, table(*CORE))
