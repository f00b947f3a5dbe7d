"""Functionalization: a program that writes in place → a pure program with more outputs.

torch.export captures writes as they are: ``relu_``, ``copy_`` into a slice, a counter that adds to a buffer. This stage
rewrites them (``functional_graph``). The new values of buffers and inputs become outputs of the program.
"""

from __future__ import annotations

from dataclasses import replace

from torch.export.graph_signature import InputKind, OutputKind, OutputSpec, TensorArgument

from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.aten.functional_graph import GraphAttributes, rewrite_writes
from fx_onnx.aten.shared_memory import repeated_weights


def functionalize(program: AtenProgram) -> AtenProgram:
    """Rewrites every write to a pure operator; final values of written buffers and inputs become the last outputs.

    Raises:
        MutationError: the program writes through a view that has no inverse, or in a branch or a loop body to a tensor
            from outside, or to memory that inputs or weights share; the message names the node.
    """
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
