"""What became of each dynamic dim, in words: the table of ``ONNXProgram.dims`` and of the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["DimSummary", "DimTable"]


@dataclass(frozen=True)
class DimSummary:
    """One dynamic dim of the model, or one dim that was requested as dynamic and is static.

    Attributes:
        name: the user's name, or ``x.shape[0]``.
        where: the inputs and axes that have this size, for example ``x.shape[0]``.
        sizes: the sizes for which the model is correct, in words: ``any``, ``even``, ``5 or more``, ``fixed at 16``.
        place: the line of code that restricts the sizes, as ``(file:line: code)``; empty if none is known.
    """

    name: str
    where: tuple[str, ...]
    sizes: str = "any"
    place: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.sizes}{', ' if self.place else ''}{self.place[1:-1]}"


class DimTable(Sequence[DimSummary]):
    """The dynamic dims of a model, in the order of its inputs. ``str()`` has one line for each."""

    def __init__(self, dims: Sequence[DimSummary] = ()) -> None:
        self._dims = tuple(dims)

    def __getitem__(self, index: int) -> DimSummary:  # type: ignore[override]
        return self._dims[index]

    def __len__(self) -> int:
        return len(self._dims)

    def __iter__(self) -> Iterator[DimSummary]:
        return iter(self._dims)

    def __str__(self) -> str:
        return "\n".join(map(str, self._dims)) or "Every dim is static."

    def __repr__(self) -> str:
        return f"DimTable({list(self._dims)!r})"
