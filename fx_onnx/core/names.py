"""Names, each given once."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Names"]


class Names:
    """The names that are given in one scope; asking for one is O(1), however often it was asked for before."""

    def __init__(self, taken: Iterable[str | None] = ()) -> None:
        self._taken = {name for name in taken if name}
        self._counts: dict[str, int] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._taken

    def unique(self, name: str) -> str:
        """``name``, with the next number where it is taken; taken from now on."""
        candidate, count = name, self._counts.get(name, 0)
        while candidate in self._taken:
            count += 1
            candidate = f"{name}_{count}"
        self._counts[name] = count
        self._taken.add(candidate)
        return candidate
