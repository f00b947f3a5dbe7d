"""Formats the Markdown report of one export. The facts come from the export log."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from fx_onnx.core.errors import ArgumentError
from fx_onnx.program.verify import Difference, Verification
from fx_onnx.targets.kernel_support import Support

__all__ = ["DynamicDim", "Facts", "ModelSummary", "StageOutcome", "TranslatedOperator", "markdown", "write"]


@dataclass(frozen=True)
class StageOutcome:
    """One stage of the export.

    Attributes:
        name: the name of the stage, for example ``capture``. The file name of the report of a failure contains it.
        seconds: how long it took; None if it was not reached or was skipped.
        ok: whether it succeeded; None if it was not reached or was skipped.
        note: what it decided, for example ``skipped: verify=False``.
    """

    name: str
    seconds: float | None = None
    ok: bool | None = None
    note: str = ""


@dataclass(frozen=True)
class TranslatedOperator:
    """One operator of the decomposed program and its translation.

    Attributes:
        operator: the ATen overload, for example ``aten.add.Tensor``.
        function: the name of the translation function.
        place: the file and line of the function; empty for a built-in function.
        count: how many FX nodes call the operator.
    """

    operator: str
    function: str
    place: str
    count: int


@dataclass(frozen=True)
class DynamicDim:
    """One symbolic size of the program, or one requested dynamic dim that is static.

    Attributes:
        name: the name of the dim in the model.
        where: the inputs and axes that have this size, for example ``x[0]``.
        range: the range of the size, for example ``2..inf``.
        specialized: the static size and the reason; empty if the dim is dynamic.
    """

    name: str
    where: str
    range: str = ""
    specialized: str = ""


@dataclass(frozen=True)
class ModelSummary:
    """The figures of an ONNX model.

    Attributes:
        opset: domain → opset version.
        inputs: each input as text, for example ``x: float[batch, 8]``.
        outputs: each output as text.
        operators: operator type → number of nodes, including subgraphs.
        parameters: the number of elements of all initializers.
        parameter_bytes: the size of all initializers in bytes.
        dtypes: element type → number of elements. It shows whether a model is quantized.
    """

    opset: Mapping[str, int]
    inputs: Sequence[str]
    outputs: Sequence[str]
    operators: Mapping[str, int]
    parameters: int
    parameter_bytes: int
    dtypes: Mapping[str, int]


@dataclass(frozen=True)
class Facts:
    """The content of a report. A fact is None if the export did not reach it.

    Attributes:
        stages: all stages, in order.
        versions: package → version. Python and the platform are included.
        error: the error with its traceback and causes.
        exported_program: the captured program as text.
        operators_before: operator → number of FX nodes after capture.
        operators_after: operator → number of FX nodes after decomposition.
        translated_operators: the operators of the decomposed program with their translations.
        model: the figures of the model, as the last stage that ran left it.
        dynamic_dims: the symbolic sizes, and the requested dynamic dims that are static.
        verification: the comparison of the outputs.
        profile: the output of the profiler.
        support: for each target with a table, the nodes for which the runtime has kernels.
    """

    stages: Sequence[StageOutcome]
    versions: Mapping[str, str]
    error: str | None = None
    exported_program: str | None = None
    operators_before: Mapping[str, int] | None = None
    operators_after: Mapping[str, int] | None = None
    translated_operators: Sequence[TranslatedOperator] | None = None
    model: ModelSummary | None = None
    dynamic_dims: Sequence[DynamicDim] | None = None
    verification: Verification | None = None
    profile: str | None = None
    support: Sequence[Support] | None = None


def write(facts: Facts, folder: str | os.PathLike[str], *, when: datetime | None = None) -> Path:
    """Writes the report to ``onnx_export_<time>_<success or the stage that failed>.md`` in UTF-8.

    Args:
        facts: the content of the report.
        folder: the folder of the file. It is created if it does not exist.
        when: the time in the file name; by default the current time.

    Returns:
        The path of the file.

    Raises:
        ArgumentError: the folder or the file cannot be written.
    """
    failed = next((stage.name for stage in facts.stages if stage.ok is False), None)
    outcome = "success" if failed is None and facts.error is None else (failed or "failure").replace(" ", "_")
    stamp = (when or datetime.now()).strftime("%Y-%m-%d_%H-%M-%S-%f")
    path = Path(folder) / f"onnx_export_{stamp}_{outcome}.md"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(markdown(facts), encoding="utf-8")
    except OSError as error:
        raise ArgumentError(f"The report cannot be written to {os.fspath(folder)!r}: {error}.") from error
    return path


def markdown(facts: Facts) -> str:
    """Returns the report as Markdown. A section without facts consists of the text "Not reached."."""
    sections = [
        ("Stages", _stages(facts.stages)),
        ("Error", None if facts.error is None else _fenced(facts.error, "pytb")),
        ("Versions", _table(("package", "version"), facts.versions.items())),
        ("ONNX model", None if facts.model is None else _model(facts.model)),
        ("Runtimes", None if facts.support is None else _support(facts.support)),
        ("Dynamic dims", None if facts.dynamic_dims is None else _dims(facts.dynamic_dims)),
        ("Verification", None if facts.verification is None else _differences(facts.verification.outputs)),
        ("Operators", _operators(facts.operators_before, facts.operators_after)),
        ("Translations", None if facts.translated_operators is None else _translated(facts.translated_operators)),
        ("Exported program", None if facts.exported_program is None else _fenced(facts.exported_program, "python")),
        ("Profile", None if facts.profile is None else _fenced(facts.profile, "")),
    ]
    optional = {"Error", "Profile"}  # these sections are left out if they have no facts
    parts = ["# ONNX export"]
    for title, body in sections:
        if body is not None or title not in optional:
            parts.append(f"## {title}\n\n{body if body is not None else 'Not reached.'}")
    return "\n\n".join(parts) + "\n"


def _stages(stages: Iterable[StageOutcome]) -> str:
    lines = []
    for stage in stages:
        state = {True: "", False: "**failed**", None: "" if stage.note else "not reached"}[stage.ok]
        time = "" if stage.seconds is None else f"{stage.seconds:.3f} s"
        details = ", ".join(text for text in (state, stage.note, time) if text)
        lines.append(f"- [{'x' if stage.ok else ' '}] {stage.name}{': ' if details else ''}{details}")
    return "\n".join(lines)


def _model(model: ModelSummary) -> str:
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in model.opset.items())
    lines = [f"- opset: {opsets}"]
    lines += [f"- input `{text}`" for text in model.inputs]
    lines += [f"- output `{text}`" for text in model.outputs]
    dtypes = ", ".join(f"{dtype} {count:,}" for dtype, count in sorted(model.dtypes.items(), key=lambda pair: -pair[1]))
    lines.append(f"- parameters: {model.parameters:,} ({model.parameter_bytes:,} bytes): {dtypes or 'none'}")
    lines.append(f"- nodes: {sum(model.operators.values()):,}")
    return "\n".join(lines) + "\n\n" + _table(("operator", "nodes"), _by_count(model.operators))


def _support(found: Sequence[Support]) -> str:
    """Returns the share of nodes with a kernel for each target, then the nodes without one."""
    rows = ((each.target, f"{each.share:.1%}", each.source, "; ".join(each.advice)) for each in found if each.is_known)
    missing = ((each.target, one.operator, one.node, one.line, one.reason) for each in found for one in each.missing)
    parts = [_table(("target", "nodes with a kernel", "by", "advice"), rows)]
    if any(each.missing for each in found):
        parts.append(_table(("target", "operator", "node", "line", "reason"), missing))
    return "\n\n".join([*parts, *(f"{each.target}: {each.limits}" for each in found)])


def _dims(dims: Sequence[DynamicDim]) -> str:
    if not dims:
        return "None: every size is fixed."
    rows = ((dim.name, dim.where, dim.range, dim.specialized or "dynamic") for dim in dims)
    return _table(("dim", "where", "range", "result"), rows)


def _differences(differences: Sequence[Difference]) -> str:
    rows = (
        (
            "[x]" if one.ok else "[ ]",
            f"`{one.name}`",
            f"{one.dtype}[{', '.join(map(str, one.shape))}]",
            f"{one.max_abs:.3g}",
            f"{one.max_rel:.3g}",
            str(one.nonfinite),
            one.module,
            one.problem,
        )
        for one in differences
    )
    return _table(("ok", "value", "type", "max abs", "max rel to scale", "non-finite", "module", "problem"), rows)


def _operators(before: Mapping[str, int] | None, after: Mapping[str, int] | None) -> str | None:
    if before is None:
        return None
    rows = (
        (f"`{name}`", str(before.get(name, 0)), "not reached" if after is None else str(after.get(name, 0)))
        for name in sorted({*before, *(after or {})})
    )
    return _table(("operator", "captured", "decomposed"), rows)


def _translated(operators: Sequence[TranslatedOperator]) -> str:
    rows = (
        (f"`{one.operator}`", str(one.count), f"`{one.function}`" if one.function else "**none**", one.place)
        for one in operators
    )
    return _table(("operator", "nodes", "translation", "place"), rows)


def _by_count(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    return [(f"`{name}`", str(count)) for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _fenced(text: str, language: str) -> str:
    """Returns a code block whose fence is longer than every fence in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
