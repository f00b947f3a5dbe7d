"""Tests the wheel with each allowed version of torch, and writes the table of docs/versions.md.

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

ALL_PASSED = "No test failed."
README = "tests/test_docs.py::test_python_runs"
_BUILD = ("setuptools>=77", "wheel")  # a test installs a package without an environment for its build
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
    first, end = map(int, re.findall(r"\btorch>=2\.(\d+),<2\.(\d+)", "\n".join(project["dependencies"]))[0])
    older = [f"torch 2.{minor}" for minor in range(end - 2, first - 1, -1)]
    return [
        Combination("newest", "the newest allowed", tuple(extra)),
        *(Combination(each, f"{each}, else the newest", (*extra, f"{each.replace(' ', '==')}.*")) for each in older),
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
        install(python, str(wheel), *_BUILD, *requirements)
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


def page(text: str, results: Results, environments: dict[str, dict[str, str]]) -> str:
    """Returns the text of docs/versions.md with the rows of these environments, and with what failed in them.

    Args:
        text: the page. Its other rows and its other text stay.
        results: the outcomes.
        environments: the versions in each environment, by the name of its combination.
    """
    head, rest = text.split("\n\n## ", maxsplit=1)
    lines = [line for line in head.splitlines() if line != ALL_PASSED]
    for combination in [each for each in combinations() if each.name in environments]:
        found, versions = results.of(combination), environments[combination.name]
        failed = [f"- {combination.versions}: `{name}`" for each in found for name in each.failed]
        counts = (sum(each.passed for each in found), sum(each.skipped for each in found), len(failed))
        files = str(len(found)) if combination.minutes else f"{len(found)} of {len(list(files_of(combination)))}"
        minutes = round(sum(each.seconds for each in found) / 60)
        cells = [
            combination.versions,
            versions["python"],
            *(versions[name] for name in REPORTED),
            files,
            *counts,
            minutes,
        ]
        row = f"| {' | '.join(map(str, cells))} |"
        lines = [row if line.startswith(f"| {combination.versions} |") else line for line in lines]
        lines = [line for line in lines if not line.startswith(f"- {combination.versions}:")] + failed
    if not lines[-1].startswith("- "):
        lines.append(ALL_PASSED)
    return "\n".join(lines) + f"\n\n## {rest}"


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
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), results, environments), encoding="utf-8")
    return int(any(each.failed for each in results.outcomes))


if __name__ == "__main__":
    sys.exit(main())
