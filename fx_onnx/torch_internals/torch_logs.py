"""Keeps torch's own log lines out of the user's output while a model is exported.

torch logs dumps of its internal state, such as the traceback of a failed attempt, before fx_onnx explains the failure
in one sentence. The lines go to the logger ``fx_onnx.torch`` at level DEBUG instead.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from fx_onnx.torch_internals.threads import in_this_thread

__all__ = ["redirect_torch_logs"]

_logger = logging.getLogger("fx_onnx.torch")

_TRACE = "torch.__trace"
"""The logger of the files that ``TORCH_TRACE`` asks for. Its handler removes itself at the first record if there is no
such file; as long as it is there, torch formats the stack of Python for each tensor and each size."""


@contextmanager
def redirect_torch_logs() -> Iterator[None]:
    """Redirects what torch logs in the current thread within the context; other threads log as before.

    The environment variable ``TORCH_LOGS`` asks for torch's logs, so nothing is redirected if it is set.
    """
    if "TORCH_LOGS" in os.environ:
        yield
        return
    redirect = in_this_thread(_Redirect().passes, bool)  # a record is true
    handlers = _handlers()
    for handler in handlers:
        handler.addFilter(redirect)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(redirect)


class _Redirect:
    """Declines the records of torch, and logs them as fx_onnx's."""

    def __init__(self) -> None:
        self._last: logging.LogRecord | None = None  # one record passes several handlers

    def passes(self, record: logging.LogRecord) -> bool:
        """Returns whether a handler may show a record."""
        if record.name.partition(".")[0] != "torch":
            return True
        if record is not self._last and _logger.isEnabledFor(logging.DEBUG):
            self._last = record
            _logger.debug("%s: %s", record.name, record.getMessage())
        return False


def _handlers() -> list[logging.Handler]:
    """Returns the handlers that may show a record of a logger of torch."""
    all_loggers = list(logging.root.manager.loggerDict.items())
    known = [logger for name, logger in all_loggers if name.partition(".")[0] == "torch" and name != _TRACE]
    loggers = [logging.root, *(logger for logger in known if isinstance(logger, logging.Logger))]
    last = [logging.lastResort] if logging.lastResort is not None else []
    return list(dict.fromkeys([*(handler for logger in loggers for handler in logger.handlers), *last]))
