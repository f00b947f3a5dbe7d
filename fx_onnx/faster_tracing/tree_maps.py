"""Trees of containers: mapped, and their tensors listed, without a specification of each node."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

import torch

from fx_onnx.faster_tracing.replacement import Replacement

__all__ = ["REPLACEMENTS"]

_PYTREE = "torch.utils._pytree"
_CONTAINERS: dict[str, Any] = {"tuple": tuple, "list": list, "dict": dict, "ordereddict": OrderedDict}
_LEAF: Any = object()


class _OtherContainerError(Exception):
    """A tree has a container of another type than those that are known here."""


class _Trees:
    """Trees of tuples, lists and dicts, of no subclass, that are registered as by torch."""

    def __init__(self) -> None:
        pytree = import_module(_PYTREE)
        self._registered = pytree.SUPPORTED_NODES
        self._known = {
            kind: node
            for name, kind in _CONTAINERS.items()
            if (node := self._registered[kind]).flatten_fn is getattr(pytree, f"_{name}_flatten")
            and node.unflatten_fn is getattr(pytree, f"_{name}_unflatten")
        }

    def list_leaves(self, tree: Any, leaves: list[Any]) -> Any:
        """Appends the leaves of a tree, and returns its containers.

        Raises:
            _OtherContainerError: It has another registered container.
        """
        kind = type(tree)
        node = self._registered.get(kind)
        if node is None and not issubclass(kind, tuple):
            leaves.append(tree)
            return _LEAF
        if node is None or node is not self._known.get(kind):
            raise _OtherContainerError
        if kind is tuple or kind is list:
            return kind, None, [self.list_leaves(child, leaves) for child in tree]
        return kind, list(tree), [self.list_leaves(child, leaves) for child in tree.values()]

    def rebuilt(self, containers: Any, values: Iterator[Any]) -> Any:
        """Returns the containers with other leaves."""
        if containers is _LEAF:
            return next(values)
        kind, keys, inner = containers
        children = [self.rebuilt(child, values) for child in inner]
        return kind(children if keys is None else zip(keys, children, strict=True))


def _make_map(original: Callable[..., Any]) -> Sequence[Callable[..., Any]]:
    """Returns ``tree_map`` that rebuilds builtin containers without a ``TreeSpec``.

    torch's function lists the leaves, calls the function for each of them in this order, and then rebuilds the
    containers. So does this one. For a tree with another container, or for several trees, torch's function runs, and
    nothing has been called before. It also runs where dynamo reads the code of a branch, as for ``torch.cond``, because
    dynamo writes the names of variables into traces.
    """
    trees = _Trees()

    def tree_map(func: Any, tree: Any, *rests: Any, is_leaf: Any = None) -> Any:
        if rests or is_leaf is not None or torch.compiler.is_dynamo_compiling():
            return original(func, tree, *rests, is_leaf=is_leaf)
        leaves: list[Any] = []
        try:
            containers = trees.list_leaves(tree, leaves)
        except _OtherContainerError:
            return original(func, tree)
        return trees.rebuilt(containers, iter([*map(func, leaves)]))

    return (tree_map,)


def _make_handle(original: Callable[..., Any]) -> Sequence[Callable[..., Any]]:
    """Returns ``handle_dispatch_mode`` that needs no ``TreeSpec`` of the arguments.

    torch's function lists the leaves of the arguments for the types of those with the key of Python. The values of the
    keyword arguments are one leaf to it, which is no tensor. Where an argument is in another container, it runs.
    """
    trees, mode_type = _Trees(), torch.utils._python_dispatch.TorchDispatchMode
    keys_of, python = torch._C._dispatch_keys, torch._C.DispatchKey.Python

    def handle(curr_mode: Any, op_overload: Any, *args: Any, **kwargs: Any) -> Any:
        leaves: list[Any] = []
        try:
            trees.list_leaves(args, leaves)
        except _OtherContainerError:
            return original(curr_mode, op_overload, *args, **kwargs)
        if not isinstance(curr_mode, mode_type):
            return original(curr_mode, op_overload, *args, **kwargs)
        types = [type(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor) and keys_of(leaf).has(python)]
        return curr_mode.__torch_dispatch__(op_overload, types, args, kwargs)

    return (handle,)


_SOURCES = (
    f"{_PYTREE}:tree_flatten",
    f"{_PYTREE}:tree_is_leaf",
    f"{_PYTREE}:_get_node_type",
    f"{_PYTREE}:is_namedtuple_class",
    *(f"{_PYTREE}:_{kind}_{name}flatten" for kind in _CONTAINERS for name in ("", "un")),
)
REPLACEMENTS = (
    Replacement(
        (f"{_PYTREE}:tree_map",),
        _make_map,
        "The names of modules of each node are mapped by a tree with a specification of each part.",
        repeats=(*_SOURCES, f"{_PYTREE}:TreeSpec.unflatten"),
    ),
    Replacement(
        ("torch._library.utils:handle_dispatch_mode",),
        _make_handle,
        "The types of the arguments of each operator are found by a tree with a specification of each part.",
        repeats=_SOURCES,
    ),
)
