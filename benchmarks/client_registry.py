"""What the calls of other projects share: their registry, and the comparisons of files with modules."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

CALLS: dict[str, dict[str, Callable[[Path], None]]] = {}
"""client → the call in words → a function of a folder, which raises an AssertionError if the numbers differ."""


def call(client: str, text: str) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    """Registers a call of a client."""

    def register(function: Callable[[Path], None]) -> Callable[[Path], None]:
        CALLS.setdefault(client, {})[text] = function
        return function

    return register


def opened(path: Path | str) -> Any:
    """Returns the session of a file in ONNX Runtime."""
    import onnxruntime

    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def assert_right(file: Any, inputs: Iterable[Tensor], want: Any, tolerance: float | None = None) -> None:
    """Runs a file, or its session, and compares its first outputs with the tensors of ``want``.

    Raises:
        AssertionError: a result differs.
    """
    from tests.compare import assert_close

    session = opened(file) if isinstance(file, (str, Path)) else file
    names = [each.name for each in session.get_inputs()]
    got = session.run(None, {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)})
    wanted = [each for each in torch.utils._pytree.tree_leaves(want) if isinstance(each, Tensor)]
    assert_close([torch.from_numpy(each) for each in got[: len(wanted)]], wanted, tolerance)


def settle(model: nn.Module, *inputs: Tensor) -> None:
    """Gives BatchNorm the statistics of a batch, so that a deep network with random weights has results near 1."""
    model.train()
    with torch.no_grad():
        model(*inputs)
    model.eval()


@contextmanager
def watched_exports() -> Iterator[list[tuple[nn.Module, tuple[Any, ...], Any]]]:
    """Yields the list of the exports that a client makes within the context: the module, its arguments and the session.

    A client may move or change the file that it wrote, so the session is opened at once.
    """
    export, made = torch.onnx.export, list[tuple[nn.Module, tuple[Any, ...], Any]]()

    def watch(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(export).bind(*args, **kwargs).arguments
        result = export(*args, **kwargs)
        example = given["args"]
        made.append((given["model"], example if isinstance(example, tuple) else (example,), opened(given["f"])))
        return result

    with mock.patch.object(torch.onnx, "export", watch):
        yield made


def assert_exports_right(client: Callable[[], Any], *others: tuple[Any, ...], tolerance: float | None = None) -> None:
    """Lets a client export, and compares its file with the exported module, for the example and other arguments.

    Raises:
        AssertionError: the client exports nothing, or a result differs.
    """
    with watched_exports() as made:
        client()
    assert made, "the client exports nothing"
    for module, example, session in made:
        for arguments in (example, *others):
            with torch.no_grad():
                assert_right(session, arguments, module(*arguments), tolerance)
