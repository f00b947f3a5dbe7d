"""The inverse of each ATen view: it computes the new value of the viewed tensor from the new value of the view."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, cast

import torch
from torch.fx import Graph, Node

from fx_onnx.aten.fx_nodes import meta_value
from fx_onnx.messages.errors import MutationError
from fx_onnx.sizes.symbolic_sizes import expression
from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_private import OpOverload

# Views that may have an element more than once, or not at all.
_OTHER_COUNT = frozenset({
    aten.expand.default, aten.expand_as.default, aten.broadcast_to.default, aten.resize_.default,
    aten.resize_as_.default,
})  # fmt: skip
# Views with the elements of the tensor in the same order, and casts. A reshape is their inverse.
ORDER_PRESERVING = frozenset(
    {
        aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.flatten.using_ints,
        aten.unflatten.int, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default,
        aten.alias.default, aten.detach.default, aten.contiguous.default, aten.view_as.default,
        aten.reshape_as.default, aten.dropout.default, aten.feature_dropout.default, aten.alpha_dropout.default,
        aten.to.dtype, aten.to.device, aten.to.dtype_layout, aten.to.other, aten.type_as.default,
        aten.atleast_1d.default, aten.atleast_2d.default, aten.atleast_3d.default, aten.lift_fresh.default,
        aten.ravel.default, aten._to_copy.default, aten.resolve_conj.default, aten.resolve_neg.default,
        aten.squeeze_.dim, aten.squeeze_.default, aten.unsqueeze_.default,
        aten._reshape_alias.default, aten.detach_.default, aten.positive.default, aten.real.default,
    }
    | _OTHER_COUNT
)  # fmt: skip

ReadArgument = Callable[[Any], Any]


def scatter_back(graph: Graph, view: Node, base: Node, value: Node, read: ReadArgument) -> Node:
    """Emits the new value of a viewed tensor, after its view was given a new value.

    Args:
        graph: the graph under construction.
        view: the node of the captured graph that takes the view.
        base: the node of ``graph`` with the viewed tensor's present value.
        value: the node of ``graph`` with the view's new value.
        read: returns the value in ``graph`` of an argument of ``view``.

    Raises:
        MutationError: the view has no inverse, or this function does not know it.
    """

    def emit(target: Any, *args: Any, val: Any = None) -> Node:
        node = graph.call_function(target, args)
        node.meta = {**value.meta, "val": base.meta["val"] if val is None else val}
        return node

    viewed, target = base.meta["val"], cast(Any, view.target)
    if target in ORDER_PRESERVING:
        return _reshape_back(graph, emit, view, base, value, target)
    if target is operator.getitem:
        if isinstance(source := view.args[0], Node) and source.target is aten.broadcast_tensors.default:
            return _reshape_back(graph, emit, view, base, value, source.target)
        return _scatter_item(emit, view, base, value)
    arguments = _bound(view, read)
    if target in (aten.select.int, aten.slice.Tensor, aten.diagonal.default, aten.as_strided.default):
        scatter = getattr(aten, f"{target._schema.name.removeprefix('aten::')}_scatter").default
        names = [a.name for a in target._schema.arguments[1:]]
        return emit(scatter, base, value, *(arguments[name] for name in names))
    if target is aten.narrow.default:
        dim, start = arguments["dim"], _from_the_begin(graph, emit, base, arguments["dim"], arguments["start"])
        stop = _computed(emit, operator.add, start, arguments["length"])
        return emit(aten.slice_scatter.default, base, value, dim, start, stop)
    if (perm := _permutation(target, arguments, viewed.dim())) is not None:
        inverse = sorted(range(len(perm)), key=perm.__getitem__)
        return emit(aten.permute.default, value, inverse)
    if target in (aten.view_as_complex.default, aten.view_as_real.default):
        back = aten.view_as_real if target is aten.view_as_complex.default else aten.view_as_complex
        return emit(back.default, value)
    raise _unknown_view(view, target)


def _unknown_view(view: Node, target: Any) -> MutationError:
    return MutationError(
        f"{view.name} is written in place through {target}, a view that fx_onnx cannot write through; "
        f"assign a new tensor instead."
    )


def _reshape_back(graph: Graph, emit: Callable[..., Node], view: Node, base: Node, value: Node, target: Any) -> Node:
    """Emits the inverse of a view that has each element of the tensor once."""
    counts = [base.meta["val"].numel(), view.meta["val"].numel()]
    may_differ = target in _OTHER_COUNT or target is aten.broadcast_tensors.default
    if may_differ and str(counts[0]) != str(counts[1]):  # comparing the text adds no guard
        raise MutationError(
            f"{view.name} is written in place through {target}, which does not have each element once; "
            f"write to a clone of the view."
        )
    return emit(aten.reshape.default, value, _sizes(graph, base))


def _from_the_begin(graph: Graph, emit: Callable[..., Node], base: Node, dim: int, start: Any) -> Any:
    """Returns the start of a narrow counted from the begin of the axis. Counted from the end, the stop may be 0."""
    if expression(meta_value(start)).is_nonnegative:
        return start
    size = _size(graph, base, dim % base.meta["val"].dim())
    if isinstance(start, int):
        return _computed(emit, operator.add, size, start)
    return _computed(emit, operator.mod, start, _computed(emit, torch.sym_max, size, 1))


def _computed(emit: Callable[..., Node], function: Callable[[Any, Any], Any], first: Any, second: Any) -> Any:
    """Returns the function of two operands, each of which is a number or the node of a symbolic number."""
    if not isinstance(first, Node) and not isinstance(second, Node):
        return function(first, second)
    return emit(function, first, second, val=function(meta_value(first), meta_value(second)))


def _sizes(graph: Graph, base: Node) -> list[Any]:
    """Returns the sizes of ``base``."""
    return [_size(graph, base, axis) for axis in range(base.meta["val"].dim())]


def _size(graph: Graph, base: Node, axis: int) -> Any:
    """Returns a size of ``base``, a symbolic one as a ``sym_size`` node, because FX arguments cannot be SymInts."""
    size = base.meta["val"].shape[axis]
    if isinstance(size, int):
        return size
    node = graph.call_function(aten.sym_size.int, (base, axis))
    node.meta = {**base.meta, "val": size}
    return node


def _bound(node: Node, read: ReadArgument) -> dict[str, Any]:
    """Returns the arguments of an ATen call by name, with the defaults of those that are not given."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    arguments = {a.name: a.default_value for a in schema if a.has_default_value()}
    arguments.update({a.name: read(x) for a, x in zip(schema, node.args, strict=False)})
    arguments.update({name: read(x) for name, x in node.kwargs.items()})
    return arguments


def _permutation(target: Any, arguments: dict[str, Any], rank: int) -> list[int] | None:
    """Returns ``perm`` such that the view equals ``permute(perm)``; None if the view is not a permutation."""
    perm = list(range(rank))
    name = target._schema.name.removeprefix("aten::") if isinstance(target, OpOverload) else ""
    name = name.removesuffix("_")  # an in-place view such as transpose_ changes the shape of its tensor
    if name == "permute":
        return [d % rank for d in arguments["dims"]]
    if name in ("t", "numpy_T"):
        return perm[::-1]
    if name in ("mT", "adjoint", "mH", "matrix_H"):
        return [*perm[:-2], perm[-1], perm[-2]]
    pairs = {"transpose": ("dim0", "dim1"), "swapaxes": ("axis0", "axis1"), "swapdims": ("dim0", "dim1")}
    if name in pairs and target._schema.overload_name in ("int", ""):
        first, second = (arguments[key] % rank for key in pairs[name])
        perm[first], perm[second] = perm[second], perm[first]
        return perm
    if name == "movedim":
        source, destination = arguments["source"], arguments["destination"]
        source, destination = ([x] if isinstance(x, int) else x for x in (source, destination))
        rest = iter(axis for axis in perm if axis not in {s % rank for s in source})
        moved = {d % rank: s % rank for s, d in zip(source, destination, strict=True)}
        return [moved[i] if i in moved else next(rest) for i in range(rank)]
    return None


_SPLITS = frozenset(
    f"aten::{name}"
    for name in ("split", "split_with_sizes", "chunk", "tensor_split", "unbind", "vsplit", "hsplit", "dsplit")
)
_SPLIT_AXES = {"aten::vsplit": 0, "aten::hsplit": 1, "aten::dsplit": 2}


def _scatter_item(emit: Callable[..., Node], view: Node, base: Node, value: Node) -> Node:
    """Emits the inverse for one piece of a split, chunk or unbind; the sizes of earlier pieces give its position."""
    source, index = view.args
    if not isinstance(source, Node) or not isinstance(index, int):
        raise MutationError(
            f"{view.name} is written in place through an index that fx_onnx cannot write through; assign a new tensor "
            "instead."
        )
    name = source.target._schema.name  # type: ignore[union-attr]
    if name not in _SPLITS:
        raise _unknown_view(view, source.target)
    pieces = source.meta["val"]
    default_dim = {a.name: a.default_value for a in source.target._schema.arguments}.get("dim", 0)  # type: ignore[union-attr]
    position = 1 if name == "aten::unbind" else 2
    dim = source.kwargs.get("dim", source.args[position] if len(source.args) > position else default_dim)
    if name in _SPLIT_AXES:
        dim = min(_SPLIT_AXES[name], base.meta["val"].dim() - 1)  # hsplit splits the only dimension of a vector
    if name == "aten::unbind":
        return emit(aten.select_scatter.default, base, value, dim, index % len(pieces))
    sizes = [piece.shape[dim] for piece in pieces]
    start = sum(sizes[: index % len(pieces)])
    stop = start + sizes[index % len(pieces)]
    if not (isinstance(start, int) and isinstance(stop, int)):
        raise MutationError(
            f"{view.name}, a piece of a split, has a dynamic size and is written in place; write to a slice instead."
        )
    return emit(aten.slice_scatter.default, base, value, dim, start, stop)
