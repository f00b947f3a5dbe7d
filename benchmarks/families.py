"""Exports the families of transformers' models and compares the results with eager at two sizes.

    python -m benchmarks.families [--beside EXPORTER ...] [--limit SECONDS] [--results FILE] [--names NAME ...]

Each model runs in a separate process with a time limit. `--beside` adds other exporters: torch.onnx, and transformers'
OnnxExporter with fx_onnx instead of torch.onnx, with and without the patches that OnnxExporter makes for torch.onnx. A
model that no exporter can capture counts as blocked; the table of families has the reason. A run of the whole table
writes docs/families.md. With `--results`, a run continues where an earlier one ended.
"""

import argparse
import copy
import json
import logging
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers

import fx_onnx
from benchmarks.isolated import Failed, assert_right, isolated, one_line
from tests.models import onnx_exporter
from tests.models.families import FAMILIES, Family
from tests.models.family_inputs import KINDS

TARGET = Path(__file__).parents[1] / "docs" / "families.md"
RIGHT, BLOCKED = "right", "blocked"
OURS = "fx_onnx"


@dataclass(frozen=True)
class Outcome:
    """The outcome of one model.

    Attributes:
        text: `right`, `blocked: reason`, or the stage that failed and the reason.
        seconds: the time of the export.
        own: the time after the capture; 0 if the exporter does not report it.
        nodes: the number of nodes in the ONNX graph.
    """

    text: str
    seconds: float = 0.0
    own: float = 0.0
    nodes: int = 0

    @property
    def kind(self) -> str:
        """The text without its reason."""
        return self.text.partition(":")[0]


class Exported(NamedTuple):
    """The result of an exporter: a function of the module's arguments, the graph, the seconds of the capture or 0."""

    call: Callable[..., Any]
    graph: Iterable[Any]
    capture: float = 0.0


def _fx_onnx(family: Family, module: torch.nn.Module, inputs: dict[str, Any]) -> Exported:
    shapes = family.dynamic_shapes(inputs)
    program = fx_onnx.export(module, (), kwargs=copy.deepcopy(inputs), dynamic_shapes=shapes, verbose=False)
    return Exported(program.call_structured, program.model.graph, program.timings["capture"])


def _torch_onnx(family: Family, module: torch.nn.Module, inputs: dict[str, Any]) -> Exported:
    given = {"kwargs": copy.deepcopy(inputs), "dynamic_shapes": family.dynamic_shapes(inputs)}
    program: Any = torch.onnx.export(module, (), **given, dynamo=True, verbose=False)
    return Exported(lambda **given: program(**_tensors(given)), program.model.graph)


def _tensors(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments without plain values, which torch.onnx's program would take for inputs."""
    return {name: value for name, value in given.items() if not isinstance(value, bool)}


def _onnx_exporter(way: str, family: Family, module: torch.nn.Module, inputs: dict[str, Any]) -> Exported:
    program = onnx_exporter.exported(family, module, inputs, way)
    return Exported(program, program.program.graph)


EXPORTERS: dict[str, Callable[[Family, torch.nn.Module, dict[str, Any]], Exported]] = {
    OURS: _fx_onnx,
    "torch.onnx": _torch_onnx,
    "OnnxExporter": partial(_onnx_exporter, onnx_exporter.PATCHED),
    "OnnxExporter, patches off": partial(_onnx_exporter, onnx_exporter.PLAIN),
}


def outcome(family: Family, exporter: str) -> Outcome:
    """Exports with the first inputs of the family, and compares with all of them."""
    module = family.build()
    examples = family.examples(module)
    stage, found = "captured", Outcome(RIGHT)
    try:
        start = time.perf_counter()
        exported = EXPORTERS[exporter](family, module, examples[0])
        seconds = time.perf_counter() - start
        own = seconds - exported.capture if exported.capture else 0.0
        found = Outcome(RIGHT, seconds, own, len(list(exported.graph)))
        for inputs in examples:
            stage = "right as exported" if inputs is examples[0] else "right at other sizes"
            assert_right(exported.call(**copy.deepcopy(inputs)), module, (), inputs)
    except Exception as error:
        if stage == "captured" and not _is_capture(error):
            stage = "exported"
        if stage == "captured" and family.blocked:
            return Outcome(f"{BLOCKED}: {family.blocked}")
        return replace(found, text=f"not {stage}: {one_line(error, 600)}")
    return found


def _is_capture(error: Exception) -> bool:
    return isinstance(error, fx_onnx.CaptureError) or type(error).__name__ == "TorchExportError"


def guarded(family: Family, exporter: str, limit: float) -> Outcome:
    """Returns the outcome, from a process that is killed at the time limit."""
    try:
        return isolated(lambda: outcome(family, exporter), limit)
    except Failed as error:
        return Outcome(str(error))


class Results:
    """Outcomes by exporter and name, stored in a file if one is given."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.known: dict[tuple[str, str], Outcome] = {}
        for line in path.read_text().splitlines() if path is not None and path.exists() else []:
            exporter, name, values = json.loads(line)
            self.known[exporter, name] = Outcome(**values)

    def get(self, exporter: str, family: Family, limit: float) -> Outcome:
        """Returns the stored outcome, or runs the family."""
        key = exporter, family.name
        if key not in self.known:
            self.known[key] = guarded(family, exporter, limit)
            if self.path is not None:
                with self.path.open("a") as file:
                    print(json.dumps([*key, asdict(self.known[key])]), file=file)
        return self.known[key]


HEAD = """\
# Families of models

This page lists the model types of transformers {version} in tests/models/families.py. Each model is small, has random
weights, and is exported with a dynamic batch and sequence (or number of samples). It runs in ONNX Runtime and is
compared with eager at the sizes of the export and at other sizes. A type with a cache prefills and decodes with one
program.
`python -m benchmarks.families` writes this page.

{counts}

## Right at all sizes

| inputs | types |
|---|---|
{right}

## Right, with a static axis

The model loops over the axis in Python, so torch.export unrolls the loop. The export warns, and the axis is static at
the size of the example.

| type | static |
|---|---|
{static}

## Not captured

The model's code branches or loops on values of tensors, which torch.export does not support.

| type | why |
|---|---|
{wrong}

## Comparison with other exporters

fx_onnx was compared with torch.onnx on the same arguments, and with `OnnxExporter` of transformers, which calls
`fx_onnx.export` here, with and without its patches, through [the backend](migrate.md#programs-that-nobody-edits).

{beside}
"""


def document(known: dict[tuple[str, str], Outcome]) -> str:
    """Returns the text of docs/families.md, with all families for fx_onnx and some of them for other exporters."""
    ours = [(family, known[OURS, family.name]) for family in FAMILIES]
    right = [(family, found) for family, found in ours if found.kind == RIGHT]
    kinds = {kind: [f.model_type for f, _ in right if f.kind == kind and not f.static] for kind in KINDS}
    wrong = [(family.name, found.text) for family, found in ours if found.kind != RIGHT]
    return HEAD.format(
        version=transformers.__version__,
        counts=_counts([found for _, found in ours], sum(bool(family.static) for family, _ in right)),
        right="\n".join(f"| {kind} ({len(n)}) | {', '.join(sorted(n))} |" for kind, n in kinds.items() if n),
        static="\n".join(f"| {f.name} | {', '.join(sorted(f.static))} |" for f, _ in right if f.static),
        wrong="\n".join(f"| {name} | {text.removeprefix(f'{BLOCKED}: ')} |" for name, text in wrong),
        beside=_beside(known),
    )


def _counts(ours: list[Outcome], static: int) -> str:
    """Returns how many are right, and how many of the others torch.export cannot capture."""
    right, blocked = (sum(found.kind == kind for found in ours) for kind in (RIGHT, BLOCKED))
    rows = {
        "rows": len(ours),
        "model types": len({family.model_type for family in FAMILIES}),
        "right at all sizes": right - static,
        "right, an axis static": static,
        "torch.export cannot capture it": blocked,
        "wrong or failed": len(ours) - right - blocked,
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {count} |" for name, count in rows.items())])


def _beside(known: dict[tuple[str, str], Outcome]) -> str:
    """Returns a line for each other exporter, which compares it with fx_onnx on some of the families."""
    lines = []
    for exporter in [name for name in EXPORTERS if name != OURS]:
        found = {f.name: known[exporter, f.name] for f in FAMILIES if (exporter, f.name) in known}
        kinds: dict[str, list[str]] = {}
        for name, each in found.items():
            kinds.setdefault(each.kind, []).append(name)
        right = kinds.pop(RIGHT, [])
        failed = "".join(f"; {kind}: {', '.join(names)}" for kind, names in kinds.items())
        share = statistics.median([known[OURS, name].nodes / found[name].nodes for name in right] or [1.0])
        lines.append(
            f"- {exporter}: {len(right)} of {len(found)} types right{failed}. "
            f"fx_onnx has {share:.2f} of their nodes in the median"
        )
    return "\n".join(lines)


def main() -> int:
    """Prints a line for each model and the counts, and writes the document after a run of the whole table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--names", nargs="*", help="only these families; prints the outcomes instead of writing them")
    parser.add_argument("--beside", nargs="*", default=[], choices=[*EXPORTERS][1:], help="other exporters")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for each model")
    parser.add_argument("--results", type=Path, help="stores each outcome; skips families that it has")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    logging.getLogger("torch").setLevel(logging.CRITICAL)  # torch prints the whole graph of a failed capture
    results = Results(options.results)
    counts: dict[str, Counter[str]] = {name: Counter() for name in [OURS, *options.beside]}
    print(f"{'family':28} {'kind':12}", *(f"{name[:22]:22}" for name in counts), "seconds  own/capture  nodes")
    fx_onnx.export(torch.nn.Identity().eval(), torch.ones(1))  # imported once, before the processes fork
    for family in FAMILIES:
        if options.names and family.name not in options.names:
            continue
        found = {name: results.get(name, family, options.limit) for name in counts}
        ours = found[OURS]
        share = ours.own / (ours.seconds - ours.own) if ours.own else 0.0
        kinds = (f"{each.kind[:22]:22}" for each in found.values())
        print(f"{family.name:28} {family.kind:12}", *kinds, f"{ours.seconds:7.1f} {share:12.2f} {ours.nodes:6}")
        for name, each in found.items():
            counts[name][each.kind] += 1
            if each.kind != RIGHT:
                print(f"    {name}: {each.text[:400]}", flush=True)
    for name, counter in counts.items():
        print(f"{name}: " + ", ".join(f"{text} {count}" for text, count in counter.most_common()))
    if not options.names:
        TARGET.write_text(document(results.known), encoding="utf-8")
    return 0 if counts[OURS].total() == counts[OURS][RIGHT] + counts[OURS][BLOCKED] else 1


if __name__ == "__main__":
    sys.exit(main())
