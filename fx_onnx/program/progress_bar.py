"""The progress bar of an export, which appears after two seconds on a terminal and in a notebook."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from fx_onnx.messages.progress import hide_progress, hides_progress, progress_to, running_part

__all__ = ["ProgressBar", "is_interactive", "progress_bar"]

_DELAY_SECONDS = 2.0
# A bar of tqdm takes a third of a millisecond to draw, which would be most of the cost of the progress.
_SECONDS_BETWEEN_DRAWINGS = 0.25
# The share of each stage of the time of an export, in percent; the others take next to no time.
_SHARES = {"capture": 74, "decompose": 5, "translate": 5, "optimize": 5, "verify": 6, "save": 5}


class ProgressBar:
    """Shows the stage that runs, and the share of the export that is done.

    Args:
        bar: a bar of tqdm whose total is 100.
        stages: the names of the stages that run.
    """

    def __init__(self, bar: Any, stages: Collection[str]) -> None:
        self._bar = bar
        running = {name: share for name, share in _SHARES.items() if name in stages}
        self._shares = {name: 100 * share / sum(running.values()) for name, share in running.items()}
        self._before = self._share = 0.0
        self._appears = self._next_drawing = time.monotonic() + _DELAY_SECONDS

    def start(self, stage: str) -> None:
        """Shows that a stage begins. A stage that may be long is shown at once."""
        self._before += self._share
        self._share = self._shares.get(stage, 0.0)
        self._bar.set_description_str(" ".join(filter(None, (running_part(), stage))), refresh=False)
        if stage in self._shares:
            self._next_drawing = self._appears
        self.within(0, 1)

    def within(self, done: int, total: int) -> None:
        """Shows that ``done`` of ``total`` steps of the stage are done. A repeated capture does not move it back.

        A stage calls this for each of its steps, so the call reads the clock and does nothing else until the bar is to
        be drawn again.
        """
        now = time.monotonic()
        if now < self._next_drawing:
            return
        self._next_drawing = now + _SECONDS_BETWEEN_DRAWINGS
        self._bar.n = max(self._bar.n, self._before + self._share * min(done / total, 1.0))
        self._bar.delay = 0  # tqdm clears no bar that it ends within its delay, in which `refresh` draws too
        self._bar.refresh()


@contextmanager
def progress_bar(wanted: bool | None, stages: Collection[str]) -> Iterator[ProgressBar | None]:
    """Yields the bar of an export; removes it from the terminal afterwards, also after an error or Ctrl-C.

    Args:
        wanted: whether to show a bar; None shows it if ``is_interactive()``, and False hides the bar of a save too.
        stages: the names of the stages that run.
    """
    if wanted is False or (wanted is None and hides_progress()):
        with hide_progress():
            yield None
        return
    if not (wanted or is_interactive()):
        yield None
        return
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        monitor_interval = 0  # no thread for one bar

    form = "{desc} {percentage:3.0f}% {bar} {elapsed}"
    with Bar(total=100, delay=_DELAY_SECONDS, leave=False, bar_format=form, file=sys.stderr, dynamic_ncols=True) as bar:
        shown = ProgressBar(bar, stages)
        with progress_to(shown.within):
            yield shown


def is_interactive() -> bool:
    """Returns whether standard error is a terminal or the output of a notebook, and no CI service runs the process."""
    stream = sys.stderr
    in_notebook = type(stream).__module__.startswith("ipykernel")
    is_terminal = stream is not None and hasattr(stream, "isatty") and stream.isatty()
    return (in_notebook or is_terminal) and not os.environ.get("CI")
