"""Exports lists of models that others wrote, and writes docs/scoreboard.md.

    python -m benchmarks.scoreboard --results FILE [--paritybench CHECKOUT] [--lists NAME ...] [--every N] [--seconds S]

The lists are ``paritybench`` (one test of each file of a checkout of pytorch-jit-paritybench), ``torchvision``,
``timm`` and ``transformers``. Each model is exported with static sizes, and with a dynamic batch, by torch.export
alone, by fx_onnx, and, a fixed part of the list, by torch.onnx. Each model runs in a process of its own. Results are
compared with eager at the sizes of the export and, with a dynamic batch, at another one. A run continues where an
earlier one with the same file ended.
"""

import argparse
import copy
import importlib
import importlib.util
import inspect
import json
import logging
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from unittest.mock import MagicMock

import torch
from torch.export import Dim
from torch.utils import _pytree as pytree

import fx_onnx
from benchmarks.isolated import Failed, assert_right, isolated, one_line
from fx_onnx.sizes.dim_table import DimTable
from fx_onnx.sizes.trial_sizes import resized
from tests.compare import assert_close

T = TypeVar("T")
PAGE = Path(__file__).parents[1] / "docs" / "scoreboard.md"
UNUSABLE, RANDOM = "does not run", "random"
RIGHT, REFUSED, WRONG, UNCAPTURED, BEYOND = "right", "refused", "wrong", "not captured", "right beyond the capture"
WAYS = ("static", "dynamic")


class Example(NamedTuple):
    """The arguments of one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Exported(NamedTuple):
    """A program as a function of the module's arguments, and what became of its dims, if the exporter tells."""

    call: Callable[..., Any]
    dims: DimTable = DimTable()


@dataclass(frozen=True)
class Case:
    """One model of a list: ``build`` returns the module and its example. ``beside`` exports it with torch.onnx, too."""

    list: str
    name: str
    build: Callable[[], tuple[torch.nn.Module, Example]]
    beside: bool = False


@dataclass
class Outcome:
    """What became of one case.

    Attributes:
        eager: empty, or why there is nothing to compare: the model does not run, or its results are random.
        kinds: by ``"fx_onnx static"``: right, refused, wrong, not captured.
        texts: by the same key, the error or the difference.
        seconds: by the same key, and by ``"torch.export static"``, the CPU time.
        torch: the version of torch.
    """

    eager: str = ""
    kinds: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    torch: str = torch.__version__


# ---------------------------------------------------------------- lists


class _Absent(MetaPathFinder, Loader):
    """Imports mocks for packages that each file of paritybench imports, and that few models use."""

    _PACKAGES = frozenset(
        {"matplotlib", "pandas", "scipy", "sklearn", "tensorboard", "tensorflow", "torchaudio", "torchtext"}
    )

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Returns the spec of a mock. This finder is the last one, so that installed packages are imported."""
        absent = fullname.partition(".")[0] in self._PACKAGES
        return ModuleSpec(fullname, self, is_package=True) if absent else None

    def create_module(self, spec: ModuleSpec) -> Any:
        """Returns a mock, which has every attribute."""
        return MagicMock(name=spec.name, __version__="99")

    def exec_module(self, module: Any) -> None:
        """Does nothing: a mock has no code."""


def paritybench(checkout: Path) -> Iterator[Case]:
    """Yields one test of each generated file, drawn with seed 0; 300 of all files are exported with torch.onnx, too."""
    files = sorted((checkout / "generated").glob("test_*.py"))
    beside = {files[place * len(files) // 300] for place in range(300)} if len(files) > 300 else set(files)
    sys.path[:0] = [str(checkout), str(checkout / "generated")]
    sys.meta_path.append(_Absent())
    importlib.import_module("tests.torchvision_cpu")
    importlib.import_module("_paritybench_helpers")  # imported once, before the processes fork
    for file in files:
        yield Case("paritybench", file.stem.removeprefix("test_"), partial(_paritybench_test, file), file in beside)


def _paritybench_test(file: Path) -> tuple[torch.nn.Module, Example]:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    network, init, forward, _ = random.Random(0).choice(module.TESTCASES)
    args, kwargs = init()
    _seed(0)
    built = network(*args, **kwargs)
    args, kwargs = forward()
    return built.eval(), Example(tuple(args), dict(kwargs))


def of_torchvision() -> Iterator[Case]:
    """Yields the models of torchvision."""
    from tests.models.vision import VISION

    for model in VISION:
        yield Case("torchvision", model.name, partial(_named, model), beside=True)


def of_timm() -> Iterator[Case]:
    """Yields all model names of timm, with the smallest images that the model accepts; every tenth has torch.onnx."""
    import timm

    for place, name in enumerate(timm.list_models()):
        yield Case("timm", name, partial(_timm_model, name), place % 10 == 0)


def _timm_model(name: str) -> tuple[torch.nn.Module, Example]:
    import timm

    config = timm.get_pretrained_cfg(name)
    sizes = (config.min_input_size or config.input_size)[1:] if config else (224, 224)
    _seed(0)
    return timm.create_model(name).eval(), Example((torch.randn(2, 3, *sizes),), {})


def of_transformers() -> Iterator[Case]:
    """Yields the model types of transformers; every tenth has torch.onnx."""
    from tests.models.families import FAMILIES

    for place, family in enumerate(FAMILIES):
        yield Case("transformers", family.name, partial(_named, family), place % 10 == 0)


def _named(model: Any) -> tuple[torch.nn.Module, Example]:
    module = model.build()
    return module, Example((), model.examples(module)[0])


# ---------------------------------------------------------------- one case


def outcome(case: Case) -> Outcome:
    """Builds a model, and exports it in all ways. What the code of a list prints is dropped."""
    found = Outcome()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    try:
        module, example = case.build()
        first, second = (_eager(module, example, seed) for seed in (0, 1))
    except BaseException as error:  # the code of a list may end the process
        found.eager = f"{UNUSABLE}: {one_line(error)}"
        return found
    if not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(first)):
        found.eager = f"{UNUSABLE}: no tensor is returned"
        return found
    try:
        assert_close(first, second)
    except AssertionError:
        found.eager = RANDOM
        return found
    for way in WAYS:
        _export_in_way(case, way, module, example, found)
    return found


def _export_in_way(case: Case, way: str, module: torch.nn.Module, example: Example, found: Outcome) -> None:
    examples = [example]
    names = automatic = None
    if way == "dynamic":
        names, automatic = (_batches(module, example, dim) for dim in (str, lambda _: Dim.AUTO))
        examples.append(_doubled(example))
    try:
        _timed(found, f"torch.export {way}", lambda: _plain(module, example, automatic))
        captured = ""
    except Exception as error:
        captured = one_line(error)
    exporters = {"fx_onnx": (_ours, names), "torch.onnx": (_torch_onnx, automatic)}
    for name, (export, shapes) in exporters.items():
        if name == "fx_onnx" or case.beside:
            kind, text = _judged(partial(export, module, example, shapes), module, examples, found, f"{name} {way}")
            if captured:
                kind = {RIGHT: BEYOND, REFUSED: UNCAPTURED}.get(kind, kind)
                text = captured if kind in (BEYOND, UNCAPTURED) else text
            found.kinds[f"{name} {way}"], found.texts[f"{name} {way}"] = kind, text


def _judged(
    export: Callable[[], Exported], module: torch.nn.Module, examples: Sequence[Example], found: Outcome, key: str
) -> tuple[str, str]:
    """Returns the kind of an export and its text. A size that the export excludes in words is not compared."""
    try:
        program = _timed(found, key, export)
    except Exception as error:
        return REFUSED, one_line(error)
    for example in examples:
        if example is not examples[0] and (not _runs(module, example) or _is_excluded(program.dims, module, example)):
            continue
        try:
            given = _copied(example)
            assert_right(program.call(*given.args, **given.kwargs), module, *example)
        except Exception as error:
            return WRONG, f"{'as exported' if example is examples[0] else 'at another batch'}: {one_line(error)}"
    return RIGHT, ""


def _plain(module: torch.nn.Module, example: Example, shapes: Any) -> None:
    given = _copied(example)
    torch.export.export(module, given.args, given.kwargs, dynamic_shapes=shapes, strict=False)


def _ours(module: torch.nn.Module, example: Example, shapes: Any) -> Exported:
    given = _copied(example)
    program = fx_onnx.export(module, given.args, kwargs=given.kwargs, dynamic_shapes=shapes, verbose=False)
    return Exported(program.call_structured, program.dims)


def _torch_onnx(module: torch.nn.Module, example: Example, shapes: Any) -> Exported:
    given = _copied(example)
    options: dict[str, Any] = {"dynamic_shapes": shapes, "dynamo": True, "verbose": False}
    program: Any = torch.onnx.export(module, given.args, kwargs=given.kwargs, **options)
    return Exported(program)


def _copied(value: T) -> T:
    """Returns a copy, or the value itself if an object in it cannot be copied."""
    try:
        return copy.deepcopy(value)
    except Exception:
        return value


def _eager(module: torch.nn.Module, example: Example, seed: int) -> Any:
    given = _copied(example)
    _seed(seed)
    with torch.no_grad():
        return _copied(module)(*given.args, **given.kwargs)


def _runs(module: torch.nn.Module, example: Example) -> bool:
    try:
        _eager(module, example, 0)
    except Exception:
        return False
    return True


def _seed(seed: int) -> None:
    """Sets the seed of torch. paritybench replaces ``torch.manual_seed`` by a function that ignores its argument."""
    torch.random.default_generator.manual_seed(seed)
    random.seed(seed)


def _timed(found: Outcome, key: str, work: Callable[[], Any]) -> Any:
    start = time.process_time()
    result = work()
    found.seconds[key] = time.process_time() - start
    return result


def _batches(module: torch.nn.Module, example: Example, dim: Callable[[str], Any]) -> Any:
    """Returns the dynamic shapes: the first axis of each tensor, in the order of the parameters of the forward."""
    given = _in_order(module, example)
    leaves, spec = pytree.tree_flatten(given)
    shapes = [{0: dim(f"d{n}")} if _has_batch(leaf) else None for n, leaf in enumerate(leaves)]
    return pytree.tree_unflatten(shapes, spec)


def _in_order(module: torch.nn.Module, example: Example) -> tuple[Any, ...]:
    try:
        return tuple(inspect.signature(module.forward).bind(*example.args, **example.kwargs).arguments.values())
    except TypeError:  # the module calls something else than its forward
        return (*example.args, *example.kwargs.values())


def _has_batch(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dim() > 0


def _doubled(example: Example) -> Example:
    leaves, spec = pytree.tree_flatten(example)
    grown = [resized(x, [2 * x.shape[0], *x.shape[1:]]) if _has_batch(x) else x for x in leaves]
    result: Example = pytree.tree_unflatten(grown, spec)
    return result


def _is_excluded(dims: DimTable, module: torch.nn.Module, example: Example) -> bool:
    """Returns whether the export told that it is not right for these sizes."""
    leaves = pytree.tree_leaves(_in_order(module, example))
    sizes = {f"d{n}": leaf.shape[0] for n, leaf in enumerate(leaves) if _has_batch(leaf)}
    if any(dim.sizes.startswith("fixed") for dim in dims):
        return True
    return not all(each.holds(sizes) for each in dims.conditions if sizes.keys() >= set(each.dims))


# ---------------------------------------------------------------- results and the page


class Results:
    """The outcomes by list and name, stored in a file, one in each line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[tuple[str, str], Outcome] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            *key, values = json.loads(line)
            self.known[key[0], key[1]] = Outcome(**values)

    def add(self, case: Case, found: Outcome) -> None:
        """Stores an outcome."""
        self.known[case.list, case.name] = found
        with self.path.open("a", encoding="utf-8") as file:
            print(json.dumps([case.list, case.name, asdict(found)]), file=file)


HEAD = """\
# Scoreboard

Lists of models that others wrote, exported by fx_onnx {ours} and torch.onnx. `python -m benchmarks.scoreboard` makes
this page; a list that has not run to its end is a sample, each Nth of its models. Each model has random weights and is
exported with static sizes, and with a dynamic first axis of each tensor. Results are compared with eager at the sizes
of the export, and at twice the batch where eager runs there and the export does not say that it excludes this size.

- **cases**: models that run in eager mode and give equal results with two seeds.
- **captured**: torch.export alone captures the model, with the same sizes.
- **right**, **refused**, **wrong**: of those that are captured. A refusal is an error of the exporter.
- **beyond**: right, although torch.export alone fails.
- **time**: CPU time of all right exports, as a multiple of that of torch.export alone.

{lists}

{table}

## What is not right

Of the models that torch.export captures:

{failures}
"""


def page(known: Mapping[tuple[str, str], Outcome], commit: str) -> str:
    """Returns the text of docs/scoreboard.md."""
    columns = ("list", "sizes", "exporter", "cases", "captured", "right", "refused", "wrong", "beyond", "time")
    rows, lists, failures = [], [], []
    for name in dict.fromkeys(each for each, _ in known):
        found = {case: each for (of, case), each in known.items() if of == name}
        left_out = Counter(each.eager.partition(":")[0] for each in found.values() if each.eager)
        text = ", ".join(f"{count} {kind}" for kind, count in left_out.items()) or "all run"
        versions = " and ".join(sorted({each.torch for each in found.values()}))
        source = f" (commit {commit[:12]})" if name == "paritybench" else ""
        lists.append(f"- {name}{source}: {len(found)} models with torch {versions}, {text}.")
        for way in WAYS:
            for exporter in ("fx_onnx", "torch.onnx"):
                rows.append((name, way, exporter, *_counts([*found.values()], exporter, way)))
            failures += _failures(name, way, found)
    lines = [f"| {' | '.join(map(str, row))} |" for row in (columns, ["---"] * len(columns), *rows)]
    return HEAD.format(
        ours=fx_onnx.__version__, lists="\n".join(lists), table="\n".join(lines),
        failures="\n".join(failures) or "Nothing.",
    )  # fmt: skip


def _counts(found: Sequence[Outcome], exporter: str, way: str) -> list[str | int]:
    key, plain = f"{exporter} {way}", f"torch.export {way}"
    cases = [each for each in found if key in each.kinds]
    kinds = Counter(each.kinds[key] for each in cases)
    captured = sum(plain in each.seconds for each in cases)
    timed = [each for each in cases if each.kinds[key] == RIGHT]
    alone = sum(each.seconds[plain] for each in timed)
    time_ = f"{sum(each.seconds[key] for each in timed) / alone:.2f}" if alone else ""
    return [len(cases), captured, *(kinds[kind] for kind in (RIGHT, REFUSED, WRONG, BEYOND)), time_]


def _failures(name: str, way: str, found: dict[str, Outcome]) -> list[str]:
    key = f"fx_onnx {way}"
    bad = ((case, each) for case, each in found.items() if each.kinds.get(key) in (REFUSED, WRONG))
    return [f"- {name}, {way}, {case}: {each.kinds[key]}: `{each.texts[key][:200]}`" for case, each in bad]


def main() -> int:
    """Prints a line for each case that is not right, and the counts, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True, help="stores each outcome; skips cases that it has")
    parser.add_argument("--paritybench", type=Path, metavar="CHECKOUT", help="a checkout with its git directory")
    parser.add_argument("--commit", default="", help="the commit of a checkout without a git directory")
    parser.add_argument("--lists", nargs="+", default=["paritybench", "torchvision", "timm", "transformers"])
    parser.add_argument("--every", type=int, default=1, help="only each Nth case of a list")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no case after this time")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds for each case")
    options = parser.parse_args()
    logging.getLogger("torch").setLevel(logging.CRITICAL)  # torch prints the whole graph of a failed capture
    lists: dict[str, Callable[[], Iterator[Case]]] = {
        "paritybench": lambda: paritybench(options.paritybench),
        "torchvision": of_torchvision,
        "timm": of_timm,
        "transformers": of_transformers,
    }
    fx_onnx.export(torch.nn.Identity().eval(), torch.ones(1), verbose=False)  # imported once, before the forks
    results, end = Results(options.results), time.monotonic() + options.seconds
    sample = [case for name in options.lists for case in [*lists[name]()][:: options.every]]
    for case in sample:
        if (case.list, case.name) not in results.known and time.monotonic() < end:
            try:
                found = isolated(partial(outcome, case), options.limit)
            except Failed as error:
                found = Outcome(eager=str(error))
            results.add(case, found)
            bad = {key: text for key, text in found.texts.items() if found.kinds[key] in (REFUSED, WRONG)}
            for key, text in bad.items():
                print(f"{case.name}: {key}: {found.kinds[key]}: {text[:300]}", flush=True)
    commit = options.commit
    if options.paritybench and (options.paritybench / ".git").exists():
        commit = subprocess.check_output(["git", "-C", options.paritybench, "rev-parse", "HEAD"], text=True).strip()
    PAGE.write_text(page(results.known, commit), encoding="utf-8")
    return int(any(kind == WRONG for each in results.known.values() for kind in each.kinds.values()))


if __name__ == "__main__":
    sys.exit(main())
