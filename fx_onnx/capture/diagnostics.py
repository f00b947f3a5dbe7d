"""Explains in one sentence why torch.export could not capture a module: torch's reason, the user's line, a remedy.

The warnings of torch's own files do not reach the user. They are about torch's internals, such as a deprecated function
that torch itself calls. Warnings at lines of the user's code or of a library are shown. The exporter itself warns about
assigned attributes if results depend on them.
"""

from __future__ import annotations

import logging
import os
import re
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.messages.source_lines import innermost_line
from fx_onnx.sizes.size_text import without_symbols
from fx_onnx.torch_internals.dynamo_private import TRACING_MODULES

HINT_OF_1 = "is 1 in the example, and torch.export makes a program for this size alone"
"""The part of a message that tells of ``Dim.DYNAMIC`` for an axis of size 1 that the model fixes."""

_logger = logging.getLogger("fx_onnx.torch")
_ASSIGNED_ATTRIBUTE = re.compile(r"The tensor attributes? .* (was|were) assigned during export")
_AUTOGRAD = re.compile(r"requires grad|is a view and is being modified inplace|requires_grad=True")
_TORCH_FOLDER = str(Path(torch.__file__).parent) + os.sep


@dataclass(frozen=True)
class _Failure:
    """A kind of failure.

    Attributes:
        sign: A pattern in ``class: message`` of the error. Its group is the name of an operator.
        id: The page about the failure.
        remedy: What the user can do.
        meaning: What the message means, where torch's own words need knowledge of torch; empty for other messages.
    """

    sign: str
    id: MessageId
    remedy: str
    meaning: str = ""


_CONTROL_FLOW = (
    "write control flow that depends on values with torch.cond or while_loop, declare with torch._check what is always "
    "true, or give an argument that is the same in each call as a Python number, not a tensor"
)
_STATIC_SIZES = "whose results have sizes that follow from the shapes of its inputs"
_NOT_TRACED = _Failure(
    r"customized tensor|JIT Tracing",
    MessageId.FORWARD_FAILED,
    "torch.export cannot trace this: write it with other operators of torch, or compute it before the forward",
)
_FAILURES = (
    _Failure(
        r"^DataDependentOutputException: (\S+?)(?:\.default)?$",
        MessageId.NUMBER_FROM_DATA,
        "compute with tensors there, for example with torch.where",
        "the code needs the result of {}, which is known only when the model runs",
    ),
    _Failure(
        r"^DynamicOutputShapeException: (\S+?)(?:\.default)?$",
        MessageId.FORWARD_FAILED,
        f"call another overload or another operator, {_STATIC_SIZES}",
        "the sizes of the results of {} depend on data",
    ),
    _Failure(
        r"^UnsupportedOperatorException: (\S+?)(?:\.default)?$",
        MessageId.FAKE_KERNEL,
        "use another operator, or register a fake implementation with torch.library.register_fake",
        "torch has no fake implementation of {}, which infers the shapes of its results",
    ),
    _Failure(
        r"^PendingUnbackedSymbolNotFound: ",
        MessageId.FORWARD_FAILED,
        f"compute this with another operator, {_STATIC_SIZES}",
        "an operator computes a size that depends on data, and none of its results has it",
    ),
    _Failure(
        r"dim hint .* specialized due to hint of 1 for dimension (\S+?)\.?$",
        MessageId.DIM_CONFLICT,
        "use an example that is larger there, or give the dim a string as its name, because a named dim may be static",
        f"{{}} {HINT_OF_1}",
    ),
    _Failure(
        r"Suggested fixes|dim hint|as dynamic but your code specialized",
        MessageId.DIM_CONFLICT,
        "change dynamic_shapes as suggested, or give the dim a string as its name, because a named dim may be static",
    ),
    _Failure(
        r"not in range \[|to be of the form .*, where|to be equal to .*, where \S+ = ",
        MessageId.DIM_CONFLICT,
        "give an example with sizes that the Dims allow, or change the Dims",
    ),
    _Failure(  # a number is converted by a condition that is its symbol alone, as in `int(x.sum())`
        r"guard on data-dependent expression z?uf?\d+ |extract specialized integer from data-dependent",
        MessageId.NUMBER_FROM_DATA,
        _CONTROL_FLOW,
        "the code needs a number that is known only when the model runs",
    ),
    _Failure(
        r"Could not guard on data-dependent expression",
        MessageId.BRANCH_ON_DATA,
        _CONTROL_FLOW,
        "the code branches on a value that is known only when the model runs",
    ),
    _Failure(
        r"aliasing",
        MessageId.CONTROL_FLOW,
        "return clones of the operands from a branch or loop body, `x.clone()` instead of `x`",
    ),
    _Failure(
        r"same metadata",
        MessageId.CONTROL_FLOW,
        "keep the shape and dtype of each carried tensor the same in all iterations of a loop",
    ),
    _Failure(
        r"merging two branches",
        MessageId.CONTROL_FLOW,
        "let both branches return tensors of the same dtype and rank",
    ),
    _Failure(
        r"no fake impl",
        MessageId.FAKE_KERNEL,
        "register a fake implementation with torch.library.register_fake, which returns results of the right shapes "
        "and dtypes",
    ),
    _Failure(
        r"in output, which is not a known type",
        MessageId.OUTPUT_CLASS,
        "return tensors in tuples, lists and dicts, or register the class with torch.export.register_dataclass",
    ),
    _Failure(r"Data-dependent", MessageId.BRANCH_ON_DATA, "write a branch that depends on values with torch.cond"),
    _Failure(r"data-dependent", MessageId.NUMBER_FROM_DATA, _CONTROL_FLOW),
    _Failure(
        r"^(?!Declaration: ).*(?<!torch\.)\bSym(Int|Float|Bool)\b",  # a declaration has SymInt for each size
        MessageId.FORWARD_FAILED,
        "an argument there follows from a dynamic size, and torch takes plain numbers only: compute it without the "
        "size, or leave the dim out of dynamic_shapes",
    ),
    _Failure(
        r"e\.g\. FakeTensor|FakeTensor\.__|'meta' device",
        MessageId.FORWARD_FAILED,
        "torch.export traces the forward without the values of tensors: compute this with operators of torch, or "
        "before the forward",
    ),
    _NOT_TRACED,
)
_OWN_ERROR = _Failure("", MessageId.FORWARD_FAILED, "check that the model runs on these arguments without exporting it")
_DYNAMIC_FLOAT_REMEDY = ", or leave a float argument out of dynamic_shapes, which makes it a constant"
_PACKED_SEQUENCE_REMEDY = (
    "a PackedSequence can be captured only if pack_padded_sequence creates it within the forward: pass the padded "
    "sequences and their lengths as arguments"
)


def explain_failure(
    model: torch.nn.Module, error: Exception, has_dynamic_floats: bool = False, converts_number: bool = False
) -> str:
    """Returns one sentence about an error that torch.export raised for the model.

    Args:
        model: The model.
        error: The error.
        has_dynamic_floats: Whether dynamic_shapes makes a float argument dynamic. torch has the same symbols for it and
            for floats that are read from tensors.
        converts_number: Whether the code calls ``int`` or ``float`` with a tensor.
    """
    remedy = _PACKED_SEQUENCE_REMEDY if _has_packed_sequence(error) else _failure(error).remedy
    if converts_number:
        remedy = f"write x.item() for int(x) and float(x) in a condition, or {remedy}"
    if has_dynamic_floats and "data-dependent expression zuf" in str(error):
        remedy += _DYNAMIC_FLOAT_REMEDY
    return f"torch.export could not capture {type(model).__name__}: {summarize(error)}{user_line(error)}; {remedy}."


def failure_id(error: Exception) -> MessageId:
    """Returns the kind of a failure of torch.export."""
    return _failure(error).id


def summarize(error: Exception) -> str:
    """Returns the type of an error and the essential part of its message, in one line."""
    failure = _failure(error)
    if failure.meaning:
        return failure.meaning.format(*re.findall(failure.sign, _text(error), re.MULTILINE))
    is_own = failure is _OWN_ERROR and "\n" not in str(error)
    return f"{type(error).__name__}: {without_symbols(str(error).rstrip('. ') if is_own else _essence(str(error)))}"


def is_broadcast_conflict(text: str) -> bool:
    """Returns whether a message of torch reports that two sizes differ and neither is known to be 1."""
    return "must match the size of tensor b" in text or "Attempting to broadcast a dimension" in text


def is_of_gradients(error: Any) -> bool:
    """Returns whether autograd refuses what the forward does, so that it may run under ``torch.no_grad()`` only."""
    return isinstance(error, RuntimeError) and bool(_AUTOGRAD.search(str(error)))


def is_dim_conflict(text: str) -> bool:
    """Returns whether a message of torch reports that a dim cannot be dynamic in the requested way."""
    return any(re.search(kind.sign, text) for kind in _FAILURES if kind.id is MessageId.DIM_CONFLICT)


def _failure(error: Exception) -> _Failure:
    """Returns the first kind whose sign is in the error.

    Otherwise the error is about the trace if torch's tracer raised it or has its class. All others come from Python
    code or from the check of an operator, so the forward raises them without an export too.
    """
    failure = next((kind for kind in _FAILURES if re.search(kind.sign, _text(error), re.MULTILINE)), None)
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    raised_by = f"{frames[-1].f_globals.get('__name__', '')}." if frames else ""
    is_of_trace = f"{type(error).__module__}.".startswith(TRACING_MODULES) or raised_by.startswith(TRACING_MODULES)
    return failure or (_NOT_TRACED if is_of_trace else _OWN_ERROR)


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _essence(text: str) -> str:
    """Returns the lines of torch's message that name the problem, without the explanations that follow them."""
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


@contextmanager
def redirect_torch_warnings() -> Iterator[None]:
    """Logs the warnings of torch's files at level DEBUG within the context, in the current thread."""
    show = warnings.showwarning

    def showwarning(message: Any, category: type[Warning], filename: str, lineno: int, *rest: Any) -> None:
        if filename.startswith(_TORCH_FOLDER) or _ASSIGNED_ATTRIBUTE.match(str(message)):
            _logger.debug("%s:%d: %s: %s", filename, lineno, category.__name__, message)
        else:
            show(message, category, filename, lineno, *rest)

    with replace_attribute(warnings, "showwarning", showwarning):
        yield


def _has_packed_sequence(error: Exception) -> bool:
    """Returns whether a local variable in the traceback is a PackedSequence that the forward has not made.

    torch's message does not mention it. One that the forward has made remembers its padded form.
    """
    values = (value for frame, _ in traceback.walk_tb(error.__traceback__) for value in frame.f_locals.values())
    given = (value for value in values if type(value) is PackedSequence)
    return any(not hasattr(value.batch_sizes, "padded_sequence") for value in given)


def user_line(error: Exception) -> str:
    """Returns ` (file:line: code)` for the user's code that raised an error; empty if none of its frames is.

    The error of a TorchScript model has the line of the model as ``script_source``.
    """
    own = innermost_line(traceback.extract_tb(error.__traceback__))
    return str(getattr(error, "script_source", _after_space(own)))


def calling_line() -> str:
    """Returns ` (file:line: code)` for the user's code that called the current function."""
    return _after_space(innermost_line(traceback.extract_stack()))


def _after_space(line: str) -> str:
    return f" {line}" if line else ""
