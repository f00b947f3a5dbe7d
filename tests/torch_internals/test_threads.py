"""A function that acts in one thread only."""

import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import get_ident
from typing import Any

import pytest
import torch

from fx_onnx.torch_internals.threads import (
    CAPTURE_LOCK,
    attribute_of_thread,
    hook_in_this_thread,
    in_this_thread,
    is_current,
    restore_items,
)


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


def test_a_replacement_ends() -> None:
    function: Any = in_this_thread(abs, float)
    assert function(-1) == 1
    function.end()
    assert function(-1) == -1


def _in_another_thread(call: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor() as threads:
        return threads.submit(call).result()


class Owner:
    def __init__(self) -> None:
        self.value = 1

    def __getattr__(self, name: str) -> Any:
        return f"no {name}"


def test_a_hook_does_nothing_in_other_threads() -> None:
    module = torch.nn.ReLU()
    module.register_forward_hook(hook_in_this_thread(lambda _, __, result: result + 1))
    module.register_forward_pre_hook(
        hook_in_this_thread(lambda _, args, kwargs: ((args[0] * 2,), kwargs)), with_kwargs=True
    )
    assert module(torch.ones(())) == 3
    assert _in_another_thread(lambda: module(torch.ones(()))) == 1


def test_an_attribute_has_a_value_for_the_thread() -> None:
    owner, empty, own = Owner(), Owner(), dict[Any, int]()
    del empty.value
    Owner.value = attribute_of_thread("value", own.__getitem__, own.__setitem__)
    owner.value = 2
    _in_another_thread(lambda: setattr(owner, "value", owner.value + 2))
    assert (owner.value, _in_another_thread(lambda: owner.value), vars(owner)) == (2, 3, {"value": 3})
    assert (empty.value, _in_another_thread(lambda: empty.value)) == ("no value", "no value")


@pytest.mark.parametrize("now", [{}, {"a": 1}, {"a": 2, "b": 2, "c": 3}, {"c": 3, "b": 2, "a": 1}, {"b": 2, "a": 1}])
def test_items_are_restored_in_their_order(now: dict[str, int]) -> None:
    before = {"a": 1, "b": 2}
    restore_items(now, before)
    assert list(now.items()) == list(before.items())


class Written(dict[str, int]):
    def __setitem__(self, key: str, value: int) -> None:
        raise AssertionError(key)

    pop = clear = update = __setitem__


def test_equal_items_stay_in_place() -> None:
    restore_items(Written(a=1, b=2), {"a": 1, "b": 2})


def test_the_lock_is_reentrant_and_exclusive() -> None:
    with CAPTURE_LOCK, CAPTURE_LOCK, ThreadPoolExecutor() as threads:
        assert not threads.submit(CAPTURE_LOCK.acquire, blocking=False).result()
