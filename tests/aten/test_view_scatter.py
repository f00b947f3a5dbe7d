"""The inverse of each view: the tensor has the new value in the view, and its old elements elsewhere."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch.fx import Graph, Node

from fx_onnx.aten.view_scatter import ORDER_PRESERVING, scatter_back
from fx_onnx.messages.errors import MutationError
from fx_onnx.torch_internals.torch_private import OpOverload

aten = torch.ops.aten

VIEWS = [
    (aten.view.default, ([6, 4],)),
    (aten.reshape.default, ([-1],)),
    (aten.flatten.using_ints, ()),
    (aten.unflatten.int, (2, [2, 2])),
    (aten.unsqueeze.default, (1,)),
    (aten.squeeze.default, ()),
    (aten.alias.default, ()),
    (aten.detach.default, ()),
    (aten.select.int, (1, 2)),
    (aten.select.int, (-1, -2)),
    (aten.slice.Tensor, (1, 1)),
    (aten.slice.Tensor, (2, 0, 3, 2)),
    (aten.slice.Tensor, (2, -3, -1)),
    (aten.narrow.default, (2, 1, 2)),
    (aten.narrow.default, (2, -2, 2)),
    (aten.diagonal.default, (0, 1, 2)),
    (aten.diagonal.default, (1, -1, -2)),
    (aten.as_strided.default, ([2, 2], [4, 1], 3)),
    (aten.permute.default, ([2, 0, 1],)),
    (aten.permute.default, ([-1, 1, 0],)),
    (aten.transpose.int, (0, -1)),
    (aten.swapaxes.default, (0, 1)),
    (aten.swapdims.default, (1, 2)),
    (aten.movedim.int, (0, 2)),
    (aten.movedim.intlist, ([0, 2], [1, 0])),
    (aten.mT.default, ()),
    (aten.mH.default, ()),
    (aten.adjoint.default, ()),
]


def _scattered(target: Any, args: tuple[Any, ...], base: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Returns the new base that the graph of ``scatter_back`` computes."""
    captured = Graph()
    source = captured.placeholder("base")
    source.meta["val"] = base
    view = captured.call_function(target, (source, *args))
    view.meta["val"] = target(base, *args)
    graph = Graph()
    nodes = graph.placeholder("base"), graph.placeholder("value")
    nodes[0].meta["val"], nodes[1].meta["val"] = base, value
    graph.output(scatter_back(graph, view, *nodes, read=lambda argument: argument))
    result: torch.Tensor = torch.fx.GraphModule(torch.nn.Module(), graph)(base, value)
    return result


def _written(target: Any, args: tuple[Any, ...], base: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Returns the new base after an in-place write to the view."""
    changed = base.clone()
    target(changed, *args).copy_(value)
    return changed


@pytest.mark.parametrize(("target", "args"), VIEWS, ids=str)
def test_inverse(target: Any, args: tuple[Any, ...]) -> None:
    base = torch.arange(24.0).reshape(2, 3, 4)
    value = -1 - torch.rand_like(target(base, *args))
    assert torch.equal(_scattered(target, args, base, value), _written(target, args, base, value))


@pytest.mark.parametrize(("target", "args"), [(aten.t.default, ()), (aten.numpy_T.default, ()), (aten.t.default, ())])
def test_inverse_of_matrix_views(target: Any, args: tuple[Any, ...]) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    value = -torch.rand(4, 3)
    assert torch.equal(_scattered(target, args, base, value), _written(target, args, base, value))


def test_complex_views() -> None:
    base, value = torch.randn(3, 2), torch.randn(3, dtype=torch.complex64)
    assert torch.equal(_scattered(aten.view_as_complex.default, (), base, value), torch.view_as_real(value))
    assert torch.equal(_scattered(aten.view_as_real.default, (), value, base), torch.view_as_complex(base))


@pytest.mark.parametrize(
    ("target", "args"),
    [
        (aten.split.Tensor, (2, 2)),
        (aten.split.sizes, ([1, 3], 2)),
        (aten.split_with_sizes.default, ([1, 3], -1)),
        (aten.chunk.default, (2, 1)),
        (aten.unbind.int, (1,)),
        (aten.unbind.int, ()),
        (aten.split.Tensor, (1,)),
        (aten.hsplit.int, (3,)),
        (aten.hsplit.array, ([1],)),
        (aten.vsplit.int, (2,)),
        (aten.dsplit.int, (2,)),
        (aten.tensor_split.sections, (3, 1)),
        (aten.tensor_split.indices, ([1, 2], 2)),
    ],
    ids=str,
)
@pytest.mark.parametrize("index", [0, 1, -1])
def test_pieces(target: Any, args: tuple[Any, ...], index: int) -> None:
    base = torch.arange(24.0).reshape(2, 3, 4)
    captured, graph = Graph(), Graph()
    source = captured.placeholder("base")
    pieces = captured.call_function(target, (source, *args))
    pieces.meta["val"] = target(base, *args)
    piece = captured.call_function(operator.getitem, (pieces, index))
    value = -1 - torch.rand_like(pieces.meta["val"][index])
    nodes = graph.placeholder("base"), graph.placeholder("value")
    nodes[0].meta["val"], nodes[1].meta["val"] = base, value
    graph.output(scatter_back(graph, piece, *nodes, read=lambda argument: argument))
    changed = base.clone()
    target(changed, *args)[index].copy_(value)
    assert torch.equal(torch.fx.GraphModule(torch.nn.Module(), graph)(base, value), changed)


@pytest.mark.parametrize("index", [0, 1])
def test_broadcast_tensors(index: int) -> None:
    tensors = torch.arange(6.0).reshape(2, 3), torch.arange(3.0).reshape(1, 3)
    captured, graph = Graph(), Graph()
    sources = [captured.placeholder(name) for name in ("left", "right")]
    views = captured.call_function(aten.broadcast_tensors.default, (sources,))
    view = captured.call_function(operator.getitem, (views, index))
    view.meta["val"] = torch.broadcast_tensors(*tensors)[index]
    base, value = graph.placeholder("base"), graph.placeholder("value")
    base.meta["val"], value.meta["val"] = tensors[index], torch.zeros(2, 3)
    if index == 1:
        with pytest.raises(MutationError, match="does not have each element once"):
            scatter_back(graph, view, base, value, read=lambda argument: argument)
        return
    graph.output(scatter_back(graph, view, base, value, read=lambda argument: argument))
    new = -torch.rand(2, 3)
    assert torch.equal(torch.fx.GraphModule(torch.nn.Module(), graph)(tensors[0], new), new)


def test_results_of_an_unknown_operator_are_refused() -> None:
    captured, graph = Graph(), Graph()
    views = captured.call_function(aten.meshgrid.default, ([captured.placeholder("x")],))
    view = captured.call_function(operator.getitem, (views, 0))
    with pytest.raises(MutationError, match=r"aten\.meshgrid\.default, a view that fx_onnx cannot write through"):
        scatter_back(graph, view, _placeholder(graph), _placeholder(graph), read=lambda argument: argument)


def _placeholder(graph: Graph) -> Node:
    node = graph.placeholder("x")
    node.meta["val"] = torch.zeros(3)
    return node


def test_views_that_repeat_elements_are_refused() -> None:
    base = torch.randn(1, 3)
    with pytest.raises(MutationError, match="does not have each element once"):
        _scattered(aten.expand.default, ([4, 3],), base, torch.zeros(4, 3))


def test_unknown_views_are_refused_by_name() -> None:
    base = torch.randn(4)
    with pytest.raises(MutationError, match=r"aten\.unfold\.default, a view that fx_onnx cannot write through"):
        _scattered(aten.unfold.default, (0, 2, 2), base, torch.zeros(2, 2))


def test_order_preserving_views_are_aten_overloads() -> None:
    assert all(isinstance(target, OpOverload) for target in ORDER_PRESERVING)
