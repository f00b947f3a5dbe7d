"""What became of each dynamic dim, in words: the table of ``ONNXProgram.dims`` and of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["DimSummary", "DimTable", "SizeCondition"]


@dataclass(frozen=True)
class SizeCondition:
    """A condition on the sizes of dynamic dims, outside of which the program is not the model.

    Attributes:
        condition: a Python expression over the names of the dims, for example ``n // 2 == 4``.
        kind: ``bound`` if the model itself raises an exception where the condition is false, or ``finding`` if it
            computes another result than the program there, or may do so.
        dims: the names of the dims in the condition.
        cause: what the code does, for example ``takes another branch``.
        place: the line of the code, as ``(file:line: code)``; empty if none is known.
        witness: the sizes at which the condition was seen to be false, by name; empty if nothing ran there.
        seen: what happened there, for example ``the module raises ValueError: too short``.
    """

    condition: str
    kind: Literal["bound", "finding"]
    dims: tuple[str, ...]
    cause: str = ""
    place: str = ""
    witness: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    seen: str = field(default="", repr=False, compare=False)
    _holds: Callable[..., bool] = field(default=bool, repr=False, compare=False)

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Returns whether the condition is true for sizes, by the names of the dims."""
        return self._holds(*(sizes[name] for name in self.dims))

    def __str__(self) -> str:
        return self.condition


@dataclass(frozen=True)
class DimSummary:
    """One dynamic dim of the model, or one dim that was requested as dynamic and is static.

    Attributes:
        name: the user's name, or ``x.shape[0]``.
        where: the inputs and axes that have this size, for example ``x.shape[0]``.
        sizes: the sizes for which the model is correct, in words: ``any``, ``even``, ``5 or more``, ``fixed at 16``.
        place: the lines of code that restrict the sizes, as ``(file:line: code; file:line: code)``; empty if none is
            known.
    """

    name: str
    where: tuple[str, ...]
    sizes: str = "any"
    place: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.sizes}{', ' if self.place else ''}{self.place[1:-1]}"


class DimTable(Sequence[DimSummary]):
    """The dynamic dims of a model, in the order of its inputs. ``str()`` has one line for each.

    Attributes:
        conditions: the conditions on the sizes: ``bound`` or ``finding``.
    """

    def __init__(self, dims: Sequence[DimSummary] = (), conditions: Sequence[SizeCondition] = ()) -> None:
        """Takes the dims, and the conditions on their sizes."""
        self._dims = tuple(dims)
        self.conditions: tuple[SizeCondition, ...] = tuple(conditions)

    @classmethod
    def joined(cls, tables: Sequence[DimTable]) -> DimTable:
        """Returns the table of a model that is right where all programs of these tables are."""
        if len(tables) == 1:
            return tables[0]
        rows = dict[tuple[str, ...], list[DimSummary]]()
        for row in (row for table in tables for row in table):
            rows.setdefault(row.where, []).append(row)
        dims = []
        for where, same in rows.items():
            sizes = dict.fromkeys(row.sizes for row in same if row.sizes != "any")
            places = dict.fromkeys(row.place[1:-1] for row in same if row.place)
            lines = f"({'; '.join(places)})" if places else ""
            dims.append(DimSummary(same[0].name, where, ", ".join(sizes) or "any", lines))
        return cls(dims, tuple(dict.fromkeys(condition for table in tables for condition in table.conditions)))

    def __getitem__(self, index: int) -> DimSummary:  # type: ignore[override]
        return self._dims[index]

    def __len__(self) -> int:
        return len(self._dims)

    def __iter__(self) -> Iterator[DimSummary]:
        return iter(self._dims)

    def __str__(self) -> str:
        return "\n".join(map(str, self._dims)) or "Every dim is static."

    def __repr__(self) -> str:
        return str(self)
