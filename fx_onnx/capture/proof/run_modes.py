"""Modes in which a module and its program run on tensors without values, so that both take the same steps."""

from __future__ import annotations

import enum
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from fx_onnx.torch_internals.operators import aten

__all__ = ["ComparedSizes", "IndexByTensor", "OnMeta", "Outcome", "Undecidable"]

_PLACES = (torch.int64, torch.int32)
_PARTS = (int, slice, type(None))


class Outcome(enum.Enum):
    """How a module and a captured program compare for given sizes."""

    EQUAL = "equal"
    DIFFERENT = "the results differ"
    RENUMBERED = "the results come from other operators or in another order, and may be equal"
    RAISES = "the module raises an exception"
    DEPENDS = "the module decides by data where the program does not"
    UNKNOWN = "unknown"


class Undecidable(Exception):
    """Raised for an operator whose results cannot be numbered."""


class OnMeta(TorchFunctionMode):
    """Tells the device of the example while the tensors are on the meta device, where autocast does not act."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device.type
        kinds: dict[str, Any] = {"cpu": torch.Tensor.is_cpu, "cuda": torch.Tensor.is_cuda, "meta": torch.Tensor.is_meta}
        self._answers: dict[Any, Any] = {kinds[kind].__get__: device.type == kind for kind in kinds}
        self._answers[torch.Tensor.device.__get__] = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answers a question for the device; calls every other function."""
        if torch.is_autocast_enabled(self._device):
            raise Undecidable("autocast")
        return self._answers[func] if func in self._answers else func(*args, **kwargs or {})


class ComparedSizes(TorchFunctionMode):
    """Keeps the numbers that the code compares sizes of tensors with, as in ``x.shape == (3, 5)``.

    Attributes:
        numbers: the numbers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.numbers = numbers = set[int]()

        class Size(int):
            def __eq__(self, other: object) -> bool:
                numbers.update([other] if type(other) is int else [])
                return int(self) == other

            def __ne__(self, other: object) -> bool:
                return not self == other

            __hash__ = int.__hash__

        self._size = Size

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls a function; sizes are numbers that keep what they are compared with."""
        result = func(*args, **kwargs or {})
        if isinstance(result, torch.Size):
            return torch.Size(map(self._size, result))
        return self._size(result) if func is torch.Tensor.size else result


class IndexByTensor(TorchFunctionMode):
    """Selects a row by a 0-d tensor with ``index``, as for an index with an axis; Python reads its number."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls ``index`` if that is another form of the call."""
        if func not in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
            return func(*args, **kwargs or {})
        given = args[1] if isinstance(args[1], tuple) else (args[1],)
        if not any(map(_is_place, given)) or not all(_is_place(item) or isinstance(item, _PARTS) for item in given):
            return func(*args)
        part = args[0][tuple(slice(None) if isinstance(item, torch.Tensor) else item for item in given)]
        indices = [item if isinstance(item, torch.Tensor) else None for item in given if type(item) is not int]
        return aten.index_put_(part, indices, args[2]) if args[2:] else aten.index.Tensor(part, indices)


def _is_place(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.ndim == 0 and index.dtype in _PLACES
