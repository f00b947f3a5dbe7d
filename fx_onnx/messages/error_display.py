"""Decides what Python shows of an error of an export: the user's line and the message, without the frames inside.

A traceback through torch and fx_onnx has some 300 lines, and the sentence that explains the failure is the last one.
"""

from __future__ import annotations

import logging
from types import TracebackType

from fx_onnx.messages.errors import CaptureError, OnnxExporterError
from fx_onnx.messages.source_lines import is_internal

__all__ = ["for_users"]

_logger = logging.getLogger("fx_onnx.export")


def for_users(error: OnnxExporterError) -> OnnxExporterError:
    """Returns the error without its traceback, which then starts where it is raised again.

    Its cause is shown if code of the user raised it, such as a translation function, and then only the frames of such
    code. Otherwise the message contains what matters of the cause, which stays in ``error.__context__``. The logger
    ``fx_onnx.export`` logs everything at level DEBUG.
    """
    _logger.debug("The export failed.", exc_info=error)
    cause = error.__cause__
    frames = None if cause is None or isinstance(error, CaptureError) else _without_internal(cause.__traceback__)
    if cause is not None and frames is not None:
        cause.__traceback__ = frames
    else:
        error.__cause__, error.__context__ = None, cause or error.__context__
    error.__suppress_context__ = True
    error.__traceback__ = None
    return error


def _without_internal(traceback: TracebackType | None) -> TracebackType | None:
    """Returns a traceback without the frames of torch, fx_onnx and Python's library; None if no frame is left."""
    if traceback is None:
        return None
    rest = _without_internal(traceback.tb_next)
    frame = traceback.tb_frame
    if is_internal(frame.f_code.co_filename):
        return rest
    return TracebackType(rest, frame, traceback.tb_lasti, traceback.tb_lineno)
