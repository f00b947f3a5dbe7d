"""Tests the wheel with the oldest and the newest allowed versions of its dependencies, and writes docs/versions.md.

    python -m tools.matrix [--only NAME ...] [--base VENV] [--seconds S] [--folder build/matrix]

Makes one environment for each combination, builds and installs the wheel, and runs the tests against it, some files at
a time. A result is stored when its files are done, so a run continues where an earlier one ended; remove the folder to
begin again. `--base` is an environment whose packages are used where their versions fit, instead of a download. The
page tells how many of the files have run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
import tomllib
import venv
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "versions.md"
REPORTED = ("torch", "numpy", "onnx", "onnx_ir", "onnxscript", "onnxruntime")

README = "tests/test_docs.py::test_python_runs"
SAMPLE = ("tests/test_export.py", "tests/test_pipeline.py", "tests/program", "tests/passes", "tests/translation")
"""What a combination with a sample of the tests runs besides README's snippets, as far as its time allows."""


@dataclass(frozen=True)
class Combination:
    """One environment.

    Attributes:
        versions: which versions the environment has, in words.
        requirements: what is installed with the wheel.
        minutes: the time for a sample of the tests; None runs all tests.
    """

    name: str
    versions: str
    requirements: tuple[str, ...]
    minutes: float | None = None


@dataclass(frozen=True)
class Outcome:
    """What a test file did in an environment."""

    combination: str
    file: str
    passed: int
    skipped: int
    failed: list[str]
    seconds: float


# ---------------------------------------------------------------- combinations


def combinations() -> list[Combination]:
    """Returns the combinations, from the bounds in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds, extra = lower_bounds(project["dependencies"]), project["optional-dependencies"]["test"]
    # Libraries of models need newer versions than the oldest; the tests of the sample do not import them.
    tools = [each for each in extra if not each.startswith(("transformers", "torchao"))]
    oldest = [f"{name}=={version}" for name, version in bounds.items()]
    return [
        Combination("newest", "the newest allowed", tuple(extra)),
        Combination("torch 2.14", "torch 2.14, else the newest", (*extra, "torch==2.14.*")),
        Combination("torch 2.13", "torch 2.13, else the newest", (*extra, "torch==2.13.*")),
        Combination("oldest torch", "the oldest torch, else the newest", (*extra, f"torch=={bounds['torch']}.*")),
        Combination("oldest", "the oldest allowed", (*tools, *oldest), minutes=10),
    ]


def lower_bounds(dependencies: list[str]) -> dict[str, str]:
    """Returns the lower bound of each dependency: ``{"torch": "2.13"}`` of ``["torch>=2.13,<3"]``."""
    return dict(re.findall(r"^([\w-]+)>=([\d.]+)", "\n".join(dependencies), re.M))


# ---------------------------------------------------------------- environments


def make_environment(home: Path, wheel: Path, requirements: Iterable[str], base: Path | None = None) -> Path:
    """Returns the Python of an environment with the wheel and the requirements, which is made at the first call."""
    python = home / "bin" / "python"
    if not (home / "installed").exists():
        print(f"installing in {home}", flush=True)
        venv.create(home, with_pip=True, clear=True)
        site = next((home / "lib").glob("python*/site-packages"))
        if base is not None:
            (site / "base.pth").write_text(f"{next((base / 'lib').glob('python*/site-packages')).resolve()}\n")
        install(python, str(wheel), *requirements)
        install(python, "--force-reinstall", "--no-deps", str(wheel))  # the base may have another build of the version
        (site / "tests.pth").write_text(f"{ROOT}\n")  # after the site packages, so the wheel's fx_onnx is found first
        (home / "installed").touch()
    return python


def install(python: Path, *arguments: str) -> None:
    """Runs ``pip install`` in an environment."""
    subprocess.run([python, "-m", "pip", "install", "--quiet", *arguments], check=True)


def built_wheel(folder: Path) -> Path:
    """Returns the wheel of this repository, which is built at the first call."""
    if not list(folder.glob("*.whl")):
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
        subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


def environment_of(python: Path) -> dict[str, str]:
    """Returns the versions in an environment.

    Raises:
        RuntimeError: the environment does not import fx_onnx from the wheel.
    """
    code = (
        "import json, platform, importlib.metadata as m, fx_onnx; "
        f"print(json.dumps({{'python': platform.python_version(), 'file': fx_onnx.__file__, "
        f"**{{name: m.version(name) for name in {REPORTED}}}}}))"
    )
    found: dict[str, str] = json.loads(subprocess.check_output([python, "-P", "-c", code], text=True))
    if not Path(found.pop("file")).is_relative_to(python.parents[1]):
        raise RuntimeError(f"{python} does not import fx_onnx from the wheel")
    return found


# ---------------------------------------------------------------- tests


def files_of(combination: Combination) -> Iterator[str]:
    """Yields the test files of a combination, in order."""
    yield README if combination.minutes else "tests/test_docs.py"
    for name in SAMPLE if combination.minutes else ("tests",):
        path = ROOT / name
        for file in sorted(path.rglob("test_*.py")) if path.is_dir() else [path]:
            if file.name != "test_docs.py":
                yield file.relative_to(ROOT).as_posix()


def tested(python: Path, combination: str, files: list[str], limit: float) -> list[Outcome]:
    """Runs test files in one process of an environment, within a limit of seconds for each.

    If the process does not end, each file is tested alone, so that the others have a result.
    """
    report = python.parents[1] / "report.xml"
    report.unlink(missing_ok=True)
    # Without the safe path, Python would find the repository's fx_onnx instead of the installed one.
    command = [python, "-m", "pytest", *files, "-o", "pythonpath=", "-p", "no:cacheprovider", f"--junitxml={report}"]
    command.append("--continue-on-collection-errors")
    command += ["-k", "README"] if files == [README] else []
    start = time.monotonic()
    try:
        settings = {**os.environ, "PYTHONSAFEPATH": "1"}
        subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, timeout=limit * len(files), check=False)
    except subprocess.TimeoutExpired:
        pass
    seconds = time.monotonic() - start
    if report.exists():
        return outcomes(combination, files, report.read_text(encoding="utf-8"), seconds)
    if len(files) > 1:
        return [outcome for file in files for outcome in tested(python, combination, [file], limit)]
    return [Outcome(combination, files[0], 0, 0, [f"{files[0]}: no result after {seconds:.0f} s"], seconds)]


def outcomes(combination: str, files: list[str], report: str, seconds: float) -> list[Outcome]:
    """Returns the outcome of each file from a JUnit report of all. The files share the time outside of the tests."""
    cases: dict[str, list[ElementTree.Element]] = {file: [] for file in files}
    for case in ElementTree.fromstring(report).iter("testcase"):
        # An error of the import has no class name. Its name is the module's.
        module = (case.get("classname") or case.get("name") or "").replace(".", "/")
        cases[next(file for file in files if f"{module}/".startswith(module_of(file)))].append(case)
    times = {file: sum(float(case.get("time", 0)) for case in found) for file, found in cases.items()}
    rest = (seconds - sum(times.values())) / len(files)
    return [Outcome(combination, file, *counted(file, found), times[file] + rest) for file, found in cases.items()]


def module_of(file: str) -> str:
    """Returns the path of the module of a test file: ``tests/files/test_a/`` of ``tests/files/test_a.py::test_1``."""
    return file.partition("::")[0].removesuffix(".py") + "/"


def counted(file: str, cases: list[ElementTree.Element]) -> tuple[int, int, list[str]]:
    """Returns how many tests passed and were skipped, and the names of those that failed."""
    if not cases:
        return 0, 0, [f"{file}: no test ran"]
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = [case for case in cases if case.find("skipped") is not None]
    names = [f"{case.get('classname')}::{case.get('name')}" for case in failed]
    return len(cases) - len(failed) - len(skipped), len(skipped), names


class Results:
    """The outcomes, stored in a file, one in each line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.outcomes = [Outcome(**json.loads(line)) for line in lines]

    def of(self, combination: Combination) -> list[Outcome]:
        """Returns the outcomes of a combination."""
        return [each for each in self.outcomes if each.combination == combination.name]

    def add(self, outcome: Outcome) -> None:
        """Stores an outcome."""
        self.outcomes.append(outcome)
        with self.path.open("a", encoding="utf-8") as file:
            print(json.dumps(asdict(outcome)), file=file)

    def next_files(self, combination: Combination, count: int) -> list[str]:
        """Returns the next files to test, at most ``count``: none if the combination is done or its time is spent."""
        done = {each.file for each in self.of(combination)}
        spent = sum(each.seconds for each in self.of(combination))
        if combination.minutes and spent > combination.minutes * 60:
            return []
        left = [file for file in files_of(combination) if file not in done]
        return left[:1] if left[:1] == [README] else left[:count]


# ---------------------------------------------------------------- the page

HEAD = """\
# Versions

This page says with which versions the tests ran. `python -m tools.matrix` makes one environment for each row, builds
the wheel of this repository, installs it, runs the tests against the installed package, and writes this page. The last
row has the oldest version of the dependencies; it runs a part of the tests. The rows are from several days: the column
"files" tells how many of the test files of that day have run.

{table}

{failures}

## The bounds

- torch: the package uses private names of torch, which may change in any minor version
  ([torch_private.py](../fx_onnx/torch_internals/torch_private.py) lists them). So the upper bound is the next
  minor version. With an older torch, `export` raises one sentence. With a newer one, it warns once.
- onnxscript: its versions are below 1, so the upper bound is the next minor version.
- onnx and onnx_ir: the upper bound is the next major version.
- onnxruntime: older versions than 1.29 have no kernels for some operators on float64 and small integers, and 1.26
  computes an Attention with a softcap wrongly.
- safetensors: complex weights need 0.7.
- numpy and tqdm: only basic functions are used, so there is no upper bound.
- CPython: 3.11 was tested. With 3.12, 3.13 and 3.14, samples of the tests pass. 3.10 lacks `tomllib`, `StrEnum`,
  `Never` and `Unpack`, which five files import.
- Windows, macOS and arm64 were not run. Only POSIX has the lock that lets one save to a path wait for another, and
  flushes a folder to the disk; the libraries of `fx_onnx[tensorrt]` are for Linux. Without them, an export goes on.
- torch 2.12: [torch_differences.py](../fx_onnx/torch_internals/torch_differences.py) lists what it does differently,
  and `tests/torch_versions.py` what it lacks, such as keyword arguments of an autograd function's `apply`. No function
  of torch has a [faster replacement](capture_time.md#a-faster-torchexport).
- torch 2.11: of 549 tests in 17 files that depend on torch most, 14 fail: sizes of slices with computed bounds (about
  15 statements), branches of `cond` that return an operand (5), sizes of `unique` (5), a symbolic number for
  `quantile`, output classes without a hash, a cause (3 each).
- torch 2.10: of 351 tests in 11 such files, 1 fails, and one ended the process. `torch.onnx.ExportableModule` does not
  exist (3 statements). The other tests were not run.
"""


def page(results: Results, environments: dict[str, dict[str, str]]) -> str:
    """Returns the text of docs/versions.md."""
    columns = ["python", *REPORTED]
    head = ["versions", *columns, "files", "passed", "skipped", "failed", "minutes"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    failures: list[str] = []
    for combination in [each for each in combinations() if each.name in environments]:
        found, versions = results.of(combination), environments[combination.name]
        failed = [name for each in found for name in each.failed]
        counts = (sum(each.passed for each in found), sum(each.skipped for each in found), len(failed))
        files = str(len(found)) if combination.minutes else f"{len(found)} of {len(list(files_of(combination)))}"
        minutes = round(sum(each.seconds for each in found) / 60)
        cells = [*(versions[column] for column in columns), files, *counts, minutes]
        lines.append(f"| {combination.versions} | {' | '.join(map(str, cells))} |")
        failures += [f"- {combination.versions}: `{name}`" for name in failed]
    return HEAD.format(table="\n".join(lines), failures="\n".join(failures) or "No test failed.")


def run(combination: Combination, python: Path, results: Results, end: float, limit: float, batch: int) -> None:
    """Tests the files of a combination that are left, until ``end``, and prints a line for each."""
    while time.monotonic() < end and (files := results.next_files(combination, batch)):
        for outcome in tested(python, combination.name, files, limit):
            results.add(outcome)
            print(f"{outcome.file:70} {outcome.passed:5} passed {outcome.seconds:6.0f} s", flush=True)
            for name in outcome.failed:
                print(f"    failed: {name}", flush=True)


def main() -> int:
    """Makes the environments, runs what is left to run and writes the page. Returns 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="*", help=f"run only these: {', '.join(each.name for each in combinations())}")
    parser.add_argument("--base", type=Path, help="an environment whose packages are used instead of a download")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no file after this time")
    parser.add_argument("--limit", type=float, default=1800, help="seconds for one file")
    parser.add_argument("--batch", type=int, default=10, help="files in one process, which share the imports")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "matrix")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    results, wheel = Results(options.folder / "results.jsonl"), built_wheel(options.folder)
    end, environments = time.monotonic() + options.seconds, {}
    for combination in combinations():
        home = options.folder / combination.name.replace(" ", "-")
        chosen = not options.only or combination.name in options.only
        if chosen or (home / "installed").exists():
            python = make_environment(home, wheel, combination.requirements, options.base)
            environments[combination.name] = environment_of(python)
        if chosen:
            run(combination, python, results, end, options.limit, options.batch)
    PAGE.write_text(page(results, environments), encoding="utf-8")
    return int(any(each.failed for each in results.outcomes))


if __name__ == "__main__":
    sys.exit(main())
