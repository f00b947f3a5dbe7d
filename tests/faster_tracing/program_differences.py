"""Compares two ExportedPrograms of one model: everything that torch.export writes, and which values share memory."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

Row = dict[str, Any]


def differences(first: ExportedProgram, second: ExportedProgram) -> list[str]:
    """Returns a line for each difference; the places of objects in memory and numbers of generated files are none."""
    one, other = list(_rows(first.graph_module)), list(_rows(second.graph_module))
    found = [f"{len(one)} and {len(other)} nodes"] if len(one) != len(other) else []
    for row, pair in zip(one, other, strict=False):
        found += [
            f"{row['name']}.{key}: {row.get(key)} and {pair.get(key)}"
            for key in {**row, **pair}
            if row.get(key) != pair.get(key)
        ]
    facts, others = _facts(first), _facts(second)
    return found + [f"{key}: {facts[key]} and {others[key]}" for key in facts if facts[key] != others[key]]


def _rows(module: fx.GraphModule, prefix: str = "") -> Iterator[Row]:
    groups: dict[int, int] = {}
    yield {"name": prefix, "code": _text(module.code), "type": type(module).__name__, "keys": sorted(vars(module))}
    for node in module.graph.nodes:
        row = {"name": prefix + node.name, "op": node.op, "target": _text(node.target), "type": str(node.type)}
        row |= {"args": _arguments(node.args), "kwargs": _arguments(node.kwargs), "keys": list(node.meta)}
        yield row | {key: _value(value, groups) for key, value in node.meta.items()}
    for name, child in module.named_children():
        if isinstance(child, fx.GraphModule):
            yield from _rows(child, f"{prefix}{name}/")


def _arguments(arguments: Any) -> str:
    return _text(fx.node.map_arg(arguments, lambda node: f"%{node.name}"))


def _value(value: Any, groups: dict[int, int]) -> Any:
    """Returns a value of the metadata in a form that can be compared; tensors have the number of their storage."""
    if isinstance(value, torch.Tensor):
        facts = [type(value), value.dtype, value.shape, value.device, value.layout, value.requires_grad, value.is_leaf]
        facts += [value.is_conj(), value.is_neg(), sorted(vars(value))]
        if value.layout == torch.strided:
            facts += [value.stride(), value.storage_offset()]
            with contextlib.suppress(NotImplementedError):  # a tensor in vmap, or of a subclass
                facts.append(groups.setdefault(value.untyped_storage()._cdata, len(groups)))
        return _text(facts)
    if isinstance(value, (list, tuple)):
        return type(value), [_value(each, groups) for each in value]
    if isinstance(value, dict):
        return type(value), [(_text(key), _value(each, groups)) for key, each in value.items()]
    return type(value), _text(value)


def _text(value: Any) -> str:
    return re.sub(r"<eval_with_key>\.\d+|0x[0-9a-f]{6,}", "", value if isinstance(value, str) else repr(value))


def _facts(program: ExportedProgram) -> dict[str, Any]:
    """Returns what a program has besides its graph."""
    return {
        "signature": _text(program.graph_signature),
        "ranges": [(str(key), str(value)) for key, value in program.range_constraints.items()],
        "calls": [(call.fqn, _text(call.signature)) for call in program.module_call_graph],
        "specs": _text(program.call_spec),
        "weights": [(name, id(value)) for name, value in program.state_dict.items()],
        "constants": [(name, type(value), _content(value)) for name, value in program.constants.items()],
        "meta": sorted(program.graph_module.meta),
        "guards": _text(program._guards_code),
        "verifiers": program.verifiers,
        "leaves": pytree.tree_structure(program.example_inputs),
    }


def _content(value: Any) -> str:
    return _text(value.tolist() if isinstance(value, torch.Tensor) and value.layout == torch.strided else value)
