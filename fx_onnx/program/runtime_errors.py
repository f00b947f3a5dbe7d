"""Explains errors of ONNX Runtime: the operator, what translated it, and the line of the model's code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import onnx_ir as ir

from fx_onnx.core import metadata
from fx_onnx.core.errors import OnnxExporterError
from fx_onnx.core.messages import MessageId
from fx_onnx.passes.traversal import all_nodes, graphs_of
from fx_onnx.program.verification.fx_origin import TranslationOrigins

__all__ = ["explain_runtime_errors"]

_DOMAINS = ("ai.onnx", "com.microsoft", "com.ms.", "org.pytorch.aten")
"""How the domains begin whose operators are built into some build of ONNX Runtime."""


@contextmanager
def explain_runtime_errors(
    model: ir.Model, origins: TranslationOrigins | None = None, *, is_loaded: bool = False
) -> Iterator[None]:
    """Turns an error of ONNX Runtime into an OnnxExporterError of one sentence.

    Args:
        model: the model that ONNX Runtime loads or runs.
        origins: which functions translated the nodes of the model; None if that is unknown.
        is_loaded: whether the session exists, so that it has all operators.

    Raises:
        OnnxExporterError: ONNX Runtime lacks an operator of another domain than ONNX's, rejects the model, or fails at
            a node. The message names the operator, the user's translation and the line of the model's code.
    """
    try:
        yield
    except Exception as error:
        # The classes of these errors have no common base class.
        if type(error).__module__.startswith("onnxruntime") or type(error) is RuntimeError:
            text = ("" if is_loaded else _missing_operator(model, origins)) or _failure(model, str(error))
            raise OnnxExporterError(text, id=MessageId.RUNTIME) from error
        raise


def _missing_operator(model: ir.Model, origins: TranslationOrigins | None) -> str:
    """Returns a sentence about the first operator of a domain that ONNX Runtime does not have; empty without one."""
    local = {(function.domain, function.name) for function in model.functions.values()}
    for node in chain.from_iterable(map(all_nodes, graphs_of(model))):
        if not node.domain or node.domain.startswith(_DOMAINS) or (node.domain, node.op_type) in local:
            continue
        return (
            f"ONNX Runtime has no operator {node.domain}::{node.op_type}, {_purpose(node, origins)}; load the library "
            "that has it in the session of program.initialize_inference_session()."
        )
    return ""


def _purpose(node: ir.Node, origins: TranslationOrigins | None) -> str:
    """Returns the clause about the ATen operator of a node, its translation and its line."""
    _, _, name = node.metadata_props.get(metadata.NAMESPACE, "").rpartition(": ")[0].rpartition("/")
    translations = origins.custom_texts(name) if origins is not None else ""
    made = f"which the translation {translations} emits" if translations else "which a node of the model calls"
    return made + _origin("for", node)


def _origin(word: str, node: ir.Node | None) -> str:
    """Returns `` for aten.add (model.py:12)``, with the word before the operator; without what is not known."""
    if node is None:
        return ""
    operator, line = metadata.operator_of(node.metadata_props), metadata.source_line(node.metadata_props)
    return f"{f' {word} {operator}' if operator else ''}{f' ({line})' if line else ''}"


def _failure(model: ir.Model, text: str) -> str:
    """Returns a sentence about a node that failed, or about a model that was not loaded."""
    reason = " ".join(text.split()).removeprefix("[ONNXRuntimeError] :").strip()
    found = re.search(r"while running (\w+) node\. Name:'([^']*)' Status Message: (.*)", reason)
    if found is None:
        return f"ONNX Runtime does not run the model: {re.sub(r'^[0-9]+ : [A-Z_]+ : ', '', reason)}"
    nodes = chain.from_iterable(map(all_nodes, graphs_of(model)))
    node = next((each for each in nodes if each.name == found[2]), None)
    _, _, words = found[3].rpartition(" was false. ")  # what is before it is C++ code of ONNX Runtime
    return f"ONNX Runtime fails at the node {found[2]!r} ({found[1]}){_origin('of', node)}: {words}"
