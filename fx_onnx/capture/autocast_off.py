"""Disables the caller's autocast during an export."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch

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
