"""Alias analysis: which tensors of a graph share memory, and which values a write has made stale.

The fake tensors of a captured graph share storages where the real tensors would. There are two exceptions: the result
of an inactive dropout (``_storage_ids``) and that of an in-place call (``AliasTracker.track_result``).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

from fx_onnx.aten.fx_nodes import region_body
from fx_onnx.messages.errors import MutationError
from fx_onnx.sizes.symbolic_sizes import static
from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_private import OpOverload, storage_ids


@dataclass
class _Storage:
    """A storage that the graph writes to.

    Attributes:
        owner: the node whose tensor the storage was made for; the others on it are views of that tensor.
        version: the number of writes so far.
    """

    owner: Node | None = None
    version: int = 0


@dataclass
class _Tensor:
    """The aliases of one captured node, whose value may be several tensors.

    Attributes:
        storages: the storages of its tensors.
        base: the node of the viewed tensor, or, for the result of an in-place call, of the written tensor. If a call
            returned the view among several views, the base is that call. None for the owner of its storage.
        version: the version of its storages to which its rewritten value belongs.
    """

    storages: frozenset[int]
    base: Node | None = None
    version: int = 0


class AliasTracker:
    """Tracks the tensors on the storages that a graph writes to, while a rewriter walks over the graph in order.

    Example::

        y = x[0]    # track(y): a view of x, at version 0
        x.add_(1)   # record_write(x): the storage of x has version 1
        z = y * 2   # is_stale(y): the rewriter computes the view again from the new x
    """

    def __init__(self, graph: Graph) -> None:
        self._written = frozenset(writes_by_storage(graph))
        self._storages: dict[int, _Storage] = {}
        self._tensors: dict[Node, _Tensor] = {}
        self._identities: dict[Node, Node] = {}

    def identify(self, node: Node, same: Node) -> None:
        """Records that a node is the tensor of another node: an operand or a result of a region, or a tied weight."""
        self._identities[node] = same

    def canonical(self, node: Node) -> Node:
        """Returns the node that a node was identified with, or the node itself."""
        while node in self._identities:
            node = self._identities[node]
        return node

    def track(self, node: Node) -> None:
        """Records a node that has just been computed, if it is on a storage that the graph writes to.

        Raises:
            MutationError: its tensor shares such a storage with a tensor that it is not a view of.
        """
        if not self._written or node in self._identities:
            return
        for storage in self._written.intersection(_storage_ids(node)):
            base = _input_on(storage, node)
            if isinstance(node.meta["val"], (list, tuple)) and base is None:
                continue  # new tensors, as topk returns: the getitem that takes one out owns it
            self.refresh(node)
            owned = self._storage(storage)
            if owned.owner is None or is_resize_of_nothing(node):
                owned.owner = node
            elif owned.owner is not node:
                if base is None:
                    raise MutationError(
                        f"{node.name} shares memory that is written in place, but is not a view of the written tensor "
                        f"(for example, it may be the `.data` of a tensor). Write to the tensor itself."
                    )
                self._tensors[node].base = base

    def track_result(self, node: Node, written: Node) -> None:
        """Records the result of an in-place call, which is another name of the tensor that the call wrote to."""
        # the storage of that tensor: the node's own fake tensor sometimes has another one
        self._tensors[node] = _Tensor(self._tensor(written).storages, base=written)
        self.refresh(node)

    def record_write(self, owner: Node) -> None:
        """Records a write to the owner of a storage, which makes every view of it stale."""
        for storage in self._tensor(owner).storages:
            self._storage(storage).version += 1

    def refresh(self, node: Node) -> None:
        """Records that the rewritten value of a node is up to date."""
        tensor = self._tensor(node)
        tensor.version = self._version(tensor)

    def is_tracked(self, node: Node) -> bool:
        """Returns whether a node is on a storage that the graph writes to."""
        return node in self._tensors

    def is_stale(self, node: Node) -> bool:
        """Returns whether a view's storage was written after the view's value was computed.

        The owner of a storage is never stale, because each write gives it a new value.
        """
        tensor = self._tensors.get(node)
        return tensor is not None and tensor.base is not None and tensor.version != self._version(tensor)

    def base(self, node: Node) -> Node | None:
        """Returns the node of the tensor that a view was taken from; None for the owner of a storage.

        The result of an in-place call counts as a view of the written tensor. A piece of a split is a view of the
        tensor that was split.

        Raises:
            MutationError: the node is one of several new tensors that share memory.
        """
        tensor = self._tensors.get(node)
        if tensor is None or tensor.base is None:
            return None
        base = self.canonical(tensor.base)
        if not is_write(node.target) and not isinstance(base.meta.get("val"), torch.Tensor):
            (storage,) = tensor.storages
            viewed = _input_on(storage, base)
            if viewed is None:
                raise MutationError(
                    f"{node.name} is written in place and shares memory with another result of {base.target}; "
                    f"write to a clone of it."
                )
            return self.canonical(viewed)
        return base

    def written_placeholders(self) -> list[Node]:
        """Returns the placeholders that were written so far, in order."""
        owners = (storage.owner for storage in self._storages.values() if storage.version)
        return list(dict.fromkeys(node for node in owners if node is not None and node.op == "placeholder"))

    def _tensor(self, node: Node) -> _Tensor:
        if node not in self._tensors:
            self._tensors[node] = _Tensor(frozenset(_storage_ids(node)))
        return self._tensors[node]

    def _storage(self, storage: int) -> _Storage:
        return self._storages.setdefault(storage, _Storage())

    def _version(self, tensor: _Tensor) -> int:
        """Returns the total number of writes to the storages of a tensor, which every write to one of them changes."""
        return sum(self._storages[s].version for s in tensor.storages if s in self._storages)


def writes_by_storage(graph: Graph) -> dict[int, Node]:
    """Returns the first call that writes to each storage that a graph or the body of a region in it writes to."""
    writes: dict[int, Node] = {}
    for node in _all_nodes(graph):
        for written in written_arguments(node):
            for storage in _storage_ids(written):
                writes.setdefault(storage, node)
    return writes


def _storage_ids(node: Node) -> set[int]:
    """Returns the storages of a node's tensors."""
    if node.target is aten.dropout.default and (node.args[1] == 0 or node.args[2] is False):
        return _storage_ids(node.args[0])  # type: ignore[arg-type]  # returns its input, but its fake tensor is a copy
    return storage_ids(node.meta.get("val"))


RESIZES = frozenset({aten.resize_.default, aten.resize_as_.default})


def is_resize_of_nothing(node: Node) -> bool:
    """Returns whether a call gives sizes to a tensor without elements, so that nothing else has its elements."""
    if node.target not in RESIZES or not isinstance(node.args[0], Node):
        return False
    return bool(static(node.args[0].meta["val"].numel()) == 0)


def _input_on(storage: int, node: Node) -> Node | None:
    """Returns the first argument of a node that is on the storage."""
    return next((n for n in node.all_input_nodes if storage in _storage_ids(n)), None)


def _all_nodes(graph: Graph) -> Iterator[Node]:
    """Yields the nodes of a graph and of the bodies of its regions."""
    for node in graph.nodes:
        yield node
        if (region := region_body(node)) is not None:
            yield from _all_nodes(region[0])


# ---------------------------------------------------------------- functional variants of operators

# ATen names Python's augmented assignments after their methods.
_AUGMENTED = {
    "__iand__": "bitwise_and", "__ior__": "bitwise_or", "__ixor__": "bitwise_xor",
    "__ilshift__": "bitwise_left_shift", "__irshift__": "bitwise_right_shift",
}  # fmt: skip

# ``x.data = y`` in a captured program: torch 2.14 records the first call in strict mode. Otherwise torch drops the
# assignment, and only the second call remains, whose result is not used.
_DATA_ASSIGNMENTS = (aten.shallow_copy_data_.default, aten._has_compatible_shallow_copy_type.default)


def check_data_assignment(node: Node) -> None:
    """Raises a MutationError if a call is what torch.export makes of an assignment to ``Tensor.data``."""
    if node.target in _DATA_ASSIGNMENTS:
        raise MutationError(
            f"{node.name} is an assignment to Tensor.data, which torch.export does not capture correctly; "
            f"write tensor.copy_(value) instead."
        )


def is_write(target: Any) -> bool:
    """Returns whether a target writes to the elements of an argument; ``squeeze_``, for example, does not."""
    return isinstance(target, OpOverload) and target._schema.is_mutable and torch.Tag.inplace_view not in target.tags


def written_arguments(node: Node) -> list[Node]:
    """Returns the arguments that a call writes to, in the order in which its functional variant returns them."""
    target = node.target
    if target is aten.batch_norm.default:  # its schema does not declare that training updates the statistics
        statistics = [node.args[3], node.args[4]]
        return [n for n in statistics if isinstance(n, Node)] if node.args[5] is True else []
    if node.op != "call_function" or not is_write(target):
        return []
    written: list[Node] = []
    for index, argument in enumerate(target._schema.arguments):  # type: ignore[union-attr]
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
            written += [n for n in (value if isinstance(value, (list, tuple)) else (value,)) if isinstance(n, Node)]
    return written


def functional_variant(target: OpOverload) -> OpOverload:
    """Returns the operator that returns what ``target`` writes: ``add.Tensor`` for ``add_.Tensor`` and ``add.out``.

    Raises:
        MutationError: ATen has none.
    """
    variant = find_functional_variant(target)
    if variant is None:
        raise MutationError(
            f"{target} writes in place, and ATen has no operator that returns its result instead; call an operator "
            "that returns a new tensor."
        )
    return variant


@functools.cache
def find_functional_variant(target: OpOverload) -> OpOverload | None:
    """Returns the functional variant of an operator that writes; None if there is none."""
    name = target._schema.name.split("::")[1]
    name = _AUGMENTED.get(name, name.removesuffix("_"))
    wanted = _parameters(target)
    for namespace, packet_name in (
        (target.namespace, name),
        (target.namespace, f"{name}_functional"),
        ("fx_onnx", name),
    ):
        packet = getattr(getattr(torch.ops, namespace), packet_name, None)
        for overload in packet.overloads() if packet is not None else ():
            candidate: OpOverload = getattr(packet, overload)
            schema = candidate._schema
            if _parameters(candidate) == wanted and not schema.is_mutable and schema.returns:
                return candidate
    return None


def _parameters(target: OpOverload) -> list[tuple[str, str]]:
    """Returns names and types of the arguments that are read, except the first name, in which variants differ."""
    read = [a for a in target._schema.arguments if not a.is_out]
    return [("" if index == 0 else a.name, str(a.type)) for index, a in enumerate(read)]
