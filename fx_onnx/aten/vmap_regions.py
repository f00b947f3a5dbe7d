"""Lowering of ``torch.vmap`` regions to batched operators."""

from __future__ import annotations

from fx_onnx.aten.aten_program import AtenProgram


def lower_vmap(program: AtenProgram) -> AtenProgram:
    """Replaces ``vmap`` regions, which torch.export captures as a pair of calls around them, by batched operators.

    Only torch itself can batch a region, by tracing the program again. A program without one is returned unchanged.
    """
    exported = program.exported_program
    if any(getattr(n.target, "__name__", "") == "_vmap_increment_nesting" for n in exported.graph.nodes):
        return AtenProgram.captured(exported.run_decompositions({}))
    return program
