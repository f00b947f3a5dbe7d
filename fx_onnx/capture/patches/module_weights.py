"""Gives the modules of a tree weights that only one thread sees, so that torch.export can exchange them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import get_ident
from typing import Any

from torch import nn

from fx_onnx.capture.patches.patching import exchange_attribute
from fx_onnx.core.threads import is_current

__all__ = ["keep_containers", "weights_of_this_thread"]

_DICTS = ("_parameters", "_buffers")
_PLAIN_DICTS = (dict, OrderedDict)

# The lists of weights that an RNN, LSTM or GRU module keeps beside its parameters. It replaces them in its forward if
# a parameter is another tensor than before.
_LISTS = ("_flat_weights", "_flat_weight_refs")


@contextmanager
def weights_of_this_thread(module: nn.Module) -> Iterator[None]:
    """Gives the current thread its own parameters and buffers of the module and its submodules within the context.

    They are those of the module at first. What the thread assigns is lost when the context ends. What other threads
    assign meanwhile stays.
    """
    with ExitStack() as stack:
        for name in _LISTS:
            stack.enter_context(exchange_attribute(nn.RNNBase, name, _AttributeOfThread(name)))
        originals: list[tuple[dict[str, Any], str, Any]]
        originals = [(vars(each), name, vars(each).get(name)) for each in module.modules() for name in _DICTS]
        replaced = [(attributes, name, found) for attributes, name, found in originals if type(found) in _PLAIN_DICTS]
        try:
            for attributes, name, found in replaced:
                attributes[name] = _DictOfThread(found)
            yield
        finally:
            for attributes, name, found in replaced:
                attributes[name] = found


@contextmanager
def keep_containers(module: nn.Module) -> Iterator[None]:
    """Makes the lists and dicts in the attributes of the modules the same objects as before, when the context ends.

    torch.export restores what a forward changed in them, but leaves copies.
    """
    before = [(vars(each), dict(vars(each))) for each in module.modules()]
    try:
        yield
    finally:
        for attributes, originals in before:
            for name in originals.keys() & attributes.keys():
                attributes[name] = _same_containers(originals[name], attributes[name])


def _same_containers(original: Any, restored: Any) -> Any:
    """Returns ``restored``, but in the list, dict or tuple ``original``, and so for the containers in it."""
    if original is restored or type(original) is not type(restored):
        return restored
    if isinstance(original, tuple):
        return original if [id(item) for item in original] == [id(item) for item in restored] else restored
    if type(original) is list:
        if len(original) == len(restored):
            restored = [_same_containers(*pair) for pair in zip(original, restored, strict=True)]
        original[:] = restored
        return original
    if type(original) in _PLAIN_DICTS:
        items = {key: _same_containers(original.get(key), item) for key, item in restored.items()}
        original.clear()
        original.update(items)
        return original
    return restored


class _AttributeOfThread:
    """An attribute of instances that one thread can set without a change for other threads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.thread = get_ident()
        self.values: dict[int, Any] = {}  # by the id of the instance's __dict__, which torch's proxies share

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        if instance is None:
            return self
        attributes = vars(instance)
        if is_current(self.thread) and id(attributes) in self.values:
            return self.values[id(attributes)]
        if self.name not in attributes:
            raise AttributeError(f"{type(instance).__name__!r} object has no attribute {self.name!r}")
        return attributes[self.name]

    def __set__(self, instance: Any, value: Any) -> None:
        attributes = vars(instance)
        if is_current(self.thread):
            self.values[id(attributes)] = value
        else:
            attributes[self.name] = value


class _DictOfThread(dict[str, Any]):
    """A dict with one content for the thread that created it, and another content for all other threads.

    The other threads read and write the original dict.
    """

    def __init__(self, original: dict[str, Any]) -> None:
        super().__init__(original)  # for code in C that bypasses the methods
        self._thread, self._own, self._original = get_ident(), original.copy(), original

    def __reduce__(self) -> tuple[Any, ...]:
        return _content(self).__reduce_ex__(2)  # type: ignore[return-value]


def _content(view: _DictOfThread) -> dict[str, Any]:
    return view._own if is_current(view._thread) else view._original


def _delegate(name: str) -> Callable[..., Any]:
    def method(self: _DictOfThread, *args: Any, **kwargs: Any) -> Any:
        return getattr(_content(self), name)(*args, **kwargs)

    return method


for _name in (
    "__contains__", "__delitem__", "__eq__", "__getitem__", "__ior__", "__iter__", "__len__", "__ne__", "__or__",
    "__repr__", "__reversed__", "__ror__", "__setitem__", "clear", "copy", "get", "items", "keys", "pop", "popitem",
    "setdefault", "update", "values",
):  # fmt: skip
    setattr(_DictOfThread, _name, _delegate(_name))
