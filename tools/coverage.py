"""Writes docs/coverage.md: the results of PyTorch's operator tests, and the reasons of the failures.

python -m tools.coverage [--samples 4] [--processes 2] [--operators linalg.inv,norm/nuc] [--results FILE]

If tests/opinfo/failures.py has no reason for a failure, the run ends with an error and does not write the document.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import multiprocessing
import signal
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from tests.opinfo.failures import reason
from tests.opinfo.sweep import DTYPES, OPSETS, Entry, Outcome, entries, outcomes

TARGET = Path(__file__).parents[1] / "docs" / "coverage.md"
SECONDS = 120
"""The time limit for all samples of one entry."""

HEAD = """\
# Coverage

This page counts the operators in PyTorch's own test suite (its OpInfo database) that export correctly. Each one is
exported, loaded into the CPU provider of ONNX Runtime, and compared with eager in values, shapes and dtypes. An
operator is right in a dtype if all its samples are right: {samples} samples, spread over those of the database, at
the opsets {opsets} in turn. Samples that eager or torch.export refuses do not count. In the row "dynamic", every dim
is dynamic: the model is exported at one size, and compared at that size and at a larger one. Random operators are
compared by shape and dtype, eigenvectors and singular vectors up to their sign.

`python -m tools.coverage` writes this page.

| dtype | right | operators | ratio |
|---|---|---|---|
{counts}

## Failures

{failures}
"""


class Slow(Exception):
    """An entry took longer than SECONDS."""


def main() -> None:
    """Runs the samples, prints the failures without a known reason, and writes the document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--operators", help="only these operators; prints the counts instead of writing the document")
    parser.add_argument(
        "--results", type=Path, help="stores each outcome, and does not run entries that it already has"
    )
    options = parser.parse_args()
    chosen = [entry for dtype in DTYPES for entry in entries(dtype)] + entries(torch.float32, dynamic=True)
    if options.operators:
        chosen = [entry for entry in chosen if entry.name in options.operators.split(",")]
    found = _swept(chosen, options)
    unknown = [(entry, bad) for entry in found if (bad := _failure(found[entry])) and reason(entry) is None]
    for entry, bad in unknown:
        print(f"{entry}: {bad.stage}: {bad.reason[:300]}")
    if options.operators:
        print(_counts(found))
    elif unknown:
        sys.exit(f"{len(unknown)} failures have no reason in tests/opinfo/failures.py.")
    else:
        TARGET.write_text(document(found, options.samples), encoding="utf-8")


def _swept(chosen: list[Entry], options: argparse.Namespace) -> dict[Entry, list[Outcome]]:
    """Returns the outcomes of every entry, from the file of results or from a new run, which is added to the file."""
    if options.results is None:
        return dict(_sweep(chosen, options.samples, options.processes))
    options.results.touch()
    known: dict[str, list[Outcome]] = {}
    for line in options.results.read_text().splitlines():
        name, all_of_it = json.loads(line)
        known[name] = [Outcome(**each) for each in all_of_it]
    with options.results.open("a") as file:
        for entry, result in _sweep([e for e in chosen if str(e) not in known], options.samples, options.processes):
            known[str(entry)] = result
            print(json.dumps([str(entry), [dataclasses.asdict(each) for each in result]]), file=file, flush=True)
    return {entry: known[str(entry)] for entry in chosen}


def _sweep(chosen: list[Entry], samples: int, processes: int) -> Iterator[tuple[Entry, list[Outcome]]]:
    """Yields the outcomes of every entry, from processes that are replaced regularly."""
    list(outcomes(Entry("add", torch.float32), 1))  # imports everything once, before the processes fork
    context = multiprocessing.get_context("fork")
    with context.Pool(processes, initializer=_quiet, maxtasksperchild=200) as pool:
        for number, result in enumerate(pool.imap(_outcomes, [(entry, samples) for entry in chosen], chunksize=4)):
            print(f"\r{number + 1}/{len(chosen)} {result[0]}\x1b[K", end="", file=sys.stderr, flush=True)
            yield result


def _quiet() -> None:
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)


def _outcomes(job: tuple[Entry, int]) -> tuple[Entry, list[Outcome]]:
    entry, samples = job

    def alarm(*_: Any) -> None:
        raise Slow(f"took longer than {SECONDS} s")

    signal.signal(signal.SIGALRM, alarm)
    signal.alarm(SECONDS)
    try:
        return entry, list(outcomes(entry, samples))
    except Slow as error:
        return entry, [Outcome("export", str(error))]
    except Exception as error:  # an error in the comparison must not lose the results of the other operators
        return entry, [Outcome("comparison", f"{type(error).__name__}: {error}")]
    finally:
        signal.alarm(0)


def _failure(found: Iterable[Outcome]) -> Outcome | None:
    return next((each for each in found if each.stage not in ("right", "skipped")), None)


def document(found: dict[Entry, list[Outcome]], samples: int) -> str:
    """Returns the text of docs/coverage.md."""
    return HEAD.format(
        samples=samples,
        opsets=", ".join(map(str, OPSETS)),
        counts=_counts(found),
        failures=_failures(found),
    )


def _counts(found: dict[Entry, list[Outcome]]) -> str:
    rows: dict[str, list[bool]] = defaultdict(list)
    for entry, all_of_it in found.items():
        if any(each.stage != "skipped" for each in all_of_it):
            rows[_kind(entry)].append(_failure(all_of_it) is None)
    return "\n".join(f"| {kind} | {sum(r)} | {len(r)} | {sum(r) / len(r):.1%} |" for kind, r in rows.items())


def _kind(entry: Entry) -> str:
    return str(entry.dtype).removeprefix("torch.") + (", dynamic" if entry.dynamic else "")


def _failures(found: dict[Entry, list[Outcome]]) -> str:
    """Returns a table for each reason: the operators, and the dtypes in which they fail."""
    by_reason: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for entry, all_of_it in found.items():
        why = reason(entry)
        if why is not None and _failure(all_of_it):
            by_reason[why][entry.name].append(_kind(entry))
    lines: list[str] = []
    for why, operators in by_reason.items():
        lines += [why, "", "| operator | in |", "|---|---|"]
        lines += [f"| `{name}` | {', '.join(kinds)} |" for name, kinds in sorted(operators.items())]
        lines.append("")
    return "\n".join(lines).strip()


if __name__ == "__main__":
    main()
