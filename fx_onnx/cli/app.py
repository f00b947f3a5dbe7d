"""The commands of ``fx-onnx``.

Exit codes: 0 for success, 1 for a failure, 2 for wrong usage, 3 for a model whose results differ.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from enum import IntEnum, StrEnum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from fx_onnx.applications.layouts import LAYOUTS, choose
from fx_onnx.cli.explain import explain
from fx_onnx.cli.json_output import failure, model_facts, print_json
from fx_onnx.cli.run import run
from fx_onnx.cli.versions import versions
from fx_onnx.messages.errors import ArgumentError, OnnxExporterError, VerificationError
from fx_onnx.messages.findings import collect_findings
from fx_onnx.messages.message_ids import Finding, MessageId
from fx_onnx.messages.progress import hide_progress
from fx_onnx.targets.known_targets import NAMES, find_target
from fx_onnx.torch_internals.version import version

__all__ = ["ExitCode", "app", "main"]

app = typer.Typer(
    name="fx-onnx",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fx_onnx {version()}")
        raise typer.Exit


@app.callback()
def _main(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Exports PyTorch models to ONNX, and checks, shows and compares ONNX files."""


_REPORTS = "onnx_export_*.html"

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print errors only.")]
OnnxFile = Annotated[Path, typer.Argument(help="An ONNX file.", show_default=False)]


class MetadataLevel(StrEnum):
    """The levels of ``ONNXProgram.save(metadata=...)``."""

    full = "full"
    names = "names"
    none = "none"


class ExitCode(IntEnum):
    """The exit codes of the command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    DIFFERENT = 3


def main() -> None:
    """Runs the command with the arguments of the process. It is the entry point of ``fx-onnx``."""
    with _exit_codes(as_json="--json" in sys.argv[1:]):
        app()


@contextmanager
def _exit_codes(as_json: bool) -> Iterator[None]:
    """Turns the package's errors into one line on stderr, an object on stdout if it is asked for, and an exit code."""
    try:
        yield
    except OnnxExporterError as error:
        typer.echo(f"fx-onnx: {error}", err=True)
        if as_json:
            print_json(failure(error))
        raise SystemExit(int(_code_of(error))) from None


def _code_of(error: OnnxExporterError) -> ExitCode:
    if isinstance(error, ArgumentError):
        return ExitCode.USAGE
    return ExitCode.DIFFERENT if isinstance(error, VerificationError) else ExitCode.FAILED


# ---------------------------------------------------------------- export


def _named(source: str) -> str:
    """Returns a source, if it names something.

    Raises:
        ArgumentError: it is ``hf:`` without a folder.
    """
    if source == "hf:":
        raise ArgumentError("The source hf: names no folder; write it as hf:FOLDER.", id=MessageId.COMMAND_OPTION)
    return source


Source = Annotated[
    str,
    typer.Argument(
        help="package.module:name (a Module, or a function that returns one, alone or with its inputs), a .pt2 file of "
        "torch.export, a TorchScript file, or hf:FOLDER.",
        show_default=False,
        callback=_named,
    ),
]
Output = Annotated[Path | None, typer.Option("-o", "--output", help="The ONNX file to write.", show_default=False)]
Genai = Annotated[
    Path | None, typer.Option(help="The folder to write for onnxruntime-genai: short for --layout genai --output.")
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", help="An example input, NAME=DTYPE[SHAPE], NAME=@FILE.npy or NAME=LITERAL. Repeat it."),
]
Dynamic = Annotated[
    list[str] | None, typer.Option(help="A dynamic dim of an input, NAME:AXIS=DIM[,AXIS=DIM...]. Repeat it.")
]
Opset = Annotated[int | None, typer.Option(help="The version of the default ONNX domain.")]
Target = Annotated[
    str | None,
    typer.Option(
        help=f"The runtime that the model is for: {', '.join(NAMES)}.",
        autocompletion=lambda incomplete: [name for name in NAMES if name.startswith(incomplete)],
    ),
]
Verify = Annotated[bool, typer.Option("--verify", help="Run the model and compare its results.")]
Report = Annotated[bool, typer.Option("--report", help="Write a report next to the ONNX file, as HTML and Markdown.")]
ExternalData = Annotated[
    bool | None, typer.Option(help="Write the weights to a second file; by default above 2 GB only.")
]
Without = Annotated[
    list[str] | None,
    typer.Option("--no-optimize", help="Leave out the pass of this name, or all passes of the optimizer. Repeat it."),
]
Metadata = Annotated[
    MetadataLevel, typer.Option(help="What the file tells about the model's code; names has no source lines.")
]
Task = Annotated[str | None, typer.Option(help="The task of a Hugging Face model, such as text-generation.")]
Layout = Annotated[
    str | None,
    typer.Option(
        help="Write a folder for an application to --output: optimum, optimum-two-decoders, sentence-transformers, "
        "transformers.js, diffusers, model-package or genai.",
        autocompletion=lambda incomplete: [name for name in LAYOUTS if name.startswith(incomplete)],
    ),
]
Precision = Annotated[
    list[str] | None,
    typer.Option(
        help="With --layout: fp32, fp16, int8, q8, q4, q4f16, int8-static, a16w8, a16w4. Repeat it for transformers.js."
    ),
]
Calibration = Annotated[
    Path | None,
    typer.Option(
        help="For int8-static, a16w8, a16w4 and --cache: a folder of .npz files, each with the inputs of one call by "
        "name."
    ),
]
Cache = Annotated[
    str | None, typer.Option(help="With --layout genai: int8 or int4, the dtype of keys and values in the cache.")
]
Adapter = Annotated[
    list[str] | None, typer.Option(help="With --layout: NAME=FOLDER of a LoRA adapter of peft. Repeat it.")
]
WithPast = Annotated[bool, typer.Option("--with-past", help="Give a decoder a key-value cache.")]
Training = Annotated[bool, typer.Option("--training", help="Keep the mode of the module, without eval().")]


@app.command(
    epilog="Examples:\n\n"
    "fx-onnx export models:build --input x=float32[2,8] --dynamic x:0=batch -o model.onnx\n\n"
    "fx-onnx export model.pt2 -o model.onnx --verify\n\n"
    "fx-onnx export hf:path/to/folder --task text-generation --with-past -o decoder.onnx\n\n"
    "fx-onnx export hf:path/to/folder --task text-generation --genai decoder"
)
def export(
    source: Source,
    output: Output = None,
    inputs: Inputs = None,
    dynamic: Dynamic = None,
    opset: Opset = None,
    target: Target = None,
    verify: Verify = False,
    report: Report = False,
    external_data: ExternalData = None,
    without: Without = None,
    metadata: Metadata = MetadataLevel.full,
    task: Task = None,
    with_past: WithPast = False,
    genai: Genai = None,
    layout: Layout = None,
    precision: Precision = None,
    calibration: Calibration = None,
    cache: Cache = None,
    adapter: Adapter = None,
    training: Training = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Exports a model to an ONNX file, or to a folder."""
    path, layout = _destination(output, genai, layout, target)
    if any(option is not None for option in (layout, precision, calibration, cache, adapter)):
        _export_folder(locals())
        return
    from fx_onnx.cli import example_inputs, model_sources

    with collect_findings(as_warning=False) as findings, _new_report(path.parent, quiet) as facts:
        given = example_inputs.parse_inputs(inputs or ())
        model = model_sources.load(source, task=task, with_past=with_past)
        if not training and hasattr(model.model, "eval"):
            model.model.eval()
        program = import_module("fx_onnx.export").export(
            model.model,
            f=path,
            opset_version=opset,
            target=target,
            verify=verify,
            report=report,
            artifacts_dir=path.parent,
            external_data=external_data,
            optimize=_passes(without),
            metadata=metadata.value,
            **example_inputs.export_arguments(model, given, dynamic or []),
        )
    facts |= {"file": str(path), **model_facts(program.summary()), "seconds": program.timings}
    _print_export(facts, findings, _lines(path, program, verify), as_json, quiet)


def _passes(without: list[str] | None) -> bool | set[str]:
    """Returns what ``export`` takes as ``optimize``."""
    return False if "all" in (without or ()) else set(without or ())


def _lines(path: Path, program: Any, verify: bool) -> list[str]:
    return [f"{path}: {program!r}", *[str(program.export_facts.verification)] * verify]


_NOT_OF_A_FOLDER = "inputs", "dynamic", "with_past", "training"


def _export_folder(given: dict[str, Any]) -> None:
    """Writes the folder that an application loads, and prints its files.

    Raises:
        ArgumentError: the source is no folder of a Hugging Face model, an option does not go with --layout, or
            --precision, --calibration, --cache or --adapter is without it.
    """
    source, output, quiet = given["source"], given["path"], given["quiet"]
    wrong = [name.replace("inputs", "input") for name in _NOT_OF_A_FOLDER if given[name]]
    problem = None
    if given["layout"] is None:
        option = next(name for name in ("precision", "calibration", "cache", "adapter") if given[name])
        problem = f"--{option} needs --layout, which names the files."
    elif wrong:
        problem = (
            f"--{wrong[0].replace('_', '-')} does not go with --layout, because the layout decides it; leave it out."
        )
    elif not source.startswith("hf:"):
        problem = "--layout and --genai are for Hugging Face models; write the source as hf:FOLDER."
    pairs = [text.partition("=") for text in given["adapter"] or []]
    if problem is None and not all(name and folder for name, _, folder in pairs):
        problem = "--adapter needs NAME=FOLDER."
    if problem is not None:
        raise ArgumentError(problem, id=MessageId.COMMAND_OPTION)
    choose(given["layout"], given["precision"] or "fp32", given["opset"])
    from fx_onnx.applications.export_pretrained import export_pretrained
    from fx_onnx.cli.example_inputs import calibration_inputs

    options: dict[str, Any] = {
        "precision": given["precision"] or "fp32",
        "opset_version": given["opset"],
        "calibration": given["calibration"] and calibration_inputs(given["calibration"]),
        "adapters": {name: folder for name, _, folder in pairs},
        "artifacts_dir": output.parent,
        "metadata": given["metadata"].value,
        "optimize": _passes(given["without"]),
        **{name: given[name] for name in ("layout", "task", "target", "cache", "report", "external_data")},
    }
    with collect_findings(as_warning=False) as findings, _new_report(output.parent, quiet) as facts:
        try:
            files = export_pretrained(source.removeprefix("hf:"), output, **options)
        except KeyboardInterrupt:
            typer.echo(f"fx-onnx: Interrupted; the folder {output} is as before.", err=True)
            raise
    facts |= {"folder": str(output), "files": [asdict(file) for file in files]}
    lines = []
    for file in files:
        compared = "not compared" if file.difference is None else f"at most {file.difference:.2g} from PyTorch"
        lines.append(f"{output / file.name}: {file.size:,} bytes, {compared}")
        if file.precision != "fp32":
            kept = f"; without {', '.join(file.kept)}" if file.kept else ""
            lines.append(f"  {file.precision}: {file.distance:.2g} of the largest result from fp32{kept}")
    lines.append(
        f"{output}: {len(files)} ONNX file{'s' * (len(files) > 1)}, {sum(file.size for file in files):,} bytes"
    )
    _print_export(facts, findings, lines, given["as_json"], quiet)


@contextmanager
def _new_report(folder: Path, quiet: bool) -> Iterator[dict[str, Any]]:
    """Yields facts that get the path of the report, which an export that fails writes too, and prints the path."""
    before, facts = set(folder.glob(_REPORTS)), dict[str, Any]()
    try:
        with hide_progress() if quiet else nullcontext():
            yield facts
    finally:
        for path in sorted(set(folder.glob(_REPORTS)) - before):
            facts["report"] = str(path)
            if not quiet:
                typer.echo(f"report: {path}", err=True)


def _print_export(
    facts: dict[str, Any], findings: Iterable[Finding], lines: list[str], as_json: bool, quiet: bool
) -> None:
    """Prints the facts as one object, or the warnings and the lines."""
    facts["warnings"] = list(map(str, findings))
    if as_json:
        print_json(facts)
    elif not quiet:
        for message in facts["warnings"]:
            typer.echo(f"warning: {message}", err=True)
        typer.echo("\n".join(lines))


def _destination(
    output: Path | None, genai: Path | None, layout: str | None, target: str | None
) -> tuple[Path, str | None]:
    """Returns the file or the folder that is written, and its layout.

    Raises:
        ArgumentError: not exactly one of them is given, --genai is with another layout, or the target is unknown.
            Torch is not imported before.
    """
    if target is not None:
        find_target(target)
    path = output or genai
    if path is None or (genai is not None and (output is not None or layout not in (None, "genai"))):
        raise ArgumentError(
            "Give either --output, for an ONNX file or the folder of a --layout, or --genai, which is short for "
            "--layout genai --output.",
            id=MessageId.COMMAND_OPTION,
        )
    return path, layout if genai is None else "genai"


# ---------------------------------------------------------------- ONNX files


def _reader_of(*paths: Path) -> ModuleType:
    """Returns the module that reads ONNX files.

    Raises:
        ArgumentError: a file does not exist, which is known before the module is imported.
    """
    for path in paths:
        if path.is_dir():
            raise ArgumentError(f"{path} is a folder, not an ONNX file.", id=MessageId.ONNX_FILE)
        if not path.is_file():
            raise ArgumentError(f"There is no file {path}.", id=MessageId.ONNX_FILE)
    return import_module("fx_onnx.cli.onnx_files")


Runtime = Annotated[str | None, typer.Option(help="Also say whether the runtime of this target takes the model.")]


@app.command(epilog="Example:\n\nfx-onnx check model.onnx --runtime tensorrt --input 'x=float32[8,3,224,224]'")
def check(
    file: OnnxFile, runtime: Runtime = None, inputs: Inputs = None, as_json: Json = False, quiet: Quiet = False
) -> None:
    """Checks that a model is valid and that ONNX Runtime loads it.

    ONNX's checker and strict shape inference read the model. --runtime also asks the compiler of a runtime, if it is
    installed, or its table of kernels.
    """
    from fx_onnx.cli.example_inputs import parse_inputs

    if runtime is not None:
        find_target(runtime)
    elif inputs:
        raise ArgumentError("--input needs --runtime, whose compiler takes the shapes.", id=MessageId.COMMAND_OPTION)
    onnx_files = _reader_of(file)
    shapes = {name: tuple(getattr(value, "shape", ())) for name, value in parse_inputs(inputs or ()).items()}
    problems = onnx_files.check(file)
    support = None if runtime is None or problems else onnx_files.read(file).supports(runtime, shapes)
    told = "" if support is None else str(support)
    problems += [told] if told and not support else []
    if as_json:
        print_json({"file": str(file), "ok": not problems, "problems": problems, "support": told})
    else:
        for problem in problems:
            typer.echo(f"{file}: {problem}", err=True)
        if not problems and not quiet:
            typer.echo(f"{file}: valid, and ONNX Runtime loads it" + f"\n{told}" * bool(told))
    raise typer.Exit(ExitCode.FAILED if problems else ExitCode.OK)


Html = Annotated[bool, typer.Option("--html", help="Write the report with the graph beside the model, as NAME.html.")]


@app.command(epilog="Examples:\n\nfx-onnx show model.onnx --json\n\nfx-onnx show model.onnx --html")
def show(file: OnnxFile, html: Html = False, as_json: Json = False) -> None:
    """Shows the inputs, outputs, weights and operators of a model."""
    onnx_files = _reader_of(file)
    program = onnx_files.read(file)
    facts = program.summary()
    report = file.with_suffix(".html")
    if html:
        program.save_html(report)
    if as_json:
        print_json({"file": str(file), **model_facts(facts), **({"report": str(report)} if html else {})})
        return
    typer.echo(f"{file}: {program!r}")
    for name, count in sorted(facts.operators.items(), key=lambda item: (-item[1], item[0])):
        typer.echo(f"{count:8,} {name}")
    if html:
        typer.echo(f"report: {report}")


@app.command(epilog="Example:\n\nfx-onnx diff before.onnx after.onnx")
def diff(first: OnnxFile, second: OnnxFile, as_json: Json = False, quiet: Quiet = False) -> None:
    """Compares two models and their results on random inputs.

    The exit code is 3 if inputs, outputs or results differ.
    """
    onnx_files = _reader_of(first, second)
    comparison = onnx_files.compare_files(first, second)
    if as_json:
        print_json(onnx_files.as_json(comparison))
    elif not quiet:
        for name, (before, after) in comparison.operators.items():
            typer.echo(f"{name}: {before:,} and {after:,} nodes")
        for line in (*comparison.interface, *comparison.weights, *([comparison.skipped] if comparison.skipped else ())):
            typer.echo(line)
        for number in comparison.numbers:
            typer.echo(f"{number.name}: {number.problem or f'the results agree, at most {number.max_abs:.3g} apart'}")
        if not (comparison.operators or comparison.interface or comparison.weights):
            typer.echo("The models have equal operators, weights, inputs and outputs.")
    raise typer.Exit(ExitCode.OK if comparison.same_numbers else ExitCode.DIFFERENT)


app.command(
    context_settings={"allow_interspersed_args": False},  # all that follows the program is the program's
    epilog="Examples:\n\nfx-onnx run export_model.py model.onnx\n\nfx-onnx run -m export_model model.onnx",
)(run)


app.command(epilog="Example:\n\nfx-onnx explain FX1201")(explain)
app.command()(versions)
