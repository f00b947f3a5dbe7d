"""ATen operators that write: their written arguments, and the variants that return the new values instead."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.fx import Node

import fx_onnx.core.custom_ops  # noqa: F401  defines the variants that ATen lacks
from fx_onnx.core.errors import MutationError
from fx_onnx.core.operators import aten
from fx_onnx.core.torch_private import OpOverload

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
    found: list[Node] = []
    for index, argument in enumerate(target._schema.arguments):  # type: ignore[union-attr]
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
            found += [n for n in (value if isinstance(value, (list, tuple)) else (value,)) if isinstance(n, Node)]
    return found


def functional_variant(target: OpOverload) -> OpOverload:
    """Returns the operator that returns what ``target`` writes: ``add.Tensor`` for ``add_.Tensor`` and ``add.out``.

    Raises:
        MutationError: ATen has none.
    """
    variant = find_functional_variant(target)
    if variant is None:
        raise MutationError(f"{target} writes in place and ATen has no variant of it that returns the result instead.")
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
