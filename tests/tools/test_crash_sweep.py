"""The sweep for inputs that end ONNX Runtime's process: it finds an end, and none in programs that avoid it."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tools import crash_sweep

PROGRAMS = {each.name: each for each in crash_sweep._own_programs()}
AVOIDED = [
    "attention_by_einsum", "einsum_of_two_labels", "einsum_over_rows", "rows_of_einsum", "rows_of_LSTM", "rows_of_GRU",
    "rows_of_GRU_of_steps", "packed_LSTM", "packed_GRU", "rows_of_MultiheadAttention_of_steps", "index_by_division",
    "LSTM", "GRU", "GRU_of_steps", "MultiheadAttention_of_steps", "attention_of_steps", "unique_rows",
    "InstanceNorm", "GroupNorm",
]  # fmt: skip


@pytest.mark.parametrize("name", AVOIDED)
def test_no_input_ends_the_process(name: str) -> None:
    program = PROGRAMS[f"{name} opset 18"]
    assert [*crash_sweep._lines(program)] == []
    assert crash_sweep._runs[program.name] > 6


class _Session:
    """Ends the process for 0, varies for the highest number, and is refused for -1."""

    def __init__(self) -> None:
        self.calls = 0

    def get_inputs(self) -> list[Any]:
        return []

    def run_with_ort_values(self, _: None, values: dict[str, Any]) -> list[Any]:
        self.calls += 1
        number = int(values["x"].numpy()[0])
        if number == 0:
            os.kill(os.getpid(), signal.SIGFPE)
        if number == -1:
            raise ValueError(number)
        result = np.array([self.calls if number == np.iinfo(np.int64).max else 0])
        return [SimpleNamespace(numpy=lambda: result)]


def test_ends_and_results_that_vary_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_sweep, "_session", lambda program: (_Session(), {"x": np.ones(1, np.int64)}))
    lines = [*crash_sweep._lines(crash_sweep._Program("p", lambda: None, 18))]
    assert len(lines) == 2
    assert lines[0].startswith("p: varies where x = ['int64[1]: [9223372036854775807]']")
    assert lines[1].startswith("p: SIGFPE where x = ['int64[1]: [0]']")
    assert crash_sweep._runs["p"] == 6
