"""The record that the ATen stages pass on: a captured program with a graph that they may rewrite."""

from __future__ import annotations

from dataclasses import dataclass, field

import sympy
import torch
from torch.export.graph_signature import OutputSpec
from torch.fx import Graph

from fx_onnx.messages.errors import TranslationError, first_line


@dataclass(frozen=True)
class AtenProgram:
    """An ExportedProgram together with a graph of its computation, which the ATen stages rewrite.

    Attributes:
        exported_program: the captured program, which no stage edits; ``lower_vmap`` replaces it by a batched one.
        graph: the FX graph. Its placeholders and user outputs are those of the ExportedProgram, in the same order;
            the outputs of ``mutations`` follow the user outputs. ``functionalize`` replaces the captured graph, whose
            ``get_attr`` nodes name attributes of its module, by a copy whose ``get_attr`` nodes name ``constants``
            and ``bodies``.
        mutations: an output specification for each buffer and input that the program writes to.
        constants: the tensors that ``get_attr`` nodes name.
        bodies: the graphs of higher-order operators (branches, loop bodies) that ``get_attr`` nodes name.
        size_relations: the equations of symbolic sizes that decompositions rely on, each with the call that requires
            it. The program is right only for sizes that satisfy them, and so are the calls themselves.
    """

    exported_program: torch.export.ExportedProgram
    graph: Graph
    mutations: tuple[OutputSpec, ...]
    constants: dict[str, torch.Tensor]
    bodies: dict[str, Graph]
    size_relations: dict[sympy.Eq, str] = field(default_factory=dict)

    @classmethod
    def captured(cls, exported_program: torch.export.ExportedProgram) -> AtenProgram:
        """Returns a captured program before any stage: its graph is the captured graph itself."""
        return cls(exported_program, exported_program.graph, (), {}, {})

    @property
    def graphs(self) -> list[Graph]:
        """The main graph and all bodies."""
        return [self.graph, *self.bodies.values()]


def lower_vmap(program: AtenProgram) -> AtenProgram:
    """Replaces ``vmap`` regions by batched operators. torch.export marks a region by a call before and a call after it.

    Only torch itself can batch a region, by tracing the program again. A program without one is returned unchanged.

    Raises:
        TranslationError: torch cannot batch a region.
    """
    exported = program.exported_program
    if not any(getattr(n.target, "__name__", "") == "_vmap_increment_nesting" for n in exported.graph.nodes):
        return program
    try:
        return AtenProgram.captured(exported.run_decompositions({}))
    except RuntimeError as error:
        raise TranslationError(
            f"torch cannot batch what vmap, or a function that calls it such as jacrev, computes: {first_line(error)}; "
            "make the dims static, or write the computation with an axis for the batch."
        ) from error
