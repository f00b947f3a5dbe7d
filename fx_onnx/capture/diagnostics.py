"""Explains in one sentence why torch.export could not capture a module: torch's reason, the user's line, a remedy."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.utils.rnn import PackedSequence

from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.core.messages import MessageId
from fx_onnx.core.size_text import without_symbols
from fx_onnx.core.source_lines import innermost_line
from fx_onnx.core.torch_private import export_trace_module

# A phrase in torch's message → the remedy to suggest.
_REMEDIES = {
    "do not support aliasing": "return clones of the operands from a branch or loop body, `x.clone()` instead of `x`",
    "data-dependent": "write control flow that depends on values with torch.cond or while_loop, or declare with "
    "torch._check what is always true",
    "Data-dependent": "write a branch that depends on values with torch.cond",
    "same metadata": "keep the shape and dtype of each carried tensor the same in all iterations of a loop",
    "merging two branches": "let both branches return tensors of the same dtype and rank",
    "no fake impl": "register a fake implementation with torch.library.register_fake, which returns results of the "
    "right shapes and dtypes",
    "in output, which is not a known type": "return tensors in tuples, lists and dicts, or register the class with "
    "torch.export.register_dataclass",
}
# A phrase in torch's message → what it means, where torch's own words need knowledge of torch.
_NUMBER_NEEDED = "the code needs a number that is known only when the model runs"
_MEANINGS = {
    "Could not guard on data-dependent expression": "the code branches on a value that is known only when the model "
    "runs",
    "Could not extract specialized integer from data-dependent": _NUMBER_NEEDED,
}
# torch converts a number to a Python number by a condition that is the number's symbol alone, as in `int(x.sum())`.
_CONVERTED_NUMBER = re.compile(r"Could not guard on data-dependent expression z?uf?\d+ ")
# The class of an error of torch whose message is the name of an operator or internal → what it means.
_KINDS = {
    "DynamicOutputShapeException": "the sizes of the results of {} depend on data",
    "UnsupportedOperatorException": "torch has no fake implementation of {}, which infers the shapes of its results",
    "PendingUnbackedSymbolNotFound": "an operator computes a size that depends on data, and none of its results has it",
}
_KIND_REMEDIES = {
    "DynamicOutputShapeException": "call another overload or another operator, whose results have sizes that follow "
    "from the shapes of its inputs",
    "UnsupportedOperatorException": "use another operator, or register a fake implementation with "
    "torch.library.register_fake",
    "PendingUnbackedSymbolNotFound": "compute this with operators whose results have sizes that follow from the shapes "
    "of their inputs",
}
_DYNAMIC_FLOAT_REMEDY = ", or leave a float argument out of dynamic_shapes, which makes it a constant"
_DEFAULT_REMEDY = "check that the model runs on these arguments without exporting it"
_DIM_REMEDY = (
    "change dynamic_shapes as suggested, or give the dim a string as its name, because a named dim may be static"
)
_PACKED_SEQUENCE_REMEDY = (
    "a PackedSequence can be captured only if pack_padded_sequence creates it within the forward: pass the padded "
    "sequences and their lengths as arguments"
)


def explain_failure(model: torch.nn.Module, error: Exception, has_dynamic_floats: bool = False) -> str:
    """Returns one sentence about an error that torch.export raised for the model.

    Args:
        model: The model.
        error: The error.
        has_dynamic_floats: Whether dynamic_shapes makes a float argument dynamic. torch has the same symbols for it and
            for floats that are read from tensors.
    """
    remedy = _PACKED_SEQUENCE_REMEDY if _has_packed_sequence(error) else _remedy(str(error))
    if _needs_value(error):
        remedy = "compute with tensors there, for example with torch.where"
    if has_dynamic_floats and "data-dependent expression zuf" in str(error):
        remedy += _DYNAMIC_FLOAT_REMEDY
    remedy = _KIND_REMEDIES.get(type(error).__name__, remedy)
    return f"torch.export could not capture {type(model).__name__}: {summarize(error)}{user_line(error)}; {remedy}."


# A phrase in torch's message → the kind of the failure; the first phrase that occurs decides.
_IDS = {
    "Could not guard on data-dependent": MessageId.BRANCH_ON_DATA,
    "Data-dependent": MessageId.BRANCH_ON_DATA,
    "data-dependent": MessageId.NUMBER_FROM_DATA,
    "no fake impl": MessageId.FAKE_KERNEL,
    "in output, which is not a known type": MessageId.OUTPUT_CLASS,
    "aliasing": MessageId.CONTROL_FLOW,
    "same metadata": MessageId.CONTROL_FLOW,
    "merging two branches": MessageId.CONTROL_FLOW,
}


def failure_id(error: Exception) -> MessageId:
    """Returns the kind of a failure of torch.export."""
    text = str(error)
    if _needs_value(error) or _CONVERTED_NUMBER.search(text):
        return MessageId.NUMBER_FROM_DATA
    if type(error).__name__ == "UnsupportedOperatorException":
        return MessageId.FAKE_KERNEL
    if is_dim_conflict(text):
        return MessageId.DIM_CONFLICT
    found = next((id for phrase, id in _IDS.items() if phrase in text), None)
    return found or MessageId.FORWARD_FAILED


def summarize(error: Exception) -> str:
    """Returns the type of an error and the essential part of its message, in one line."""
    if _needs_value(error):
        operator = str(error).removesuffix(".default")
        return f"the code needs the result of {operator}, which is known only when the model runs"
    if (kind := _KINDS.get(type(error).__name__)) is not None:
        return kind.format(str(error).partition("\n")[0].removesuffix(".default"))
    essence = without_symbols(_essence(str(error)))
    return essence if essence in _MEANINGS.values() else f"{type(error).__name__}: {essence}"


def _needs_value(error: Exception) -> bool:
    """Returns whether an operator returns a Python value that depends on data; torch's message is its name alone."""
    return type(error).__name__ == "DataDependentOutputException"


@contextmanager
def silence_torch_export() -> Iterator[None]:
    """Prevents torch from printing the graph of each failed attempt; the error has it as ``partial_fx_graph``."""
    module = export_trace_module()
    if module is None:
        yield
        return
    with (
        replace_attribute(module, "print", lambda *_, **__: None),
        replace_attribute(module.log, "handle", lambda record: None),
    ):
        yield


def is_dim_conflict(text: str) -> bool:
    """Returns whether a message of torch reports that a dim cannot be dynamic in the requested way."""
    return any(phrase in text for phrase in ("Suggested fixes", "dim hint", "as dynamic but your code specialized"))


def _essence(text: str) -> str:
    """Returns the lines of torch's message that name the problem, without the explanations that follow them."""
    if _CONVERTED_NUMBER.search(text):
        return _NUMBER_NEEDED
    for phrase, meaning in _MEANINGS.items():
        if phrase in text:
            return meaning
    inner = re.search(r"""got (\w+)\((["'])(.+?)\2\)""", text, re.DOTALL)  # the error that dynamo has wrapped
    if inner is not None:
        return f"{inner[1]}: {_first_sentence(inner[3])}"
    _, _, after = text.partition("Got graph break/error:")
    lines = [line.strip() for line in (after or text).splitlines() if line.strip()] or ["no message"]
    conflicts = [line[2:] for line in lines if line.startswith("- ")]
    if not conflicts and lines[0].endswith(":"):
        return " ".join(map(_first_sentence, lines[:2]))
    return ", ".join(map(_first_sentence, conflicts or lines[:1]))


def _first_sentence(line: str) -> str:
    return line.partition(". ")[0].partition(" (unhinted")[0].rstrip(".")


def _remedy(text: str) -> str:
    if is_dim_conflict(text):
        return _DIM_REMEDY
    return next((remedy for phrase, remedy in _REMEDIES.items() if phrase in text), _DEFAULT_REMEDY)


def _has_packed_sequence(error: Exception) -> bool:
    """Returns whether a local variable in the traceback is a PackedSequence; torch's message does not mention it."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(isinstance(each, PackedSequence) for frame in frames for each in frame.f_locals.values())


def user_line(error: Exception) -> str:
    """Returns ` (file:line: code)` for the user's code that raised an error; empty if none of its frames is.

    The error of a TorchScript model has the line of the model as ``script_source``.
    """
    if hasattr(error, "script_source"):
        return str(error.script_source)
    return _after_space(innermost_line(traceback.extract_tb(error.__traceback__)))


def calling_line() -> str:
    """Returns ` (file:line: code)` for the user's code that called the current function."""
    return _after_space(innermost_line(traceback.extract_stack()))


def _after_space(place: str) -> str:
    return f" {place}" if place else ""
