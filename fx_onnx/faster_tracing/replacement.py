"""Replaces internals of torch by faster ones, if torch's source is the one with which they were compared."""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, reduce
from importlib import import_module
from types import FunctionType
from typing import Any, NamedTuple

from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.faster_tracing.known_sources import KNOWN_SOURCES

__all__ = ["OFF", "Replacement", "digest", "function_at", "replaced", "unknown_sources"]

_logger = logging.getLogger("fx_onnx.patches")

OFF = "FX_ONNX_FASTER_TRACING"
"""The environment variable that turns all replacements off if it is 0."""


class Replacement(NamedTuple):
    """A faster function in place of one of torch's.

    Attributes:
        targets: The attributes that are replaced together, as `module:name` or `module:Class.name`.
        make: Takes the original functions and returns what replaces them. Its docstring says why the results are equal.
        reason: What takes torch's time.
        repeats: The other functions of torch whose behavior the replacement repeats or relies on.
    """

    targets: Sequence[str]
    make: Callable[..., Sequence[Callable[..., Any]]]
    reason: str
    repeats: Sequence[str] = ()


def function_at(path: str) -> tuple[Any, str, Any]:
    """Returns the module or class of a path, the name of the function there, and the function; None if it is gone."""
    name = path.rpartition(":")[2].rpartition(".")[2]
    try:
        owner = _owner_at(path)
    except (ImportError, AttributeError):
        return None, name, None
    return owner, name, vars(owner)[name] if name in vars(owner) else inspect.getattr_static(owner, name, None)


@cache  # each trace asks for a hundred paths, and a class stays where it is
def _owner_at(path: str) -> Any:
    module, _, qualified = path.partition(":")
    return reduce(getattr, qualified.split(".")[:-1], import_module(module))


def digest(path: str) -> str:
    """Returns the digest of the source of a function of the installed torch; an empty string if there is none."""
    attribute = function_at(path)[2]
    function = inspect.unwrap(getattr(attribute, "fget", None) or getattr(attribute, "__func__", attribute))
    return _digest(function) if isinstance(function, FunctionType) else ""


@cache
def _digest(function: FunctionType) -> str:
    try:
        source = inspect.getsource(function)
    except OSError:  # torch is installed without its source
        return ""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def unknown_sources(replacement: Replacement) -> list[str]:
    """Returns the functions whose source is another one than those with which a replacement was compared."""
    paths = (*replacement.targets, *replacement.repeats)
    return [path for path in paths if digest(path) not in KNOWN_SOURCES.get(path, {}).values()]


@contextmanager
def replaced(replacements: Sequence[Replacement]) -> Iterator[None]:
    """Applies replacements within the context, in the current thread; leaves out those that were not compared."""
    with ExitStack() as stack:
        for replacement in replacements if os.environ.get(OFF) != "0" else ():
            if unknown := unknown_sources(replacement):
                _logger.info("torch's own %s is used: the source of %s is unknown", replacement.targets[0], unknown[0])
                continue
            places = [function_at(target) for target in replacement.targets]
            made = replacement.make(*(function for *_, function in places))
            for (owner, name, _), function in zip(places, made, strict=True):
                stack.enter_context(replace_attribute(owner, name, function))
        yield
