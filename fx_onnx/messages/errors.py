"""The errors and the warning of fx_onnx.

A message states in one or two sentences what is wrong and what the user can do.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, cast

from fx_onnx.messages.message_ids import Finding, MessageId, place_in, with_id


class _OnnxError(RuntimeError):
    """The base of ``OnnxExporterError`` until the first error is made."""


class OnnxExporterError(_OnnxError):
    """The base class of all errors of fx_onnx. Catch it to catch every failure of an export.

    It derives from torch's class of this name, so that code that catches the failures of torch.onnx catches these too.
    Torch takes long to import the class, so it becomes the base when the first error is made.

    Attributes:
        id: the kind of the failure, for example ``FX1302``, which ``str()`` shows and ``fx-onnx explain`` explains.
        findings: what the export found before it failed.
    """

    id: MessageId = MessageId.EXPORT
    findings: tuple[Finding, ...] = ()

    def __init__(self, message: str = "", *, id: MessageId | None = None) -> None:
        super().__init__(message)
        if OnnxExporterError.__bases__ == (_OnnxError,) and "torch.onnx" in sys.modules:
            base = getattr(sys.modules["torch.onnx"], "OnnxExporterError", _OnnxError)
            if base is not OnnxExporterError:  # as while torch.onnx goes through fx_onnx
                cast(Any, OnnxExporterError).__bases__ = (base,)
        if id is not None:
            self.id = id

    @property
    def message(self) -> str:
        """The message without the id, for a message of which this error is the cause."""
        return str(self.args[0]) if self.args else ""

    @property
    def place(self) -> str:
        """The line of the model's code that the message names, for example ``model.py:12``; empty if it names none."""
        return place_in(self.message)

    def __str__(self) -> str:
        return with_id(self.message, self.id)


class ArgumentError(OnnxExporterError, ValueError):
    """An argument of a public function is not valid."""

    id: MessageId = MessageId.ARGUMENT


class UnknownArgumentError(ArgumentError, TypeError):
    """A function was called with an argument that it does not have, for which Python raises a TypeError."""

    id: MessageId = MessageId.UNKNOWN_ARGUMENT


class CaptureError(OnnxExporterError):
    """torch.export could not capture the model. ``__context__`` is the error of torch."""

    id: MessageId = MessageId.CAPTURE


class UnsupportedOperatorError(OnnxExporterError):
    """The program calls operators that have neither a translation nor a decomposition. The message lists them all.

    Attributes:
        operators: the operators, as torch prints them.
    """

    id: MessageId = MessageId.UNSUPPORTED_OPERATOR

    operators: tuple[str, ...] = ()


class MutationError(OnnxExporterError):
    """An in-place write has no functional form, for example a write to a view that cannot be inverted."""

    id: MessageId = MessageId.WRITE_IN_PLACE


class TranslationError(OnnxExporterError):
    """One FX node could not be translated. The message names the node, its arguments and its source line."""

    id: MessageId = MessageId.TRANSLATION


class CheckerError(OnnxExporterError):
    """The ONNX checker or ONNX shape inference rejects the model."""

    id: MessageId = MessageId.INVALID_MODEL


class VerificationError(OnnxExporterError):
    """The results of the ONNX program and of the PyTorch module differ."""

    id: MessageId = MessageId.RESULTS_DIFFER


class MissingPackageError(OnnxExporterError, ImportError):
    """A package that fx_onnx needs is not installed, or cannot be imported."""

    id: MessageId = MessageId.MISSING_PACKAGE


class PluginError(OnnxExporterError):
    """A plug-in of an installed package cannot be used."""

    id: MessageId = MessageId.PLUGIN


class OnnxExporterWarning(UserWarning):
    """The export continues, but not exactly as requested. For example, a dynamic dim became static."""


def first_line(error: Exception) -> str:
    """Returns the type of an error and the first line of its message, for a message of which the error is the cause."""
    text = error.message if isinstance(error, OnnxExporterError) else str(error)
    return f"{type(error).__name__}: {next(iter(text.splitlines()), 'no message')}"


def no_effect(argument: str, reason: str) -> None:
    """Logs at DEBUG, to the logger ``fx_onnx.export``, that an argument of ``export`` changes nothing, and why."""
    logging.getLogger("fx_onnx.export").debug("%s has no effect: %s", argument, reason)
