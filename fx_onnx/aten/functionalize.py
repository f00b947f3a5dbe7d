"""Functionalization: a program that writes in place → a pure program with more outputs.

torch.export captures writes as they are: ``relu_``, ``copy_`` into a slice, a counter that adds to a buffer. This stage
rewrites them (``functional_graph``). The new values of buffers and inputs become outputs of the program.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument
from torch.fx import Node

from fx_onnx.aten.alias_analysis import writes_by_storage
from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.aten.functional_graph import GraphAttributes, rewrite_writes
from fx_onnx.aten.shared_storages import share_storages
from fx_onnx.messages.errors import MutationError
from fx_onnx.onnx_model.metadata import call_line
from fx_onnx.onnx_model.weights import has_storage, overlap, same_memory
from fx_onnx.torch_internals.torch_private import pytree, storage_id

__all__ = ["functionalize", "repeated_weights"]


def functionalize(program: AtenProgram) -> AtenProgram:
    """Rewrites every write to a pure operator; final values of written buffers and inputs become the last outputs.

    Raises:
        MutationError: the program writes through a view that has no inverse, or in a branch or a loop body to a tensor
            from outside, or to memory that inputs or weights share; the message names the node.
    """
    share_storages(program.graph)  # of the nodes that a stage before has made
    attributes = GraphAttributes()
    graph, written = rewrite_writes(program.graph, attributes, repeated_weights(program.exported_program))
    input_specs = program.exported_program.graph_signature.input_specs
    specs = {spec.arg.name: spec for spec in input_specs if isinstance(spec.arg, TensorArgument)}
    mutations = []
    for placeholder, value in written.items():
        spec = specs[placeholder.name]
        is_input = spec.kind == InputKind.USER_INPUT
        kind = OutputKind.USER_INPUT_MUTATION if is_input else OutputKind.BUFFER_MUTATION
        target = placeholder.name if is_input else spec.target
        mutations.append(OutputSpec(kind, TensorArgument(name=value.name), target))
    return replace(
        program, graph=graph, mutations=tuple(mutations), constants=attributes.tensors, bodies=attributes.graphs
    )


# ---------------------------------------------------------------- memory that inputs and weights share

# In eager mode, a write to one tensor shows in every tensor that shares its memory. The inputs and the weights of an
# ONNX model are separate values, so the write would be lost there. Only several names of one weight become one value.

_KINDS = {InputKind.USER_INPUT: "argument", InputKind.BUFFER: "buffer", InputKind.PARAMETER: "parameter"}


def repeated_weights(program: ExportedProgram) -> dict[Node, Node]:
    """Returns the placeholders of weights that the program writes under another name, each with the first placeholder.

    A module that registers a tensor under two names has a placeholder for each of them.

    Raises:
        MutationError: the program writes to memory that an argument or a weight shares with another one otherwise.
    """
    writes = writes_by_storage(program.graph)
    if not writes:
        return {}
    repeated: dict[Node, Node] = {}
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    for (first, a), (second, b) in _on_one_storage(_tensors(program, specs)):
        storages = [storage_id(node.meta["val"]) for node in (first, second)]
        write = next((writes[storage] for storage in storages if storage in writes), None)
        if write is None or not overlap(a, b):
            continue
        are_weights = all(specs[node.name].kind != InputKind.USER_INPUT for node in (first, second))
        if not are_weights or not same_memory(a, b):
            names = " and the ".join(_label(specs[node.name]) for node in (first, second))
            remedy = "register one of them only, and slice it in the forward" if are_weights else "give it a clone"
            raise MutationError(
                f"The {names} share memory, to which the forward writes in place{call_line(write)}; the inputs and "
                f"weights of an ONNX model are separate, so {remedy}."
            )
        repeated.setdefault(second, first)
    return repeated


def _on_one_storage(tensors: Mapping[Node, torch.Tensor]) -> Iterator[tuple[tuple[Node, torch.Tensor], ...]]:
    """Yields the pairs of nodes whose tensors have one storage, in order."""
    groups: dict[int, list[tuple[Node, torch.Tensor]]] = {}
    for node, tensor in tensors.items():
        groups.setdefault(storage_id(tensor), []).append((node, tensor))
    for group in groups.values():
        yield from itertools.combinations(group, 2)


def _tensors(program: ExportedProgram, specs: Mapping[str, InputSpec]) -> dict[Node, torch.Tensor]:
    """Returns the weight or the example argument of each placeholder, without arguments that have no example."""
    arguments = pytree.tree_leaves(program.example_inputs) if program.example_inputs else []
    users = [name for name, spec in specs.items() if spec.kind == InputKind.USER_INPUT]
    known = dict(zip(users, arguments, strict=True)) if len(users) == len(arguments) else {}
    weights = {**program.constants, **program.state_dict}
    known.update((name, weights.get(spec.target)) for name, spec in specs.items() if name not in users)
    tensors = ((node, known.get(node.name)) for node in program.graph.find_nodes(op="placeholder"))
    return {node: tensor for node, tensor in tensors if isinstance(tensor, torch.Tensor) and has_storage(tensor)}


def _label(spec: InputSpec) -> str:
    name = spec.arg.name if spec.kind == InputKind.USER_INPUT else spec.target
    return f"{_KINDS.get(spec.kind, 'tensor')} {name!r}"
