"""Nodes without a translation are traced alone, through our decomposition or PyTorch's, and spliced in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import fx_onnx
from fx_onnx.aten import decompose as module
from fx_onnx.aten.decompose import decompose, decomposition, is_effect, is_symbolic, needs_decomposition, source_line
from fx_onnx.aten.functionalize import AtenProgram, functionalize
from fx_onnx.core import metadata
from fx_onnx.core.errors import UnsupportedOperatorError
from fx_onnx.core.translation_table import Table, Translation
from tests.compare import assert_close

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "DECOMPOSITIONS", {})  # PyTorch's and the tests' own alone
    decomposition.cache_clear()
    yield
    decomposition.cache_clear()


class Of(nn.Module):  # not that of tests.modules: its line is the one that errors shall show
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors)


def _table(*targets: Any, when: dict[Any, Callable[..., bool]] | None = None) -> Table:
    """A table that translates just these, by functions that are never called."""
    entries = {target: Translation(target, lambda op, *args: None) for target in targets}
    for target, predicate in (when or {}).items():
        entries[target] = Translation(target, lambda op, *args: None, supports=predicate)
    return Table(20, entries)


CORE = tuple(
    getattr(getattr(aten, name), overload)
    for name, overload in (
        ("add", "Tensor"), ("sub", "Tensor"), ("mul", "Tensor"), ("mul", "Scalar"), ("div", "Tensor"),
        ("exp", "default"),
        ("sigmoid", "default"), ("relu", "default"), ("mm", "default"), ("view", "default"), ("permute", "default"),
        ("sum", "dim_IntList"), ("amax", "default"), ("mean", "dim"), ("rsqrt", "default"), ("add", "Scalar"),
        ("unsqueeze", "default"), ("expand", "default"), ("clone", "default"), ("reshape", "default"),
        ("alias", "default"), ("where", "self"), ("scalar_tensor", "default"), ("gt", "Scalar"), ("neg", "default"),
    )
)  # fmt: skip


def _program(function: Callable[..., Any] | nn.Module, *inputs: Tensor, dynamic: bool = False) -> AtenProgram:
    model = function if isinstance(function, nn.Module) else Of(function)
    shapes = (tuple({0: Dim.AUTO} for _ in inputs),) if dynamic else None
    return functionalize(torch.export.export(model, inputs, dynamic_shapes=shapes))


def _targets(program: AtenProgram) -> list[Any]:
    return [node.target for node in program.graph.nodes if node.op == "call_function"]


def _run(program: AtenProgram, *inputs: Tensor) -> Any:
    holder = nn.Module()
    for name, value in program.constants.items():
        holder.register_buffer(name, value)
    return torch.fx.Interpreter(torch.fx.GraphModule(holder, program.graph)).run(*inputs)


def test_a_program_that_the_table_says_stays_as_it_is() -> None:
    program = _program(lambda x: torch.relu(x) + x, torch.randn(3))
    before = [node.name for node in program.graph.nodes]
    assert decompose(program, _table(aten.relu.default, aten.add.Tensor)) is program
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
    program = _program(function, x, dynamic=dynamic)
    table = _table(*CORE, *extra)
    decompose(program, table)
    program.graph.lint()
    assert not [node for node in program.graph.nodes if needs_decomposition(node, table)]
    assert_close(_run(program, x), [function(x)])
    if dynamic:
        x = torch.randn(7, 4)
        assert_close(_run(program, x), [function(x)])


def test_ours_comes_before_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    def ours(self: Tensor) -> Tensor:
        return self * torch.sigmoid(self) + 0.0

    monkeypatch.setitem(module.DECOMPOSITIONS, aten.silu.default, ours)
    program = _program(lambda x: torch.nn.functional.silu(x), torch.randn(3))
    decompose(program, _table(*CORE))
    assert _targets(program) == [aten.sigmoid.default, aten.mul.Tensor, aten.add.Tensor]


def test_what_the_translation_declines_is_decomposed() -> None:
    """``when`` sees fake tensors and the call's own arguments."""
    program = _program(lambda x: (torch.nn.functional.silu(x), torch.nn.functional.silu(x[0])), torch.randn(3, 4))
    seen = []

    def only_vectors(self: Tensor) -> bool:
        seen.append(self)
        return self.dim() == 1

    table = _table(*CORE, aten.select.int, supports={aten.silu.default: only_vectors})
    decompose(program, table)
    assert _targets(program).count(aten.silu.default) == 1
    assert all(type(value).__name__ == "FakeTensor" for value in seen)


def test_equal_calls_are_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def ours(self: Tensor) -> Tensor:
        calls.append(self.shape)
        return self * 2.0

    monkeypatch.setitem(module.DECOMPOSITIONS, aten.silu.default, ours)
    silu = torch.nn.functional.silu
    program = _program(lambda x, y: (silu(silu(x)), silu(y)), torch.randn(3), torch.randn(4))
    decompose(program, _table(*CORE))
    assert len(calls) == 2
    assert _targets(program) == [aten.mul.Tensor] * 3
    assert_close(_run(program, torch.ones(3), torch.ones(4)), [torch.ones(3) * 4, torch.ones(4) * 2])


def test_names_and_sources_are_those_of_the_captured_node() -> None:
    program = _program(lambda x: torch.nn.functional.silu(x), torch.randn(3))
    (before,) = [node for node in program.graph.nodes if node.op == "call_function"]
    name, text, trace = before.name, before.format_node(), before.meta["stack_trace"]
    decompose(program, _table(*CORE))
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

    monkeypatch.setitem(module.DECOMPOSITIONS, aten.aminmax.default, ours)
    program = _program(lambda x: torch.aminmax(x), torch.tensor(3.0))
    decompose(program, _table(*CORE))
    program.graph.lint()
    assert_close(_run(program, torch.tensor(3.0)), [torch.tensor(6.0), torch.tensor(6.0)])


def test_a_decomposition_may_write_to_its_own_values(monkeypatch: pytest.MonkeyPatch) -> None:
    def ours(self: Tensor) -> Tensor:
        result = self * 1.0
        result.add_(self)
        return result

    monkeypatch.setitem(module.DECOMPOSITIONS, aten.silu.default, ours)
    program = _program(lambda x: torch.nn.functional.silu(x), torch.randn(3))
    decompose(program, _table(*CORE))
    assert_close(_run(program, torch.ones(3)), [torch.ones(3) * 2])


def test_a_constant_made_by_a_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    def ours(self: Tensor) -> Tensor:
        return self + torch.tensor([1.0, 2.0, 3.0])

    monkeypatch.setitem(module.DECOMPOSITIONS, aten.silu.default, ours)
    program = _program(lambda x: torch.nn.functional.silu(x), torch.randn(3))
    decompose(program, _table(*CORE, aten.lift_fresh_copy.default, aten.detach.default))
    assert_close(_run(program, torch.zeros(3)), [torch.tensor([1.0, 2.0, 3.0])])


def test_a_decomposition_may_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies become bodies of the program, decomposed too, and equal calls share them."""
    calls = []

    def ours(self: Tensor) -> Tensor:
        calls.append(self.shape)

        def more(k: Tensor, x: Tensor) -> Tensor:
            return k < x.size(0)

        def body(k: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return k + 1, torch.nn.functional.hardswish(x) + torch.tensor([1.0])

        found: Tensor = torch.ops.higher_order.while_loop(more, body, (torch.full((), 0), self), ())[1]
        return found

    monkeypatch.setitem(module.DECOMPOSITIONS, aten.silu.default, ours)
    silu = torch.nn.functional.silu
    program = _program(lambda x, y: (silu(x), silu(y)), torch.randn(3), torch.randn(3), dynamic=True)
    extra = (aten.lt.Scalar, aten.full.default, aten.lift_fresh_copy.default, aten.detach.default, aten.clamp.default)
    table = _table(*CORE, *extra, torch.ops.higher_order.while_loop, aten.minimum.default, aten.maximum.default)
    decompose(program, table)
    assert not [node for graph in program.graphs for node in graph.nodes if needs_decomposition(node, table)]
    assert _targets(program).count(torch.ops.higher_order.while_loop) == len(calls)
    assert len(program.bodies) == 2 * len(calls) and program.constants

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return silu(x)

    decomposition.cache_clear()
    exported = fx_onnx.export(Model().eval(), (torch.randn(3),), dynamic_shapes=({0: "n"},))
    for n in (1, 3, 5):
        x = torch.randn(n)
        assert_close(exported(x), [ours(x)])


def test_all_unsupported_operators_are_listed_at_once() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.linalg.eigvals(x).real + torch.geqrf(x)[1] + torch.geqrf(x + 1)[1]

    program = _program(function, torch.randn(3, 3))
    with pytest.raises(UnsupportedOperatorError) as caught:
        decompose(program, _table(*CORE, aten.real.default, aten.view_as_real.default, aten.select.int))
    message = str(caught.value)
    assert "aten.geqrf.default: 2 calls, first at" in message
    assert "1 call," in message
    assert "test_decompose.py" in message
    assert "custom_translation_table" in message


def test_a_transform_that_torch_does_not_take_apart_is_listed_by_name() -> None:
    program = _program(lambda x: torch.func.jvp(torch.sin, (x,), (x,)), torch.randn(3))
    with pytest.raises(UnsupportedOperatorError, match=r"  torch\._functorch\.predispatch\._make_dual: 1 call"):
        decompose(program, _table(*CORE, aten.sin.default))


def test_a_decomposition_into_itself_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.DECOMPOSITIONS, aten.silu.default, lambda self: aten.silu.default(self))
    program = _program(lambda x: torch.nn.functional.silu(x), torch.randn(3))
    with pytest.raises(UnsupportedOperatorError, match=r"aten\.silu\.default"):
        decompose(program, _table(*CORE))


def test_symbolic_numbers_and_effects_need_nothing() -> None:
    def function(x: Tensor) -> Tensor:
        torch._check(x.shape[0] > 1)
        return torch.relu(x) * (x.shape[0] * 2)

    program = _program(function, torch.randn(3, 4), dynamic=True)
    table = _table(aten.relu.default, aten.mul.Tensor)
    assert any(is_symbolic(node) for node in program.graph.nodes)
    decompose(program, table)
    for node in program.graph.nodes:
        assert not (is_symbolic(node) or is_effect(node)) or not needs_decomposition(node, table)


def test_a_source_line_is_the_users() -> None:
    program = _program(lambda x: torch.nn.functional.silu(x), torch.randn(3))
    (node,) = [node for node in program.graph.nodes if node.op == "call_function"]
    assert "test_decompose.py:" in source_line(node)
    assert source_line(next(iter(program.graph.nodes))) == ""


def test_the_module_says_what_a_decomposition_keeps() -> None:
    found = decomposition(aten.silu.default)
    assert found is not None
    assert found.keeps_composites
    composite = decomposition(aten.linear.default)
    assert composite is not None
    assert not composite.keeps_composites
    assert decomposition(aten.geqrf.default) is None
    assert module.decomposition(len) is None


def test_calls_that_differ_in_the_sign_of_zero_are_traced_apart() -> None:
    class Zeros(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return 1 / (nn.functional.threshold(x, 5.0, 0.0)), 1 / (nn.functional.threshold(x, 5.0, -0.0))

    program = fx_onnx.export(Zeros().eval(), (torch.zeros(2),))
    found = program.call_reference(torch.zeros(2))  # ONNX Runtime itself takes the two zeros for one
    assert_close(found, (torch.full((2,), torch.inf), torch.full((2,), -torch.inf)))


def test_sizes_that_the_operator_needs_equal_may_differ_in_name() -> None:
    class Attention(nn.Module):
        def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return nn.functional.scaled_dot_product_attention(query, key, value)

    example = tuple(torch.randn(2, 2, n, 4) for n in (3, 5, 5))
    shapes = tuple({2: name} for name in ("queries", "keys", "values"))
    program = fx_onnx.export(Attention().eval(), example, dynamic_shapes=shapes)
    other = tuple(torch.randn(2, 2, n, 4) for n in (4, 7, 7))
    torch.testing.assert_close(program(*other)[0], Attention()(*other))
