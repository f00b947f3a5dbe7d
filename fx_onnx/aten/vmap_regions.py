"""Lowering of ``torch.vmap`` regions to batched operators."""

from __future__ import annotations

from fx_onnx.aten.aten_program import AtenProgram


def lower_vmap(program: AtenProgram) -> AtenProgram:
    """Replaces ``vmap`` regions by batched operators. torch.export marks a region by a call before and a call after it.

    Only torch itself can batch a region, by tracing the program again. A program without one is returned unchanged.
    """
    exported = program.exported_program
    if any(getattr(n.target, "__name__", "") == "_vmap_increment_nesting" for n in exported.graph.nodes):
        return AtenProgram.captured(exported.run_decompositions({}))
    return program
