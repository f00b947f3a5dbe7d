"""Tracing: the graphs equal those of make_fx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from fx_onnx.aten.functional_graph import functional_graph
from fx_onnx.aten.tracing.tracer import Trace, trace

aten = torch.ops.aten


def _fake(mode: FakeTensorMode, *tensors: Tensor) -> list[Any]:
    return [mode.from_tensor(tensor) for tensor in tensors]


def _targets(graph: Graph) -> list[Any]:
    return [node.target for node in graph.nodes if node.op == "call_function"]


def _traced(function: Callable[..., Any], *inputs: Tensor, keeps_composites: bool = True) -> Trace:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    return trace(function, _fake(mode, *inputs), mode, keeps_composites)


def _run(traced: Trace, *inputs: Tensor) -> Any:
    holder = torch.nn.Module()
    for name, value in traced.attributes.items():
        setattr(holder, name, value if isinstance(value, Tensor) else GraphModule(torch.nn.Module(), value.graph))
    return torch.fx.Interpreter(GraphModule(holder, traced.graph)).run(*inputs)


def _halved(x: Tensor) -> Tensor:
    return torch.ops.higher_order.while_loop(
        lambda x, least: x.sum() > least, lambda x, least: ((x * 0.5).clone(),), (x.clone(),), (torch.ones(()),)
    )[0]


FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "scalars": lambda x: torch.where(x > 0, x + 1, 2.0),
    "composites": lambda x: torch.nn.functional.linear(x, x.reshape(4, 3).t()) @ x,
    "factories": lambda x: torch.zeros(3) + x.new_ones(3, 3) @ torch.zeros_like(x[:, :3]) + torch.eye(3),
    "constants": lambda x: (x * torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([1.0, 2.0]) * 3),
    "several results": lambda x: (x.max(0), [*x.unbind(1)], {"least": x.amin()}),
    "products": lambda x: (x.t() @ x, x[:, None] @ x.view(3, 4, 1), x @ x[0], x.view(3, 1, 4) @ x.t().expand(3, 4, 3)),
    "in place": lambda x: (x * 2).add_(1).unsqueeze_(0).mul_(x),
    "views written to": lambda x: _written(x.clone()),
    "no operator": lambda x: x,
}


def _written(x: Tensor) -> Tensor:
    x[0].fill_(7.0)
    return x


@pytest.mark.parametrize("keeps_composites", [True, False])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_computes_the_same(function: Callable[[Tensor], Any], keeps_composites: bool) -> None:
    x = torch.randn(3, 4)
    traced = _traced(function, x, keeps_composites=keeps_composites)
    traced.graph.lint()
    results = _run(traced, x.clone())
    torch.testing.assert_close(results, function(x.clone()))
    known = [node.meta["val"] for node in traced.graph.output_node().all_input_nodes]
    sizes = {tuple(map(int, value.shape)) for value in known}
    assert sizes == {tuple(result.shape) for result in pytree.tree_leaves(results)}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_the_operators_are_those_of_make_fx(function: Callable[[Tensor], Any]) -> None:
    x = torch.randn(3, 4)
    mode = FakeTensorMode(shape_env=ShapeEnv())
    (fake,) = _fake(mode, x)
    with mode, torch.no_grad():
        theirs = make_fx(function, pre_dispatch=True)(fake)
    wanted = [target for target in _targets(theirs.graph) if target is not aten.detach_.default]
    assert _targets(_traced(function, x).graph) == wanted


def test_the_fake_result_of_a_whole_composite_comes_from_its_parts() -> None:
    """The tracer runs the parts of the loss, because torch's fake implementation of the loss ignores ``reduction``."""
    each = aten.cross_entropy_loss.default
    mode = FakeTensorMode(shape_env=ShapeEnv())
    scores, target = mode.from_tensor(torch.randn(1, 5)), mode.from_tensor(torch.tensor([2]))
    graph = trace(lambda x, y: each(x, y, None, 0), [scores, target], mode, True).graph
    assert _targets(graph) == [each]
    assert tuple(graph.output_node().all_input_nodes[0].meta["val"].shape) == (1,)


def test_tensors_of_equal_specs_are_distinct() -> None:
    """Fake tensors of one spec share a storage, and a write to one must not change the others."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    (x,) = _fake(mode, torch.ones(3))
    made = trace(lambda x: (x + 1, x + 2), [x], mode, True).graph.output_node().all_input_nodes
    first, second = (node.meta["val"] for node in made)
    traced = trace(lambda x, y: (x.mul_(2), y + 1), [first, second], mode, True)
    graph = functional_graph(traced.graph)
    result = torch.fx.Interpreter(GraphModule(torch.nn.Module(), graph)).run(torch.ones(3), torch.ones(3))
    torch.testing.assert_close(result, (torch.full((3,), 2.0), torch.full((3,), 2.0)))


def test_reads_by_strides_see_the_strides_of_torch() -> None:
    x = torch.randn(3, 4)
    graph = _traced(lambda x: (x.t() * 2).as_strided((2, 3), (1, 3)), x).graph
    (read,) = graph.find_nodes(op="call_function", target=aten.as_strided.default)
    assert read.args[0].meta["val"].stride() == (x.t() * 2).stride() == (1, 4)


@pytest.mark.parametrize("keeps_composites", [True, False])
def test_loop_bodies_are_traces(keeps_composites: bool) -> None:
    x = torch.rand(3, 4) + 1
    traced = _traced(_halved, x, keeps_composites=keeps_composites)
    assert [type(value) for value in traced.attributes.values()] == [Trace, Trace]
    torch.testing.assert_close(_run(traced, x), _halved(x))


def test_a_loop_that_changes_sizes_is_refused() -> None:
    def grown(x: Tensor) -> Tensor:
        longer = lambda x: (torch.cat([x, x]),)  # noqa: E731
        return torch.ops.higher_order.while_loop(lambda x: x.sum() < 9, longer, (x.clone(),), ())[0]

    with pytest.raises(NotImplementedError, match="must keep the sizes"):
        _traced(grown, torch.ones(2))


def test_tensors_that_are_not_arguments_are_refused() -> None:
    mode = FakeTensorMode()
    x, other = _fake(mode, torch.ones(2), torch.ones(2))
    with pytest.raises(NotImplementedError, match="not one of its arguments"):
        trace(lambda x: x + other, [x], mode, True)


def test_arithmetic_on_symbolic_sizes_becomes_nodes() -> None:
    """Arithmetic whose result no operator uses gets no node."""

    def function(x: Tensor, n: Any) -> Tensor:
        _ = x.size(0) * 5
        return x.new_zeros(x.size(0) * 2 + n).sum() + x.nonzero().size(0)

    mode = FakeTensorMode(shape_env=ShapeEnv())
    (x,) = _fake(mode, torch.ones(6))
    graph = trace(function, [x, 3], mode, True).graph
    names = [str(getattr(target, "__name__", target)) for target in _targets(graph)]
    assert names == [
        *("sym_size.int", "mul", "add", "new_zeros.default", "sum.default", "nonzero.default"),
        *("sym_size.int", "add.Tensor"),
    ]


def test_the_sizes_of_constants_are_known() -> None:
    graph = _traced(lambda x: x.sum() + torch.tensor([1.0, 2.0, 3.0]), torch.randn(5)).graph
    assert tuple(graph.output_node().all_input_nodes[0].meta["val"].shape) == (3,)


def test_a_data_dependent_size_is_bound_where_it_is_made() -> None:
    traced = _traced(lambda x: x[x > 0] * 2, torch.randn(5))
    (bound,) = [node for node in traced.graph.nodes if node.meta.get("unbacked_bindings")]
    assert bound.target is aten.index.Tensor
    x = torch.tensor([1.0, -1.0, 2.0])
    torch.testing.assert_close(_run(traced, x), torch.tensor([2.0, 4.0]))


def test_earlier_nodes_keep_their_shapes_after_an_in_place_view() -> None:
    graph = _traced(lambda x: (x * 2).unsqueeze_(0), torch.ones(3)).graph
    shapes = [tuple(node.meta["val"].shape) for node in graph.nodes if "val" in node.meta]
    assert shapes == [(3,), (3,), (1, 3)]


def test_a_call_keeps_the_shapes_of_its_results_after_an_in_place_view_of_one() -> None:
    graph = _traced(lambda x: x.max(0)[1].unsqueeze_(0), torch.ones(3, 2)).graph
    (call,) = graph.find_nodes(op="call_function", target=aten.max.dim)
    assert [tuple(each.shape) for each in call.meta["val"]] == [(2,), (2,)]
