"""Tells which exceptions the model raises and the exported model does not, because no ONNX operator raises one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch.export import ExportedProgram

from fx_onnx.core.metadata import call_line
from fx_onnx.core.operators import aten

__all__ = ["left_out_checks"]

_ASSERTIONS = (aten._assert_async.default, aten._assert_async.msg)


def left_out_checks(program: ExportedProgram, places: Iterable[str]) -> Iterator[str]:
    """Yields one sentence for each exception that the model raises if a condition on data holds.

    ``torch._check`` is none of them: with it, a model states what is always true.

    Args:
        program: The captured program, in which torch records some assertions as operators.
        places: The places of the exceptions that the capture left out, as ``(file:line: code)``.
    """
    graphs = [module.graph for module in program.graph_module.modules() if isinstance(module, torch.fx.GraphModule)]
    recorded = [call_line(node).strip() for graph in graphs for node in graph.nodes if node.target in _ASSERTIONS]
    recorded = ["" if place.startswith("(<") else place for place in recorded]  # the code of a branch is in no file
    for place in dict.fromkeys((*places, *recorded)):
        where = f" {place}" if place else ""
        yield f"The model raises an exception if a condition on data holds, and the exported model does not{where}."
