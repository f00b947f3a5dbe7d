"""Checks of the arguments of public functions: each raises an ArgumentError of one sentence."""

from __future__ import annotations

import difflib
import functools
import inspect
import os
import re
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

import numpy as np

from fx_onnx.messages.errors import ArgumentError, UnknownArgumentError
from fx_onnx.messages.message_ids import MessageId

__all__ = [
    "check_dim_name",
    "check_flag",
    "check_input_names",
    "check_inputs",
    "check_mapping",
    "check_name",
    "check_names",
    "check_path",
    "check_tolerance",
    "counted",
    "did_you_mean",
    "is_dim_word",
    "refuses_unknown_keywords",
    "shown",
    "unknown_keyword",
]

P = ParamSpec("P")
R = TypeVar("R")

_SHOWN = 80
"""The most characters of a wrong argument that a message shows."""


def shown(value: Any) -> str:
    """Returns an argument for a message: its text on one line, shortened, or its class if it has no short text."""
    if value is None or isinstance(value, (bool, int, float, str, bytes, list, tuple, dict, set)):
        try:
            text = reprlib.repr(value) if not isinstance(value, (str, bytes)) else repr(value[:_SHOWN])
        except ValueError:  # the number has too many digits
            text = ""
        text = text.replace("\n", " ")
        if text:
            return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return f"a {type(value).__name__}"


def counted(count: int, noun: str, nouns: str = "") -> str:
    """Returns a number with its noun: ``1 input``, ``2 inputs``; ``nouns`` is a plural that does not end with s."""
    return f"{count:,} {noun if count == 1 else nouns or f'{noun}s'}"


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """Returns the clause ``; did you mean 'x'?`` for a name that is not known; empty if no known name is like it.

    Names are alike if they differ in case and separators only, if one begins with the other, or in a few letters.
    """
    if not isinstance(name, str) or not name:
        return ""
    by_letters = {_letters(word): word for word in known}
    letters = _letters(name)
    longer = [word for key, word in by_letters.items() if len(letters) > 2 and key.startswith(letters)]
    close = difflib.get_close_matches(letters, by_letters, n=2)
    likely = [by_letters[letters]] if letters in by_letters else longer[:3] or [by_letters[key] for key in close]
    return f"; did you mean {' or '.join(map(repr, likely))}?" if likely else ""


def _letters(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def check_input_names(names: Iterable[Any], known: Collection[str], id: MessageId | None = None) -> None:
    """Checks that names are those of inputs of a model.

    Raises:
        ArgumentError: one is not.
    """
    for name in names:
        if name not in known:
            raise ArgumentError(
                f"The model has no input {shown(name)}; its inputs are {', '.join(known) or 'none'}"
                f"{did_you_mean(name, known) or '.'}",
                id=id or MessageId.CALL_OF_PROGRAM,
            )


def unknown_keyword(function: str, name: str, known: Iterable[str]) -> UnknownArgumentError:
    """Returns the error for a keyword argument that a function does not have."""
    return UnknownArgumentError(f"{function}() has no argument {shown(name)}{did_you_mean(name, known) or '.'}")


def refuses_unknown_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Decorates a public function: a keyword that it does not have is an UnknownArgumentError, which names a like one.

    The error is a TypeError too, as Python raises it.
    """
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in known:
                raise unknown_keyword(function.__name__, name, known)
        return function(*args, **kwargs)

    return call


def check_flag(parameter: str, value: Any, *, optional: bool = False, other: str = "") -> None:
    """Checks that a value is True or False; with ``optional``, None is allowed too.

    ``other`` names, for the message, another kind of value that the parameter takes and that this value is not.

    Raises:
        ArgumentError: it is not.
    """
    if isinstance(value, (bool, np.bool_)) or (optional and value is None):
        return
    *first, last = ["True", "False", *(["None"] if optional else []), *([other] if other else [])]
    raise ArgumentError(f"{parameter} must be {', '.join(first)} or {last}, not {shown(value)}.")


def check_tolerance(parameter: str, value: Any) -> None:
    """Checks that a value is a number that is not negative.

    Raises:
        ArgumentError: it is not.
    """
    if not (isinstance(value, (int, float)) and value >= 0):
        raise ArgumentError(f"{parameter} must be a number that is not negative, not {shown(value)}.")


def check_mapping(parameter: str, value: Any, content: str, *, optional: bool = True) -> None:
    """Checks that a value is a mapping; ``content`` describes its entries for the message.

    Raises:
        ArgumentError: it is not.
    """
    if not isinstance(value, Mapping) and not (optional and value is None):
        raise ArgumentError(f"{parameter} must be a dict of {content}, not {shown(value)}.")


def check_inputs(parameter: str, value: Any, content: str) -> tuple[Any, ...]:
    """Returns several inputs, which may come from a generator.

    Args:
        parameter: the name of the argument.
        value: the argument.
        content: what it must be an iterable of.

    Raises:
        ArgumentError: it is a single input, no iterable, or empty.
    """
    is_single = isinstance(value, (str, bytes, Mapping)) or hasattr(value, "__array__")
    if is_single or not isinstance(value, Iterable):
        raise ArgumentError(f"{parameter} must be an iterable of {content}, not {shown(value)}.")
    inputs = tuple(value)
    if not inputs:
        raise ArgumentError(f"{parameter} is empty; give at least one input, and better 100.")
    return inputs


def check_name(what: str, name: Any) -> None:
    """Checks that a name is a string that an ONNX file can hold: not empty, without NUL, and valid Unicode.

    Raises:
        ArgumentError: it is not; the message begins with ``what``, for example "The dim name".
    """
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"{what} must be a string that is not empty, not {shown(name)}.")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ArgumentError(f"{what} {shown(name)} is not valid Unicode.") from None
    if "\0" in name:
        raise ArgumentError(f"{what} {shown(name)} contains a NUL character.")


_DIM_NAME = re.compile(r"[^\W\d][^\s+\-*/%()<>=,]*")


def check_dim_name(what: str, name: Any, id: MessageId | None = None) -> None:
    """Checks that a string can name a dim: it begins with a letter or "_", and has no spaces and no operators.

    A number would be a size, and a program that reads the model would compute an expression such as ``batch-size``.

    Raises:
        ArgumentError: it cannot; the message begins with ``what``, and the error has ``id``.
    """
    check_name(what, name)
    if not is_dim_word(name):
        kind = "is a number" if name.strip().lstrip("+-").isdigit() else "is not a name"
        raise ArgumentError(
            f"{what} {shown(name)} {kind}; use letters, digits and underscores, such as 'batch_size'.", id=id
        )


def is_dim_word(name: str) -> bool:
    """Returns whether a name is one word, which an expression such as ``2*name`` can contain as it is."""
    return _DIM_NAME.fullmatch(name) is not None


def check_names(parameter: str, names: Any) -> tuple[str, ...]:
    """Returns a sequence of names as a tuple; None gives an empty one.

    Raises:
        ArgumentError: it is no collection of names, or its order is not defined, as that of a set.
    """
    if names is None:
        return ()
    if isinstance(names, (str, bytes, Mapping, set, frozenset)) or not isinstance(names, (Collection, Iterable)):
        raise ArgumentError(f"{parameter} must be a sequence of names, not {shown(names)}.")
    checked = tuple(names)
    for name in checked:
        check_name(f"A name in {parameter}", name)
    return checked


def check_path(parameter: str, path: Any) -> None:
    """Checks that a value is a path that an operating system can take.

    Raises:
        ArgumentError: it is not.
    """
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise ArgumentError(f"{parameter} must be a path, not {shown(path)}.")
    text = os.fspath(path)
    check_name(parameter, text)
