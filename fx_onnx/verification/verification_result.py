"""The result of a verification: the differences by output, by value and by module, the cause, and their texts."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from fx_onnx.files.destination import writing
from fx_onnx.messages.errors import ArgumentError, VerificationError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.verification.tensor_comparison import Difference

__all__ = ["Cause", "SizeResult", "Verification", "by_module", "worst_of"]

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Cause:
    """Why an output differs.

    Attributes:
        kind: ``translation`` (an ONNX part computes a wrong value), ``capture`` (torch.export's program differs from
            the module), ``functionalization``, ``runtime`` (ONNX Runtime's optimizer), ``rounding`` (no part is wrong
            alone), ``ties`` (the module selects among equal elements), ``random`` (the module draws random numbers, or
            changes a value that is no buffer) or ``unknown``.
        text: one sentence without a final dot.
        module: the path of the module; empty if it is the model itself or unknown.
        node: the name of the FX node; empty if it is unknown.
        difference: the difference of the value; None if there is none.
    """

    kind: str
    text: str
    module: str = ""
    node: str = ""
    difference: Difference | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class SizeResult:
    """The comparison for some sizes of the dynamic dims.

    Attributes:
        sizes: the sizes, for example ``batch=3, tokens=7``; empty for those of the given arguments.
        outputs: the differences of all outputs.
        problem: why the program could not run; empty if it ran.
        finding: the condition of the finding that excludes the sizes, such as ``batch >= 5``; empty if none does.
    """

    sizes: str
    outputs: tuple[Difference, ...] = ()
    problem: str = ""
    finding: str = ""

    @property
    def ok(self) -> bool:
        """True if the program ran and all outputs agree."""
        return not self.problem and all(output.ok for output in self.outputs)

    @property
    def problems(self) -> list[str]:
        """What differs, one text for each output."""
        at = f" at {self.sizes}" if self.sizes else ""
        bad = [f"{output.name!r}{at}: {output.problem}" for output in self.outputs if not output.ok]
        return [*bad, f"the sizes {self.sizes}: {self.problem}"] if self.problem else bad


@dataclass(frozen=True, repr=False)
class Verification:
    """The result of ``verify``.

    Attributes:
        outputs: the differences of all outputs for the given arguments, in order.
        sizes: the comparisons for other sizes of the dynamic dims.
        skipped: what was not compared, and why, one sentence each.
        cause: why an output differs; None if all agree.
        excluded: the comparisons for sizes that findings of the export exclude. The export warned of them, so a
            difference there counts neither in ``ok`` nor in ``check()``.
    """

    outputs: tuple[Difference, ...]
    sizes: tuple[SizeResult, ...] = ()
    skipped: tuple[str, ...] = ()
    cause: Cause | None = None
    _compare_values: Callable[[], tuple[Difference, ...]] | None = field(default=None, repr=False, compare=False)
    _write_repro: Callable[[Path], Path] | None = field(default=None, repr=False, compare=False)
    excluded: tuple[SizeResult, ...] = ()

    @property
    def runs(self) -> tuple[SizeResult, ...]:
        """The comparison for the given arguments, then those of ``sizes``."""
        return (SizeResult("", self.outputs), *self.sizes)

    @property
    def ok(self) -> bool:
        """True if all outputs agree, for all sizes."""
        return all(run.ok for run in self.runs)

    def __bool__(self) -> bool:
        """Returns ``ok``, so that ``assert program.verify()`` is a test."""
        return self.ok

    @property
    def max_rel(self) -> float:
        """The largest ``max_rel`` of all outputs, for all sizes."""
        return max((output.max_rel for run in self.runs for output in run.outputs), default=0.0)

    @cached_property
    def values(self) -> tuple[Difference, ...]:
        """The difference of each value that the ONNX model computes for an FX node, in the order of execution.

        Each value is computed from the values of PyTorch, so it shows its own error only. The values are compared when
        this attribute is first read; for that, the result keeps the program and the arguments.

        Raises:
            ArgumentError: the program has no exported_program.
        """
        if self._compare_values is None:
            raise ArgumentError(
                "The program has no exported_program, so it has no FX values to compare with; verify the program that "
                "export() returned.",
                id=MessageId.NOTHING_TO_COMPARE,
            )
        return self._compare_values()

    @property
    def modules(self) -> dict[str, Difference]:
        """The worst difference of ``values`` in each module, by module path, in the order of execution."""
        return by_module(self.values)

    def check(self) -> None:
        """Raises VerificationError if an output differs. The message lists all outputs that differ, and the cause."""
        bad = self._problems()
        if bad:
            cause = f" {_sentence(self.cause.text)}" if self.cause is not None else ""
            raise VerificationError(f"The ONNX program differs from the PyTorch module in {'; '.join(bad)}.{cause}")

    def _problems(self) -> list[str]:
        return [problem for run in self.runs for problem in run.problems]

    def save_repro(self, folder: str | os.PathLike[str]) -> Path:
        """Writes the smallest part of the model that shows the difference, with its inputs, and a script.

        The folder has ``model.onnx``, ``data.npz`` with the inputs and PyTorch's results, and ``repro.py``, which needs
        ONNX Runtime and NumPy only. It prints the difference, and its exit status is 1 while there is one.

        Args:
            folder: the folder; it is created if it does not exist.

        Returns:
            The path of the script.

        Raises:
            ArgumentError: all outputs agree, or the folder cannot be written.
        """
        if self._write_repro is None:
            raise ArgumentError(
                "There is nothing to reproduce: the ONNX program agrees with the PyTorch module.",
                id=MessageId.NOTHING_TO_COMPARE,
            )
        with writing("The repro", folder):
            Path(folder).mkdir(parents=True, exist_ok=True)
            return self._write_repro(Path(folder))

    # Texts

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        checked = [
            f"{len(self.outputs)} output{'s' * (len(self.outputs) != 1)}",
            *(f"at {result.sizes}" for result in self.sizes),
        ]
        outputs = [output for run in self.runs for output in run.outputs]
        notes = [f"{output.name!r} is inaccurate in eager: {output.note}." for output in outputs if output.note]
        head = f"The ONNX program agrees with the PyTorch module ({', '.join(checked)})."
        if not self.ok:
            head = f"The ONNX program differs from the PyTorch module in {'; '.join(self._problems())}."
        cause = [_sentence(self.cause.text)] if self.cause is not None else []
        return "\n".join([head, *cause, *notes, *self.remarks])

    @property
    def remarks(self) -> list[str]:
        """What was found for sizes that findings exclude, and what was not compared; one sentence each."""
        remarks = []
        for result in self.excluded:
            verdict = f"differs in {'; '.join(result.problems)}" if not result.ok else f"agrees at {result.sizes}"
            remarks.append(f"The finding {result.finding} excludes {result.sizes}: the ONNX program {verdict}.")
        return [*remarks, *self.skipped]

    def table(self, of: str = "outputs") -> str:
        """Returns the differences as a table of plain text.

        Args:
            of: ``outputs``, ``values`` or ``modules``.

        Raises:
            ArgumentError: ``of`` has another value.
        """
        if of == "outputs":
            runs = (*self.runs, *self.excluded)
            return _table("sizes", [(run.sizes or "given", output) for run in runs for output in run.outputs])
        if of == "values":
            return _table("module", [(value.module, value) for value in self.values])
        if of == "modules":
            return _table("module", list(self.modules.items()))
        raise ArgumentError(f"table() takes 'outputs', 'values' or 'modules', not {of!r}.")


def by_module(differences: Iterable[Difference]) -> dict[str, Difference]:
    """Returns the worst difference of each module, by module path, in the order of execution."""
    return worst_of((difference.module, difference) for difference in differences)


def worst_of(pairs: Iterable[tuple[Key, Difference]]) -> dict[Key, Difference]:
    """Returns the worst difference of each key. One that differs is worse than every one that agrees."""
    worst: dict[Key, Difference] = {}
    for key, difference in pairs:
        known = worst.setdefault(key, difference)
        worst[key] = max(known, difference, key=lambda one: (not one.ok, one.max_rel))
    return worst


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def _table(first: str, rows: Sequence[tuple[str, Difference]]) -> str:
    cells = [(first, "value", "type", "max abs", "allowed", "max rel", "verdict")]
    cells += [
        (
            key or "-",
            difference.name,
            f"{difference.dtype}[{', '.join(map(str, difference.shape))}]",
            f"{difference.max_abs:.3g}",
            f"{difference.tolerance:.3g}",
            f"{difference.max_rel:.3g}",
            difference.problem or difference.verdict,
        )
        for key, difference in rows
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)
