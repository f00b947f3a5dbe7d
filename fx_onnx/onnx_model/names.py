"""Unique names."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Names"]


class Names:
    """The names that are taken in one scope. A new name takes O(1) time, even for a base that was used often before."""

    def __init__(self, taken: Iterable[str | None] = ()) -> None:
        self._taken = {name for name in taken if name}
        self._counts: dict[str, int] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._taken

    def unique(self, name: str) -> str:
        """Returns ``name``, with the next free number appended if it is taken, and marks the result as taken."""
        candidate, count = name, self._counts.get(name, 0)
        while candidate in self._taken:
            count += 1
            candidate = f"{name}_{count}"
        self._counts[name] = count
        self._taken.add(candidate)
        return candidate
