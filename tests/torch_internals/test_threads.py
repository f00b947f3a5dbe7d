"""A function that acts in one thread only."""

import inspect
from concurrent.futures import ThreadPoolExecutor
from threading import get_ident

from fx_onnx.torch_internals.threads import CAPTURE_LOCK, in_this_thread, is_current


def test_the_replacement_acts_in_this_thread_only() -> None:
    def replacement(x: int, *, y: int = 2) -> int:
        return x + y

    function = in_this_thread(replacement, lambda x, **_: -x)
    assert function(1, y=3) == 4
    assert inspect.signature(function) == inspect.signature(replacement)
    with ThreadPoolExecutor() as threads:
        assert threads.submit(function, 1, y=3).result() == -1
        assert not threads.submit(is_current, get_ident()).result()
    assert is_current(get_ident())


def test_the_lock_is_reentrant_and_exclusive() -> None:
    with CAPTURE_LOCK, CAPTURE_LOCK, ThreadPoolExecutor() as threads:
        assert not threads.submit(CAPTURE_LOCK.acquire, blocking=False).result()
