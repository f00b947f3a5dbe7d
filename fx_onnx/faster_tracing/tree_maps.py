"""Trees of containers: mapped without a specification of each node."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

from fx_onnx.faster_tracing.replacement import Replacement

__all__ = ["REPLACEMENTS"]

_CONTAINERS: dict[str, Any] = {"tuple": tuple, "list": list, "dict": dict, "ordereddict": OrderedDict}
_LEAF: Any = object()


class _OtherContainerError(Exception):
    """A tree has a container of another type than those that are known here."""


def _make(original: Callable[..., Any]) -> Sequence[Callable[..., Any]]:
    """Returns ``tree_map`` that rebuilds builtin containers without a ``TreeSpec``.

    torch's function lists the leaves, calls the function for each of them in this order, and then rebuilds the
    containers. So does this one. It knows tuples, lists and dicts, of no subclass, while they are registered as by
    torch; for a tree with another registered container, or for several trees, torch's function runs, and nothing has
    been called before.
    """
    pytree = import_module("torch.utils._pytree")
    registered = pytree.SUPPORTED_NODES
    known = {
        kind: registered[kind]
        for name, kind in _CONTAINERS.items()
        if registered[kind].flatten_fn is getattr(pytree, f"_{name}_flatten")
        and registered[kind].unflatten_fn is getattr(pytree, f"_{name}_unflatten")
    }

    def list_leaves(tree: Any, leaves: list[Any]) -> Any:
        kind = type(tree)
        node = registered.get(kind)
        if node is None and not issubclass(kind, tuple):
            leaves.append(tree)
            return _LEAF
        if node is None or node is not known.get(kind):
            raise _OtherContainerError
        if kind is tuple or kind is list:
            return kind, None, [list_leaves(child, leaves) for child in tree]
        return kind, list(tree), [list_leaves(child, leaves) for child in tree.values()]

    def rebuilt(shape: Any, values: Iterator[Any]) -> Any:
        if shape is _LEAF:
            return next(values)
        kind, keys, shapes = shape
        children = [rebuilt(each, values) for each in shapes]
        return kind(children if keys is None else zip(keys, children, strict=True))

    def tree_map(func: Any, tree: Any, *rests: Any, is_leaf: Any = None) -> Any:
        if rests or is_leaf is not None:
            return original(func, tree, *rests, is_leaf=is_leaf)
        leaves: list[Any] = []
        try:
            shape = list_leaves(tree, leaves)
        except _OtherContainerError:
            return original(func, tree)
        return rebuilt(shape, iter([*map(func, leaves)]))

    return (tree_map,)


_PYTREE = "torch.utils._pytree"
REPLACEMENTS = (
    Replacement(
        (f"{_PYTREE}:tree_map",),
        _make,
        "The names of modules of each node are mapped by a tree with a specification of each part.",
        repeats=(
            f"{_PYTREE}:tree_flatten",
            f"{_PYTREE}:tree_is_leaf",
            f"{_PYTREE}:_get_node_type",
            f"{_PYTREE}:is_namedtuple_class",
            *(f"{_PYTREE}:_{kind}_{name}flatten" for kind in _CONTAINERS for name in ("", "un")),
            f"{_PYTREE}:TreeSpec.unflatten",
        ),
    ),
)
