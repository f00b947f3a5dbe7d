"""Sets aside what the caller has chosen for the precision of operators, during an export: autocast, and cuDNN's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import Any

import torch
from torch.backends import cudnn

__all__ = ["autocast_disabled", "one_cudnn_precision"]

_DEVICES = ("cpu", "cuda")


@contextmanager
def autocast_disabled() -> Iterator[Callable[[], AbstractContextManager[Any]]]:
    """Disables any autocast that the caller has enabled, on every device.

    Yields:
        a function that returns a context manager which enables the autocast again, so that the capture records the
        forward as an autocast region; ``nullcontext`` itself if no autocast was enabled.
    """
    enabled = [(device, torch.get_autocast_dtype(device)) for device in _DEVICES if torch.is_autocast_enabled(device)]

    @contextmanager
    def enable_again() -> Iterator[None]:
        with ExitStack() as stack:
            for device, dtype in enabled:
                stack.enter_context(torch.autocast(device, dtype=dtype))
            yield

    with ExitStack() as stack:
        for device, _ in enabled:
            stack.enter_context(torch.autocast(device, enabled=False))
        yield enable_again if enabled else nullcontext


@contextmanager
def one_cudnn_precision() -> Iterator[None]:
    """Gives convolutions and recurrent layers one precision in cuDNN, if torch.export would raise an error otherwise.

    torch.export reads ``cudnn.allow_tf32``, which torch refuses after ``cudnn.conv.fp32_precision`` or
    ``cudnn.rnn.fp32_precision`` is set. The precision is float32 within the context, as other threads may compute.
    """
    flags: Any = cudnn  # which is a module to mypy
    try:
        flags.allow_tf32  # noqa: B018  raises
    except RuntimeError:
        operators = flags.conv, flags.rnn
        before = [operator.fp32_precision for operator in operators]
        with suppress(RuntimeError):  # torch's own tests forbid it, and torch.export then tells why it fails
            flags.allow_tf32 = False
        try:
            yield
        finally:
            for operator, precision in zip(operators, before, strict=True):
                operator.fp32_precision = precision
    else:
        yield
