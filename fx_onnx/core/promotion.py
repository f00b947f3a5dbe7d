"""PyTorch's type promotion: the dtype in which operands of different kinds meet.

Source: the rules of ``torch.result_type`` (PyTorch docs, "Tensor Attributes", type promotion).
"""

from collections.abc import Iterable
from typing import Any

import torch

# One operand: its dtype and its rank, where rank None stands for a Python number.
TypedRank = tuple[torch.dtype, int | None]


def number_dtype(number: Any) -> torch.dtype:
    """The dtype a Python or symbolic number brings into promotion."""
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
    """The dtype of ``higher`` priority, widened by ``lower`` only where that is of a higher category."""
    if higher is None or lower is None:
        return lower if higher is None else higher
    if _category(higher) >= _category(lower):
        return higher
    if _category(higher) == 2:  # float meets complex: the float's own width decides
        return higher.to_complex()
    return torch.promote_types(higher, lower)


def result_type(operands: Iterable[TypedRank]) -> torch.dtype:
    """The dtype that ``torch.result_type`` gives for tensors and numbers of these dtypes and ranks.

    Tensors with dimensions outrank 0-d tensors, which outrank Python numbers; a lower rank only counts where its
    category (bool < integer < float < complex) is higher.
    """
    groups: tuple[list[torch.dtype], list[torch.dtype], list[torch.dtype]] = ([], [], [])
    for dtype, rank in operands:
        groups[2 if rank is None else 0 if rank > 0 else 1].append(dtype)
    dimensioned, scalars, numbers = (_promote(group) for group in groups)
    result = _combine(dimensioned, _combine(scalars, numbers))
    if result is None:
        raise TypeError("promotion needs at least one operand")
    return result
