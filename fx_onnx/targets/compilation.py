"""What the compiler of a runtime says of a model."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Compilation", "Refusal", "one_line"]

_LONGEST = 400


def one_line(text: str) -> str:
    """Returns the words of a compiler as one line of at most 400 characters."""
    return " ".join(text.split())[:_LONGEST]


@dataclass(frozen=True)
class Refusal:
    """One reason for which a compiler refuses a model.

    Attributes:
        text: the reason, in the compiler's words.
        node: the name of the node; empty if the compiler names none.
        operator: the operator of the node.
    """

    text: str
    node: str = ""
    operator: str = ""


@dataclass(frozen=True)
class Compilation:
    """The result of a compilation, or why there is none.

    Attributes:
        runtime: the compiler with its version, and what the result is for.
        refusals: why the model has no compiled form.
        size: the size of the compiled form in bytes; 0 if there is none.
        kernels: the names of its kernels.
        unjudged: why the compiler did not see the model; empty if it did.
    """

    runtime: str
    refusals: tuple[Refusal, ...] = ()
    size: int = 0
    kernels: tuple[str, ...] = ()
    unjudged: str = ""
