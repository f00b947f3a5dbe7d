"""Counts which networks of the tests reach which opset below the native ones, and prints why the others do not.

    python -m benchmarks.opsets [--families] [--only resnet bert] [--results FILE]

With `--results`, a run continues where an earlier one ended. Each network is exported once
at the first native opset. Each older opset is converted from a copy, checked by the ONNX checker, loaded into ONNX
Runtime, and compared with eager at the exported size and at another one: the results, and the new values of weights and
buffers that the forward writes to.
"""

import argparse
import copy
import json
import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import onnx
import onnx_ir as ir
import torch

import fx_onnx
from fx_onnx import ONNXProgram
from fx_onnx.backends.ladder import convert_opset
from fx_onnx.onnx_model.metadata import OUTPUT_TARGET
from fx_onnx.onnx_model.opsets import MINIMUM_NATIVE_OPSET, OLDEST_OPSET
from fx_onnx.program.session import restore_structure
from tests.compare import assert_close
from tests.models.families import FAMILIES, Family
from tests.models.registry import CASES, Inputs, ModelCase

OPSETS = tuple(range(MINIMUM_NATIVE_OPSET - 1, OLDEST_OPSET - 1, -1))


def check(program: ONNXProgram, inputs: Sequence[Inputs], module: torch.nn.Module, opset: int) -> str:
    """Converts a copy of the program to an opset, checks it, and returns what fails; empty if all is right."""
    try:
        converted = ONNXProgram(convert_opset(program.model.clone(), opset), program.exported_program)
        onnx.checker.check_model(ir.serde.serialize_model(converted.model), full_check=True)
        for each in inputs:
            called, args, kwargs = copy.deepcopy((module, each.args, each.kwargs))  # it may write to all of them
            found = converted(*each.args, **each.kwargs)
            with torch.no_grad():
                assert_close(restore_structure(program.exported_program, found), called(*args, **kwargs))
            state = called.state_dict()
            targets = [str(value.metadata_props.get(OUTPUT_TARGET)) for value in converted.model.graph.outputs]
            written = {target: value for target, value in zip(targets, found, strict=True) if target in state}
            assert_close(written, {target: state[target] for target in written})
    except Exception as error:  # any failure is a row of the result
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return ""


def reached(case: ModelCase | Family, opsets: Iterable[int] = OPSETS) -> Iterator[tuple[int, str]]:
    """Yields what fails for one network in each opset."""
    module = case.build()
    if isinstance(case, Family):
        inputs = [Inputs(kwargs=kwargs) for kwargs in case.examples(module)]
        shapes = case.dynamic_shapes(inputs[0].kwargs)
    else:
        inputs, shapes = [case.example(), case.other()], case.dynamic_shapes
    program = fx_onnx.export(
        module,
        inputs[0].args,
        kwargs=copy.deepcopy(inputs[0].kwargs),
        dynamic_shapes=shapes,
        opset_version=MINIMUM_NATIVE_OPSET,
        verbose=False,
    )
    for opset in opsets:
        yield opset, check(program, inputs, module, opset)


def measured(case: ModelCase | Family) -> dict[int, str]:
    """Returns what fails for one network in each opset; a network that cannot be exported at all fails in every one."""
    try:
        return dict(reached(case))
    except Exception as error:
        return dict.fromkeys(OPSETS, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")


def main() -> None:
    """Prints the failures, then a table of the opsets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", action="store_true", help="also the model families of transformers")
    parser.add_argument("--only", nargs="*", help="the names of the networks")
    parser.add_argument("--results", type=Path, help="a file that keeps the results, one line of JSON for each network")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    families = [family for family in FAMILIES if not family.blocked] if options.families else []
    cases = [case for case in (*CASES, *families) if not options.only or case.name in options.only]
    lines = options.results.read_text("utf-8").splitlines() if options.results and options.results.exists() else []
    found: dict[str, dict[int, str]] = {}
    for line in lines:
        row = json.loads(line)
        found[row["name"]] = {int(opset): failure for opset, failure in row["failures"].items()}
    for case in cases:
        name = f"{'families/' if isinstance(case, Family) else ''}{case.name}"
        if name not in found:
            found[name] = measured(case)
            if options.results:
                with options.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"name": name, "failures": found[name]}) + "\n")
        for opset, failure in found[name].items():
            if failure:
                print(f"{name}, opset {opset}: {failure}", flush=True)
    print_table(found)


def print_table(found: Mapping[str, Mapping[int, str]]) -> None:
    """Prints how many networks of the tests, and how many families, are right in each opset."""
    groups = [{n: r for n, r in found.items() if n.startswith("families/") == is_family} for is_family in (False, True)]
    print("| opset | networks | families of transformers |\n|---|---|---|")
    for opset in OPSETS:
        cells = [f"{sum(not failures[opset] for failures in group.values())} of {len(group)}" for group in groups]
        print(f"| {opset} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
