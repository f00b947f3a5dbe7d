"""Makes each run of the tests the same, and leaves out what takes time: the garbage collector, torch's trace, threads.

SymPy, which torch imports, keeps 1,000 results of each of its functions by default. The sizes of thousands of small
exports have the same symbols, so more of them save 2 to 5 % of the time.
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import random
from typing import Any

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
    _run_in_one_thread()


def _run_in_one_thread() -> None:
    """Gives each session of ONNX Runtime one thread, as OMP_NUM_THREADS does for PyTorch.

    It would start one for each core, where the other tests run, and a thread without work waits busily.
    """
    import onnxruntime

    create = onnxruntime.InferenceSession.__init__

    @functools.wraps(create)
    def one_thread(self: Any, path_or_bytes: Any, sess_options: Any = None, *args: Any, **options: Any) -> None:
        sess_options = sess_options or onnxruntime.SessionOptions()
        sess_options.intra_op_num_threads = sess_options.intra_op_num_threads or 1
        create(self, path_or_bytes, sess_options, *args, **options)

    onnxruntime.InferenceSession.__init__ = one_thread


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
