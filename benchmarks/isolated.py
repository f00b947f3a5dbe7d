"""Runs work in a process of its own, and compares the results of a program with those of a module."""

import copy
import multiprocessing
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import torch
from torch.utils._pytree import tree_map_only

from tests.compare import assert_as_accurate, assert_close

T = TypeVar("T")


class Failed(Exception):
    """The work raised an exception, did not end within its time, or its process crashed."""


def isolated(work: Callable[[], T], limit: float) -> T:
    """Returns the result of ``work()`` from a forked process, which is killed after ``limit`` seconds.

    Raises:
        Failed: says why there is no result.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def send(connection: Connection) -> None:
        warnings.filterwarnings("ignore")
        try:
            connection.send(work())
        except Exception as error:
            connection.send(Failed(one_line(error)))

    process = context.Process(target=send, args=(sender,))
    process.start()
    sender.close()
    try:
        if not receiver.poll(limit):
            raise Failed(f"not done in {limit:.0f} s")
        found: T | Failed = receiver.recv()
    except EOFError:
        process.join()
        raise Failed(f"crashed: exit code {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
    if isinstance(found, Failed):
        raise found
    return found


def one_line(error: BaseException, length: int = 400) -> str:
    """Returns the type and the message of an error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:length]


def assert_right(got: Any, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Checks that the result equals eager, or is as close to the float64 result as eager is.

    The second condition is for deep networks, which amplify rounding errors.

    Raises:
        AssertionError: neither holds, or eager itself differs from float64 by more than a hundredth.
    """
    with torch.no_grad():
        given = copy.deepcopy((args, kwargs))
        want = module(*given[0], **given[1])
        try:
            assert_close(got, want)
        except AssertionError as unequal:
            double = tree_map_only(torch.Tensor, lambda x: x.double() if x.is_floating_point() else x, (args, kwargs))
            try:
                truth = copy.deepcopy(module).double()(*double[0], **double[1])
            except Exception:  # a network that cannot be converted to float64 is compared with eager only
                raise unequal from None
            assert_close(want, tree_map_only(torch.Tensor, lambda x: x.float(), truth), 1e-2)
            assert_as_accurate(got, want, truth)
