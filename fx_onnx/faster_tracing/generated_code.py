"""Code of traced graphs: generated once after several passes over a graph, not after each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fx_onnx.faster_tracing.replacement import Replacement

__all__ = ["REPLACEMENTS"]


def _make(recompile: Callable[..., Any], produce: Callable[..., Any]) -> Sequence[Callable[..., Any]]:
    """Returns ``recompile``, which waits while ``_produce_aten_artifact`` runs, and this function.

    ``_produce_aten_artifact`` runs passes over the graph that torch has traced. Each of them ends with code for the
    module, which nothing reads or runs until the function returns: the passes read the graph. The last pass that
    changes the graph, the one that names the placeholders, generates code after its last change, so code that is
    generated at the end is the same. Where the passes raise, the module is lost. Only a module that has code waits, so
    a new one has all its attributes. No code of a user runs there.
    """
    waiting: list[dict[int, Any]] = []  # by id, the modules whose code is out of date; a dict for each call in progress

    def recompile_later(self: Any) -> Any:
        if not waiting or "_code" not in vars(self):
            return recompile(self)
        waiting[-1][id(self)] = self
        return None

    def produce_with_code(*args: Any, **kwargs: Any) -> Any:
        waiting.append({})
        try:
            result = produce(*args, **kwargs)
        finally:
            modules = waiting.pop()
        for module in modules.values():
            recompile(module)
        return result

    return recompile_later, produce_with_code


REPLACEMENTS = (
    Replacement(
        ("torch.fx.graph_module:GraphModule.recompile", "torch.export._trace:_produce_aten_artifact"),
        _make,
        "Code for the whole graph is generated and compiled after each of five passes.",
        repeats=(
            "torch._export.utils:apply_runtime_assertion_pass",
            "torch._export.utils:placeholder_naming_pass",
            "torch._export.utils:_name_hoo_subgraph_placeholders",
            "torch._export.passes.replace_autocast_with_hop_pass:replace_autocast_with_hop_pass",
            "torch._export.passes.replace_set_grad_with_hop_pass:replace_set_grad_with_hop_pass",
            "torch._export.passes.replace_with_hop_pass_util:_replace_with_hop_pass_helper",
            "torch.export._trace:_preserve_requires_grad_pass",
        ),
    ),
)
