"""Plug-ins: what installed packages add to fx_onnx by entry points, read when an export or a name first needs them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from inspect import isroutine
from typing import Any, Never, TypeVar

from fx_onnx.messages.arguments import shown
from fx_onnx.messages.errors import OnnxExporterError, PluginError, first_line

__all__ = ["Group", "Plugin", "Records"]

V = TypeVar("V")


@dataclass(frozen=True)
class Plugin:
    """One entry point of an installed package, after it was loaded.

    Attributes:
        name: the name of the entry point.
        package: the package and its version, for messages.
        value: what it gives.
    """

    name: str
    package: str
    value: Any

    def refuse(self, error: Exception) -> Never:
        """Raises the PluginError of a value that turned out not to be valid."""
        reason = error.message if isinstance(error, OnnxExporterError) else first_line(error)
        raise PluginError(f"The plug-in {self.name!r} of {self.package} is not valid: {reason}") from error


@dataclass(frozen=True)
class Group:
    """One kind of plug-in: a group of entry points, and what an entry may be.

    An entry is the object itself, or a function without arguments that returns it.

    Attributes:
        name: the name of the group, such as ``fx_onnx.targets``.
        what: what an entry is, for messages.
        accepts: returns whether an object is that.
    """

    name: str
    what: str
    accepts: Callable[[Any], bool]

    def names(self) -> list[str]:
        """Returns the names of all plug-ins, in order, without loading any."""
        return sorted(self._entries())

    def find(self, name: str, own: Collection[str] = ()) -> Plugin | None:
        """Returns the plug-in of a name; None if there is none.

        Args:
            name: the name.
            own: the names that fx_onnx itself has.

        Raises:
            PluginError: two packages have a plug-in of this name, or a package and fx_onnx, or it cannot be loaded.
        """
        entry = self._entries().get(name)
        if entry is not None and name in own:
            package = _package(entry)
            raise PluginError(
                f"{package} has a plug-in {name!r} in {self.name}, which is a name of fx_onnx; uninstall that package."
            )
        return None if entry is None else _loaded(self, entry)

    def all(self) -> list[Plugin]:
        """Returns all plug-ins in the order of their names; see ``find`` for the errors."""
        return [_loaded(self, entry) for _name, entry in sorted(self._entries().items())]

    def _entries(self) -> Mapping[str, EntryPoint]:
        entries: dict[str, EntryPoint] = {}
        for entry in _installed(self.name, tuple(sys.path)):
            if (other := entries.setdefault(entry.name, entry)) != entry:
                raise PluginError(
                    f"{_package(other)} and {_package(entry)} both have a plug-in {entry.name!r} in {self.name}; "
                    "uninstall one of them."
                )
        return entries


class Records(Mapping[str, V]):
    """The records of fx_onnx and those of plug-ins, by their names. A plug-in is loaded when its record is taken.

    Args:
        own: those of fx_onnx, which come first.
        group: the plug-ins. Its errors are those of each look-up.
    """

    def __init__(self, own: Mapping[str, V], group: Group) -> None:
        self._own, self._group = own, group

    def __getitem__(self, name: str) -> V:
        plugin = self._group.find(name, self._own)
        return self._own[name] if plugin is None else plugin.value

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from self._group.names()

    def __len__(self) -> int:
        return len(self._own) + len(self._group.names())


@functools.lru_cache(maxsize=16)
def _installed(group: str, path: tuple[str, ...]) -> EntryPoints:
    """Returns the entry points of a group, of all packages on a ``sys.path``."""
    return entry_points(group=group)


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "a package without a name"


@functools.cache
def _loaded(group: Group, entry: EntryPoint) -> Plugin:
    """Loads an entry point once in a process; a failure is not kept."""
    package = _package(entry)
    try:
        value = entry.load()
        if isroutine(value) and not group.accepts(value):
            value = value()
    except Exception as error:
        raise PluginError(
            f"The plug-in {entry.name!r} of {package} cannot be loaded: {first_line(error)}; repair, update or "
            f"uninstall {package.partition(' ')[0]}."
        ) from error
    if not group.accepts(value):
        raise PluginError(
            f"The plug-in {entry.name!r} of {package} is {shown(value)}, but an entry of {group.name} is {group.what}, "
            "or a function without arguments that returns it."
        )
    return Plugin(entry.name, package, value)
