"""The private names of TorchScript that the package uses, beside those in torch_private.py.

The docstring of each function says what happens without the name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fx_onnx.torch_internals.guard_private import SCRIPT_MARK

__all__ = [
    "inlined_call",
    "script_attributes",
    "script_class",
    "script_method",
    "script_methods",
    "set_script_line",
]


def inlined_call(node: Any) -> Any:
    """Returns a TorchScript graph that contains only the call ``node``, with the body of the function inlined.

    ``node`` is a ``prim::CallFunction``, or a ``prim::CallMethod`` of a TorchScript class. A function in a graph has no
    public graph of its own. Without the classes and the inliner of TorchScript: AttributeError.
    """
    graph: Any = torch._C.Graph()
    values: list[Any] = []
    for value in node.inputs():
        if value.type().kind() == "FunctionType":
            values.append(graph.insertNode(graph.createClone(value.node(), lambda argument: argument)).output())
        else:
            values.append(graph.addInput())
            values[-1].setType(value.type())
    call = graph.insertNode(graph.create(node.kind(), values, node.outputsSize()))
    call.copyAttributes(node)
    for own, output in zip(call.outputs(), node.outputs(), strict=True):
        own.setType(output.type())
        graph.registerOutput(own)
    torch._C._jit_pass_inline(graph)
    return graph


def script_method(module: Any, name: str) -> Any:
    """Returns a method of a ScriptModule with its ``graph`` and ``schema``, or None if the module lacks it.

    The public attribute of a traced module is a Python function without them. Without the attribute: AttributeError.
    """
    return module._c._get_method(name) if module._c._has_method(name) else None


def script_methods(module: Any) -> tuple[str, ...]:
    """Returns the names of the compiled methods of a ScriptModule; without the attribute, only ``forward``."""
    names: Callable[[], Sequence[str]] = getattr(module._c, "_method_names", lambda: ("forward",))
    return tuple(name for name in names() if module._c._has_method(name))


def script_class(module: Any) -> str:
    """Returns the qualified name of a ScriptModule's class in TorchScript; without the attribute, its short name."""
    return str(getattr(module._c, "qualified_name", module.original_name))


def script_attributes(module: Any) -> tuple[str, ...]:
    """Returns the names of the attributes of a ScriptModule; without the attribute, none."""
    kind = getattr(module, "_concrete_type", None)
    return tuple(kind.get_attributes()) if kind is not None else ()


def set_script_line(file: str, line: int) -> None:
    """Tells torch which line of a TorchScript model the capture runs; without a file, that it runs none.

    torch stores the line as the place of the guards that it records. Without the class or its attributes, and outside
    of a capture, there is no effect; a warning about a guard then gives no place.
    """
    context = _tracing_context()
    if context is not None and hasattr(context, "loc_in_frame"):
        context.loc_in_frame = (f"{SCRIPT_MARK}{file}", line, "forward") if file else None


def _tracing_context() -> Any:
    return getattr(getattr(torch._guards, "TracingContext", None), "try_get", bool)() or None
