"""Metadata properties that tell where each ONNX node and value comes from.

The keys and formats are those of PyTorch's "torch.export-based ONNX Exporter" documentation page.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch.fx
from onnx_ir import Value

from fx_onnx.messages.source_lines import is_internal, portable_stack_trace, traced_lines

NAMESPACE = "namespace"
CLASS_HIERARCHY = "pkg.torch.onnx.class_hierarchy"
FX_NODE = "pkg.torch.onnx.fx_node"
NAME_SCOPES = "pkg.torch.onnx.name_scopes"
STACK_TRACE = "pkg.torch.onnx.stack_trace"
GRAPH_SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
RANGE_CONSTRAINTS = "pkg.torch.export.ExportedProgram.range_constraints"
INPUT_KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
INPUT_PERSISTENT = "pkg.torch.export.graph_signature.InputSpec.persistent"
OUTPUT_KIND = "pkg.torch.export.graph_signature.OutputSpec.kind"
OUTPUT_TARGET = "pkg.torch.export.graph_signature.OutputSpec.target"
ORIGINAL_NODE_NAME = "pkg.torch.onnx.original_node_name"

# The key with which torch.export marks a node that comes from no module's code.
_NO_STACK = "_empty_nn_module_stack_from_metadata_hook"

# Our keys in the metadata of an FX node: the text, the name and the target of the captured node that it was part of
# before decomposition.
SOURCE_TEXT = "fx_onnx.source_text"
SOURCE_NAME = "fx_onnx.source_name"
SOURCE_TARGET = "fx_onnx.source_target"

# In the ``meta`` of an FX node or an ONNX value: marks a constant that the exporter computed, unlike a weight.
FOLDED = "fx_onnx.folded"

# In the ``meta`` of an ONNX tensor: marks an entry of the state_dict, unlike a constant.
OF_STATE_DICT = "fx_onnx.of_state_dict"

# In the ``meta`` of an ONNX value: marks a weight that the caller supplies or trains. Passes must not compute another
# weight from it.
KEPT = "fx_onnx.kept"

# In the ``meta`` of an ONNX node: the torch operator that the node calls, because it has no ONNX form.
FALLBACK = "fx_onnx.fallback"

# In the ``meta`` of an ONNX node: the model calls the ONNX operator itself, through torch.onnx.ops.
EXPLICIT = "fx_onnx.explicit"

# In the ``meta`` of an ONNX node that a runtime cannot run on an empty tensor: for each axis of its input, whether the
# size is dynamic.
DYNAMIC_AXES = "fx_onnx.dynamic_axes"

# In the ``meta`` of an ONNX value: its first axis is not empty.
FILLED = "fx_onnx.filled"

# In the ``meta`` of an ONNX node: the function of the user's rule whose result the node computes, or reads.
RULE = "fx_onnx.rule"

# In the ``meta`` of an ONNX value: the dtype that torch.onnx.ops.symbolic declares for it, if torch has no such dtype.
DECLARED_DTYPE = "fx_onnx.declared_dtype"

# In the ``meta`` of an FX node: the places of the results that have other shapes for some data (container of int).
OPEN_SHAPES = "fx_onnx.open_shapes"
# In the ``meta`` of an ONNX model: the names of the dims whose size depends on data, so that it may be 0 (frozenset).
DATA_DEPENDENT_DIMS = "fx_onnx.data_dependent_dims"

# In the ``meta`` of an ONNX model: its files declare the user's inputs and outputs without metadata properties, as
# those of the TorchScript exporter. Tools that were written for that exporter compare the declarations with ``==``.
BARE_DECLARATIONS = "fx_onnx.bare_declarations"


def note_dynamic_axes(value: Value, sizes: Sequence[object]) -> None:
    """Notes at the node of a value which of these sizes of its input are dynamic."""
    if (node := value.producer()) is not None:
        node.meta[DYNAMIC_AXES] = [not isinstance(size, int) for size in sizes]


def qualified_name(cls: Any) -> str:
    """Returns the dotted name of a module class, which torch records as a class or as its name."""
    if isinstance(cls, str):
        return cls
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _scope(item: tuple[str, tuple[str, Any]]) -> tuple[str, Any]:
    """Returns a module's path and class. A second call of a module has its own scope ``path@1``, as in torch's key."""
    key, (path, cls) = item
    _, again, number = key.rpartition("@")
    return f"{path}@{number}" if again else path, cls


@lru_cache(maxsize=4096)
def _scopes(stack: tuple[tuple[str, tuple[str, Any]], ...]) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Returns (namespace, classes, module paths) of one module stack."""
    scopes = tuple((name, qualified_name(cls)) for name, cls in map(_scope, stack) if name != _NO_STACK)
    namespace = "".join(f"{name}: {cls}/" for name, cls in scopes)
    return namespace, tuple(cls for _, cls in scopes), tuple(name for name, _ in scopes)


def of_fx_node(node: torch.fx.Node) -> dict[str, str]:
    """Returns the metadata properties of every ONNX node that an FX node becomes.

    A node that comes from a decomposition gets the text and the name of the captured node. The properties are equal in
    all processes and checkouts. In particular, the paths in the stack trace are relative.
    """
    meta = node.meta
    namespace, classes, paths = _scopes(tuple((meta.get("nn_module_stack") or {}).items()))
    name = meta.get(SOURCE_NAME, node.name)
    target = meta.get(SOURCE_TARGET) or str(node.target)
    return {
        NAMESPACE: f"{namespace}{name}: {target}",
        CLASS_HIERARCHY: repr([*classes, target]),
        NAME_SCOPES: repr([*paths, name]),
        FX_NODE: meta.get(SOURCE_TEXT) or str(node.format_node()),
        STACK_TRACE: portable_stack_trace(meta.get("stack_trace") or ""),
    }


def module_scopes(properties: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Returns the (path, class) of each module around an ONNX node, the outermost first.

    A node without these properties, or with properties in another form, is in no module.
    """
    return _parsed_scopes(properties.get(NAME_SCOPES, "[]"), properties.get(CLASS_HIERARCHY, "[]"))


@lru_cache(maxsize=4096)
def _parsed_scopes(paths: str, classes: str) -> tuple[tuple[str, str], ...]:
    try:
        scopes = ast.literal_eval(paths)[:-1], ast.literal_eval(classes)[:-1]
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # the model is from another exporter
        return ()
    return tuple(zip(*scopes, strict=False))


def call_line(node: torch.fx.Node) -> str:
    """Returns ` (file:line: code)` for the call of the forward that made a node; empty without a stack trace.

    It is the innermost line of the user's code or of a library, or else of torch's own.
    """
    lines = traced_lines(node.meta.get("stack_trace") or "")
    lines = tuple(line for line in lines if not is_internal(line.path)) or lines
    return f" ({lines[-1].place}: {lines[-1].code})" if lines else ""


def source_line(properties: Mapping[str, str]) -> str:
    """Returns ``file:line`` of the innermost frame of a node's stack trace; empty if the node has none."""
    lines = traced_lines(properties.get(STACK_TRACE, ""))
    return lines[-1].place if lines else ""


def operator_of(properties: Mapping[str, str]) -> str:
    """Returns the torch operator that a node computes, such as ``aten.index_put``; empty if that is unknown."""
    target = properties.get(NAMESPACE, "").rpartition(": ")[2]
    return target.removesuffix(".default") if re.fullmatch(r"\w+(\.\w+)+", target) else ""


def merged(first: dict[str, str], second: dict[str, str]) -> dict[str, str]:
    """Returns the properties of a node that replaces two: the scope of ``first``, both FX nodes and stack traces."""
    result = {**second, **first}
    for key in (FX_NODE, STACK_TRACE):
        texts = [props[key] for props in (first, second) if props.get(key)]
        if texts:
            result[key] = "\n".join(dict.fromkeys(texts))
    return result
