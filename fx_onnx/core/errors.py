"""The errors and the warning of fx_onnx.

A message states in one or two sentences what is wrong and what the user can do.
"""

import inspect
import logging
import warnings


class OnnxExporterError(RuntimeError):
    """The base class of all errors of fx_onnx. Catch it to catch every failure of an export."""


class ArgumentError(OnnxExporterError, ValueError):
    """An argument of a public function is not valid."""


class UnknownArgumentError(ArgumentError, TypeError):
    """A function was called with an argument that it does not have, for which Python raises a TypeError."""


class CaptureError(OnnxExporterError):
    """torch.export could not capture the model. ``__context__`` is the error of torch."""


class UnsupportedOperatorError(OnnxExporterError):
    """The program calls operators that have neither a translation nor a decomposition. The message lists them all.

    Attributes:
        operators: the operators, as torch prints them.
    """

    operators: tuple[str, ...] = ()


class MutationError(OnnxExporterError):
    """An in-place write has no functional form, for example a write to a view that cannot be inverted."""


class TranslationError(OnnxExporterError):
    """One FX node could not be translated. The message names the node, its arguments and its source line."""


class CheckerError(OnnxExporterError):
    """The ONNX checker or ONNX shape inference rejects the model."""


class VerificationError(OnnxExporterError):
    """The results of the ONNX program and of the PyTorch module differ."""


class MissingPackageError(OnnxExporterError, ImportError):
    """A package that fx_onnx needs is not installed, or cannot be imported."""


class OnnxExporterWarning(UserWarning):
    """The export continues, but not exactly as requested. For example, a dynamic dim became static."""


def first_line(error: Exception) -> str:
    """Returns the type of an error and the first line of its message, for a message of which the error is the cause."""
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), 'no message')}"


def warn(message: str, category: type[Warning] = OnnxExporterWarning) -> None:
    """Issues a warning. Python shows it at the line of the user's code that called fx_onnx."""
    level, frame = 1, inspect.currentframe()
    internal = {__name__.partition(".")[0], "contextlib"}  # contextlib runs the context managers of fx_onnx
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in internal:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def no_effect(argument: str, reason: str) -> None:
    """Logs at DEBUG, to the logger ``fx_onnx.export``, that an argument of ``export`` changes nothing, and why."""
    logging.getLogger("fx_onnx.export").debug("%s has no effect: %s", argument, reason)
