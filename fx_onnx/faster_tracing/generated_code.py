"""Code of traced graphs: generated for the graph of the program, not for the modules that torch.export drops."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from fx_onnx.faster_tracing.replacement import Replacement

__all__ = ["REPLACEMENTS"]

_logger = logging.getLogger("torch.export._trace")


class _Artifact:
    """One call of ``_export_to_aten_ir_make_fx`` in progress.

    Attributes:
        tracer: What traces the graph of the program; None before.
        waiting: Other modules whose code is out of date, by id, while passes run; None before and after the passes.
    """

    tracer: Any = None
    waiting: dict[int, Any] | None = None


def _make(
    recompile: Callable[..., Any], produce: Callable[..., Any], trace: Callable[..., Any], export: Callable[..., Any]
) -> Sequence[Callable[..., Any]]:
    """Returns ``recompile``, which leaves out code that nothing reads, and the functions between which it does.

    ``_export_to_aten_ir_make_fx`` traces a graph into a module, and passes change it. Each of them ends with code for
    the module. Then ``_export_for_training`` makes the ``ExportedProgram``, which has a new module with the same graph
    and with code of its own, and drops the first module. All that happens in between reads the graph. So a module of
    the first graph that is traced gets no code until ``_export_to_aten_ir_make_fx`` returns. The log of
    torch.export._trace would print the code, so its messages for debugging turn this off.

    Modules of graphs within it are in the program. They are complete, because a new module gets code at once. While
    ``_produce_aten_artifact`` runs the passes, none of them is run, so they get their newer code when it returns.
    Where something raises, the modules are lost. No code of a user runs after the trace.
    """
    active: list[_Artifact] = []

    def recompile_later(self: Any) -> Any:
        if active and (artifact := active[-1]).tracer is not None:
            if self._graph is getattr(artifact.tracer, "graph", None):
                return None
            if artifact.waiting is not None and "_code" in vars(self):
                artifact.waiting[id(self)] = self
                return None
        return recompile(self)

    def produce_with_code(*args: Any, **kwargs: Any) -> Any:
        if not active:
            return produce(*args, **kwargs)
        waiting = active[-1].waiting = {}
        try:
            result = produce(*args, **kwargs)
        finally:
            active[-1].waiting = None
        for module in waiting.values():
            recompile(module)
        return result

    def trace_first(root: Any, tracer: Any, concrete_args: Any = None) -> Any:
        if active and active[-1].tracer is None:
            active[-1].tracer = tracer
        return trace(root, tracer, concrete_args)

    def export_without_code(*args: Any, **kwargs: Any) -> Any:
        if _logger.isEnabledFor(logging.DEBUG):
            return export(*args, **kwargs)
        active.append(_Artifact())
        try:
            return export(*args, **kwargs)
        finally:
            active.pop()

    return recompile_later, produce_with_code, trace_first, export_without_code


REPLACEMENTS = (
    Replacement(
        (
            "torch.fx.graph_module:GraphModule.recompile",
            "torch.export._trace:_produce_aten_artifact",
            "torch.fx.experimental.proxy_tensor:dispatch_trace",
            "torch.export._trace:_export_to_aten_ir_make_fx",
        ),
        _make,
        "Code for the whole graph is generated and compiled after the trace and after each of five passes.",
        repeats=(
            "torch._export.utils:apply_runtime_assertion_pass",
            "torch._export.utils:placeholder_naming_pass",
            "torch._export.utils:_name_hoo_subgraph_placeholders",
            "torch._export.non_strict_utils:produce_guards_and_solve_constraints",
            "torch._export.passes.replace_autocast_with_hop_pass:replace_autocast_with_hop_pass",
            "torch._export.passes.replace_set_grad_with_hop_pass:replace_set_grad_with_hop_pass",
            "torch._export.passes.replace_with_hop_pass_util:_replace_with_hop_pass_helper",
            "torch.export._trace:_export_for_training",
            "torch.export._trace:_get_module_call_graph",
            "torch.export._trace:_non_strict_export",
            "torch.export._trace:_preserve_requires_grad_pass",
            "torch.export.exported_program:ExportedProgram.__init__",
            "torch.export.exported_program:_create_graph_module_for_export",
            "torch.fx._lazy_graph_module:_make_graph_module",
            "torch.fx.experimental.proxy_tensor:_MakefxTracer._trace_inner",
            "torch.fx.experimental.proxy_tensor:_MakefxTracer.trace",
            "torch.fx.graph_module:GraphModule.__init__",
            "torch.fx.graph_module:GraphModule._recompile_submodules",
        ),
    ),
)
