"""PyTorch's type promotion: the common dtype of operands with different dtypes.

Source: the rules of ``torch.result_type`` (PyTorch docs, "Tensor Attributes", type promotion).
"""

from collections.abc import Iterable
from typing import Any

import torch

# One operand: its dtype and its rank; the rank of a Python number is None.
TypedRank = tuple[torch.dtype, int | None]


def number_dtype(number: Any) -> torch.dtype:
    """Returns the dtype with which a Python or symbolic number takes part in promotion.

    Raises:
        TypeError: the object is not a number.
    """
    if isinstance(number, (bool, torch.SymBool)):
        return torch.bool
    if isinstance(number, (int, torch.SymInt)):
        return torch.int64
    if isinstance(number, (float, torch.SymFloat)):
        return torch.get_default_dtype()
    if isinstance(number, complex):
        return torch.get_default_dtype().to_complex()
    raise TypeError(f"a number was expected, not a {type(number).__name__}")


def _promote(dtypes: Iterable[torch.dtype]) -> torch.dtype | None:
    result = None
    for dtype in dtypes:
        result = dtype if result is None else torch.promote_types(result, dtype)
    return result


def _category(dtype: torch.dtype) -> int:
    if dtype.is_complex:
        return 3
    if dtype.is_floating_point:
        return 2
    return 0 if dtype == torch.bool else 1


def _combine(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    """Returns the dtype of higher priority, or a wider one if ``lower`` belongs to a higher category."""
    if higher is None or lower is None:
        return lower if higher is None else higher
    if _category(higher) >= _category(lower):
        return higher
    if _category(higher) == 2:  # float and complex: the width of the float decides
        return higher.to_complex()
    return torch.promote_types(higher, lower)


def result_type(operands: Iterable[TypedRank]) -> torch.dtype:
    """Returns the dtype that ``torch.result_type`` gives for tensors and numbers of these dtypes and ranks.

    Tensors with dimensions have priority over 0-d tensors, and those over Python numbers. An operand of lower priority
    counts only if its category (bool < integer < float < complex) is higher.

    Raises:
        TypeError: there is no operand.
    """
    groups: tuple[list[torch.dtype], list[torch.dtype], list[torch.dtype]] = ([], [], [])
    for dtype, rank in operands:
        groups[2 if rank is None else 0 if rank > 0 else 1].append(dtype)
    dimensioned, scalars, numbers = (_promote(group) for group in groups)
    result = _combine(dimensioned, _combine(scalars, numbers))
    if result is None:
        raise TypeError("promotion needs at least one operand")
    return result
