"""Which families of transformers' models come out right: captured, exported, loaded, equal to eager at two sizes.

    python -m benchmarks.families [--torch] [--limit SECONDS] [name ...]

Each model runs in a process of its own with a time limit. `--torch` prints torch.onnx's column beside. What no exporter
can capture counts as blocked, with the reason that stands in the table.
"""

import argparse
import copy
import logging
import multiprocessing
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import onnxruntime
import torch
import transformers
from torch.utils._pytree import tree_map_only

import fx_onnx
from tests.compare import assert_as_near, assert_close
from tests.models.families import FAMILIES, Family

RIGHT, BLOCKED = "right", "blocked"
_MARKS = {RIGHT: "pass", BLOCKED: BLOCKED}
Export = Callable[..., Any]


def outcome(family: Family, export: Export) -> str:
    """`right`, or the stage that failed and why."""
    module = family.build()
    examples = family.examples(module)
    stage = "captures"
    try:
        shapes = family.dynamic_shapes(examples[0])
        program = export(module, (), kwargs=copy.deepcopy(examples[0]), dynamic_shapes=shapes, verbose=False)
        stage = "loads"
        program.initialize_inference_session(
            lambda model: onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        )
        for inputs in examples:
            stage = "right as exported" if inputs is examples[0] else "right at other sizes"
            call = getattr(program, "call_structured", program)  # torch.onnx's program has no structure
            _assert_right(call(**copy.deepcopy(inputs)), module, inputs)
    except Exception as error:
        if stage == "captures" and not _is_capture(error):
            stage = "exports"
        if stage == "captures" and family.blocked:
            return f"{BLOCKED}: {family.blocked}"
        return f"not {stage}: {type(error).__name__}: {' '.join(str(error).split())}"
    return RIGHT


def _assert_right(got: Any, module: torch.nn.Module, inputs: dict[str, Any]) -> None:
    """Equal to eager; or, where a deep network makes much of round-off, no farther than eager from what float64 says.

    Raises:
        AssertionError: it is neither, or eager itself is wrong by a hundredth, so that nobody can tell.
    """
    with torch.no_grad():
        want = module(**copy.deepcopy(inputs))
        try:
            assert_close(got, want)
        except AssertionError as unequal:
            doubled = tree_map_only(torch.Tensor, lambda x: x.double() if x.is_floating_point() else x, inputs)
            try:
                truth = copy.deepcopy(module).double()(**doubled)
            except Exception:  # no network of another dtype: then eager is all there is
                raise unequal from None
            assert_close(want, tree_map_only(torch.Tensor, lambda x: x.float(), truth), 1e-2)
            assert_as_near(got, want, truth)


def _is_capture(error: Exception) -> bool:
    return isinstance(error, fx_onnx.errors.CaptureError) or type(error).__name__ == "TorchExportError"


def torch_export(module: torch.nn.Module, args: tuple[Any, ...], **options: Any) -> Any:
    """torch.onnx's exporter, with the same options."""
    return torch.onnx.export(module, args, dynamo=True, **options)


def guarded(family: Family, export: Export, limit: float) -> str:
    """The outcome in a process that ends with the time limit."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def work(connection: Connection) -> None:
        warnings.filterwarnings("ignore")
        connection.send(outcome(family, export))

    process = context.Process(target=work, args=(sender,))
    process.start()
    sender.close()
    try:
        return str(receiver.recv()) if receiver.poll(limit) else f"not done in {limit:.0f} s"
    except EOFError:
        process.join()
        return f"crashed with exit code {process.exitcode}"
    finally:
        process.kill()
        process.join()


def main() -> int:
    """Prints a line per model, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--torch", action="store_true", help="torch.onnx beside")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for each model")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    logging.getLogger("torch").setLevel(logging.CRITICAL)  # of a failed capture it prints the whole graph
    exporters: dict[str, Export] = {"fx_onnx": fx_onnx.export}
    if options.torch:
        exporters["torch.onnx"] = torch_export
    counts: dict[str, Counter[str]] = {name: Counter() for name in exporters}
    print(f"{'family':28} {'kind':12}", *(f"{name:12}" for name in exporters), "seconds")
    fx_onnx.export(torch.nn.Identity().eval(), torch.ones(1))  # what every process then has imported
    for family in FAMILIES:
        if options.names and family.name not in options.names:
            continue
        start = time.perf_counter()
        found = {name: guarded(family, export, options.limit) for name, export in exporters.items()}
        passed = [f"{_MARKS.get(text.partition(':')[0], 'FAIL'):12}" for text in found.values()]
        print(f"{family.name:28} {family.kind:12}", *passed, f"{time.perf_counter() - start:6.1f}", flush=True)
        for name, text in found.items():
            counts[name][text.partition(":")[0]] += 1
            if text != RIGHT:
                print(f"    {name}: {text[:400]}", flush=True)
    for name, counter in counts.items():
        print(f"{name}: " + ", ".join(f"{text} {count}" for text, count in counter.most_common()))
    ours = counts["fx_onnx"]
    return 0 if ours.total() == ours[RIGHT] + ours[BLOCKED] else 1


if __name__ == "__main__":
    sys.exit(main())
