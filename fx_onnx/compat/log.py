"""``enable_log`` and ``disable_log``: the log of the exporter on stderr.

It is the log of Python's ``logging`` under the name ``fx_onnx``: at DEBUG, each stage logs its time and its decisions,
and each pass logs why it leaves a node that nearly matches.
"""

from __future__ import annotations

import logging

__all__ = ["disable_log", "enable_log", "is_onnx_log_enabled"]

_logger = logging.getLogger("fx_onnx")
_handler = logging.StreamHandler()
_handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))


def enable_log() -> None:
    """Prints the log of the exporter to stderr, in this process."""
    _logger.setLevel(logging.DEBUG)
    _logger.addHandler(_handler)


def disable_log() -> None:
    """Stops the log that ``enable_log`` started."""
    _logger.setLevel(logging.NOTSET)
    _logger.removeHandler(_handler)


def is_onnx_log_enabled() -> bool:
    """Returns whether the exporter logs at DEBUG, after ``enable_log`` or by the caller's own settings of logging."""
    return _logger.isEnabledFor(logging.DEBUG)
