"""Functions of other libraries replaced, while a model is captured, by ones that compute the same for all sizes."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

from fx_onnx.exporting import replaced

__all__ = ["StandIns", "standing_in"]

StandIns = Mapping[tuple[str, str], Callable[..., Any]]
"""By the module that defines a function and its name there, `Class.method` for a method: what stands for it."""


@contextmanager
def standing_in(*tables: StandIns) -> Iterator[None]:
    """Puts stand-ins in the place of functions, wherever a module has them by their names, and of methods.

    Of a module that was not imported nothing is replaced.
    """
    stand_ins = {key: each for table in tables for key, each in table.items() if key[0] in sys.modules}
    functions = {name for _, name in stand_ins if "." not in name}
    _modules.look_for(functions)
    with ExitStack() as stack:
        for (module, path), stand_in in stand_ins.items():
            for owner, name in _places(sys.modules[module], path):
                stack.enter_context(replaced(owner, name, stand_in))
        yield


def _places(module: ModuleType, path: str) -> Iterator[tuple[Any, str]]:
    """Where a method is, or a function is by its name: (what has it, its name there)."""
    owner, _, name = path.rpartition(".")
    if owner:
        yield getattr(module, owner), name
        return
    function = getattr(module, name)
    for each in _modules.having(name):
        if vars(each).get(name) is function:
            yield each, name


class _Modules:
    """Which modules have something by a name. There are thousands, of which those that stay are read once."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._sizes: dict[str, tuple[int, int]] = {}  # by the module's name: which object it was, how many names it had
        self._having: dict[str, set[str]] = defaultdict(set)

    def look_for(self, names: set[str]) -> None:
        """Brings up to date which modules have each of these names."""
        if not names <= self._names:
            self._names |= names
            self._sizes.clear()
        for module_name, module in list(sys.modules.items()):
            held = getattr(module, "__dict__", {})  # anything may stand in sys.modules
            size = (id(module), len(held))
            if self._sizes.get(module_name) != size:
                self._sizes[module_name] = size
                for name in self._names & held.keys():
                    self._having[name].add(module_name)

    def having(self, name: str) -> list[ModuleType]:
        """The modules that have something by this name, and perhaps some that had."""
        return [sys.modules[each] for each in self._having[name] if each in sys.modules]


_modules = _Modules()
