"""What the progress bar costs: the time inside its hooks and updates, as a share of the export that shows it.

    python -m benchmarks.progress_cost

Prints a table. Two exports that differ by one percent cannot be told apart on a busy machine.
Therefore, this script times each call that exists only for the bar, with a clock around the call: the hooks of the
modules, their registration and removal, the reports of the stages, and the bar of tqdm. The last column is what is not
inside such a call: torch calls a module with a hook through a longer path. An empty hook shows how long that takes.
"""

from __future__ import annotations

import statistics
import sys
import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

import fx_onnx
from benchmarks.models import BENCHMARKS
from fx_onnx import pipeline
from fx_onnx.capture import capture
from fx_onnx.messages import progress
from fx_onnx.program.progress_bar import ProgressBar

ROUNDS = 3


class Stopwatch:
    """Adds up the time that passes inside the wrapped calls. A call inside another one counts once."""

    def __init__(self) -> None:
        self.seconds, self.calls, self.hooked_calls, self._depth = 0.0, 0, 0, 0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function with a clock around it."""

        def call(*args: Any) -> Any:
            self.start()
            result = function(*args)
            self.stop()
            return result

        return call

    def registration(self, register: Callable[..., Any]) -> Callable[..., Any]:
        """Returns ``Module.register_forward_pre_hook`` for hooks with a clock around them."""

        def registered(module: nn.Module, hook: Callable[..., Any]) -> Any:
            def call(*args: Any) -> Any:
                self.hooked_calls += 1
                self.start()
                hook(*args)
                self.stop()

            return register(module, call)

        return registered

    def timed_context(self, manager: Callable[..., AbstractContextManager[Any]]) -> Callable[..., Any]:
        """Returns a context manager whose beginning and end are timed, and not what runs inside it."""

        @contextmanager
        def context(*args: Any) -> Iterator[Any]:
            self.start()
            inner = manager(*args)
            value = inner.__enter__()
            self.stop()
            yield value
            self.start()
            inner.__exit__(None, None, None)
            self.stop()

        return context

    def start(self) -> None:
        """Starts the clock, unless it runs."""
        self._depth += 1
        if self._depth == 1:
            self.calls += 1
            self._began = time.perf_counter()

    def stop(self) -> None:
        """Stops the clock at the end of the outermost call."""
        now = time.perf_counter()
        self._depth -= 1
        if self._depth == 0:
            self.seconds += now - self._began


class Small(nn.Module):
    """900 modules of 600 small layers, each traced in milliseconds: many calls of hooks for a second of export."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(300))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, 8) to (batch, 8)."""
        for layer in self.layers:
            x = layer(x)
        return x


def clocks(watch: Stopwatch) -> ExitStack:
    """Returns a context in which everything that exists only for the bar is timed."""
    stack = ExitStack()
    report = progress.report_progress
    for name, module in list(sys.modules.items()):
        if name.startswith("fx_onnx") and getattr(module, "report_progress", None) is report:
            stack.enter_context(patch.object(module, "report_progress", watch.timed(report)))
    stack.enter_context(patch.object(ProgressBar, "start", watch.timed(ProgressBar.start)))
    stack.enter_context(patch.object(pipeline, "progress_bar", watch.timed_context(pipeline.progress_bar)))
    entered = watch.timed_context(capture.report_entered_modules)
    stack.enter_context(patch.object(capture, "report_entered_modules", entered))
    stack.enter_context(
        patch.object(nn.Module, "register_forward_pre_hook", watch.registration(nn.Module.register_forward_pre_hook))
    )
    return stack


def seconds_of_hooked_call() -> float:
    """Returns how much longer torch takes to call a module with an empty hook than without one."""
    module, hooked = nn.Identity(), nn.Identity()
    hooked.register_forward_pre_hook(lambda *_: None)
    x = torch.ones(1)
    plain, longer = (min(timeit.repeat(lambda each=each: each(x), number=2000, repeat=5)) for each in (module, hooked))
    return max(longer - plain, 0.0) / 2000


def main() -> None:
    """Prints the table."""
    models: dict[str, tuple[nn.Module, tuple[Any, ...], dict[str, Any], Any]] = {
        "900 modules of 600 small layers": (Small().eval(), (torch.randn(3, 8),), {}, ({0: "batch"},))
    }
    for name in ("resnet50", "bert_base"):
        inputs = BENCHMARKS[name].inputs()
        models[name] = (BENCHMARKS[name].build(), inputs.args, inputs.kwargs, BENCHMARKS[name].dynamic_shapes)
    print(
        "| model | export | calls | in the calls | share | torch's longer path for modules with hooks |\n"
        "|---|---|---|---|---|---|"
    )
    longer = seconds_of_hooked_call()
    for name, (model, args, kwargs, shapes) in models.items():
        fx_onnx.export(model, args, kwargs=kwargs, dynamic_shapes=shapes, progress=True)
        rows = []
        for _ in range(ROUNDS):
            watch, begin = Stopwatch(), time.perf_counter()
            with clocks(watch):
                fx_onnx.export(model, args, kwargs=kwargs, dynamic_shapes=shapes, progress=True)
            rows.append((time.perf_counter() - begin, watch.seconds, watch.calls, watch.hooked_calls * longer))
        whole, seconds, calls, hooked = (statistics.median(column) for column in zip(*rows, strict=True))
        print(
            f"| {name} | {whole:.2f} s | {calls:,} | {1e3 * seconds:.1f} ms | {seconds / whole:.2%} "
            f"| {hooked / whole:.2%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
