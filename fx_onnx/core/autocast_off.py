"""Disables the autocast that is enabled around an export."""

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
        a function whose context manager enables it again, so that a captured forward records it as a region;
        ``nullcontext`` itself where no autocast was enabled.
    """
    on = [(device, torch.get_autocast_dtype(device)) for device in _DEVICES if torch.is_autocast_enabled(device)]

    @contextmanager
    def as_before() -> Iterator[None]:
        with ExitStack() as stack:
            for device, dtype in on:
                stack.enter_context(torch.autocast(device, dtype=dtype))
            yield

    with ExitStack() as stack:
        for device, _ in on:
            stack.enter_context(torch.autocast(device, enabled=False))
        yield as_before if on else nullcontext
