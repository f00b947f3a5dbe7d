"""A loop whose body torch.export traces like the rest of a forward.

``torch.while_loop`` traces its body with dynamo, which refuses what non-strict mode takes, such as a body that writes
to an attribute of a config. The loop here traces the body as the forward is traced. Changes of Python values by the
body are those of one iteration; the export warns of them as of those of the forward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fx_onnx.requests.pytrees import tensors_in
from fx_onnx.torch_internals.torch_private import pytree, unrecorded

__all__ = ["while_loop"]

_Step = Callable[..., Any]


class _Captured(TorchFunctionMode):
    """Notes the tensors that functions read and that no function within the context has made.

    Attributes:
        tensors: the tensors by their ids.
    """

    def __init__(self, own: tuple[Tensor, ...]) -> None:
        super().__init__()
        self.tensors: dict[int, Tensor] = {}
        self._own = {id(tensor): tensor for tensor in own}  # they live, so that no other tensor gets an id of theirs

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Notes the arguments."""
        for tensor in tensors_in((args, kwargs)):
            if id(tensor) not in self._own:
                self.tensors[id(tensor)] = tensor
        result = func(*args, **(kwargs or {}))
        self._own |= {id(tensor): tensor for tensor in tensors_in(result) if id(tensor) not in self.tensors}
        return result


class _Replaced(TorchFunctionMode):
    """Gives functions other tensors for those that a body has captured."""

    def __init__(self, new: dict[int, Tensor]) -> None:
        super().__init__()
        self._new = new

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls the function with the other tensors."""
        args, kwargs = pytree.tree_map(lambda leaf: self._new.get(id(leaf), leaf), (args, kwargs or {}))
        return func(*args, **kwargs)


def while_loop(condition: _Step, body: _Step, carried: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Returns the carried values after the last iteration, as ``torch.while_loop`` does, in a trace of torch.export.

    Both functions may read any tensor around them. They return new tensors, and write to none.

    Args:
        condition: takes the carried values and returns a boolean tensor ().
        body: takes the carried values and returns their next values, of the same shapes and dtypes.
        carried: the first values.
    """
    with unrecorded(carried):
        own = tuple(tensor.clone() for tensor in carried)
        with _Captured(own) as captured:
            condition(*own)
            body(*own)

    def reading_arguments(step: _Step) -> _Step:
        def call(*args: Tensor) -> Any:
            with _Replaced(dict(zip(captured.tensors, args[len(carried) :], strict=True))):
                return step(*args[: len(carried)])

        return call

    functions = reading_arguments(condition), reading_arguments(body)
    results: tuple[Tensor, ...] = torch.ops.higher_order.while_loop(
        *functions, carried, tuple(captured.tensors.values())
    )
    return results
