"""Makes each run of the tests the same, and leaves out what takes time: the garbage collector and torch's trace.

SymPy, which torch imports, keeps 1,000 results of each of its functions by default. The sizes of thousands of small
exports have the same symbols, so more of them save 2 to 5 % of the time.
"""

from __future__ import annotations

import gc
import logging
import os
import random

os.environ.setdefault("SYMPY_CACHE_SIZE", "20000")  # read when SymPy is imported

import numpy as np
import pytest
import torch


def pytest_collection() -> None:
    _seed()  # of the values that modules of tests draw when they are imported
    gc.disable()


def pytest_collection_finish() -> None:
    """Leaves out all that is imported and collected, which stays until the end, and waits for more garbage.

    pytest adds its handlers to each logger that does not propagate. torch's trace is one, and as long as it has a
    handler, torch formats the stack, here a hundred frames, for each tensor and each size that it traces.
    """
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()
    logging.getLogger("torch.__trace").propagate = True


def pytest_runtest_setup() -> None:
    _seed()


def _seed() -> None:
    """Seeds every generator that tests draw from, so that a test has the same values alone, in the suite and again."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture
def own_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves torch's own functions in place of the faster ones of the room ``faster_tracing``."""
    monkeypatch.setenv("FX_ONNX_FASTER_TRACING", "0")
