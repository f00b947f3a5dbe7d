"""Which leaves of a module's result are outputs of the ONNX graph.

Tensors, sizes and Python numbers are outputs, in the order of the leaves; None and texts are not. The new values of
buffers and inputs follow.
"""

from collections.abc import Sequence
from types import NoneType
from typing import TypeVar

from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, OutputKind, OutputSpec

Leaf = TypeVar("Leaf")


def is_graph_output(spec: OutputSpec) -> bool:
    """Returns whether a captured output becomes an output of the ONNX graph."""
    return not (isinstance(spec.arg, ConstantArgument) and isinstance(spec.arg.value, (str, NoneType)))


def result_specs(program: ExportedProgram) -> list[OutputSpec]:
    """Returns the specs of the leaves of the module's result, without the new values of buffers and inputs."""
    return [spec for spec in program.graph_signature.output_specs if spec.kind == OutputKind.USER_OUTPUT]


def graph_leaves(program: ExportedProgram, leaves: Sequence[Leaf]) -> list[Leaf]:
    """Returns those of the leaves of the result that are graph outputs, in the order of the graph outputs.

    Args:
        program: the captured program.
        leaves: one item for each leaf of the result: a value, a name or a path.
    """
    return [leaf for spec, leaf in zip(result_specs(program), leaves, strict=True) if is_graph_output(spec)]
