"""Counts which networks of the tests reach which opset below the native ones, and prints why the others do not.

    python -m benchmarks.opsets [--families] [--only resnet bert]

Each network is exported once at the first native opset. Each older opset is converted from a copy, checked by the ONNX
checker, loaded into ONNX Runtime, and compared with eager at the exported size and at another one.
"""

import argparse
import logging
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import onnx
import onnx_ir as ir
import torch

import fx_onnx
from fx_onnx import ONNXProgram
from fx_onnx.core.opsets import MINIMUM_NATIVE_OPSET, OLDEST_OPSET
from fx_onnx.passes.legalization.opsets.ladder import convert_opset
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
            with torch.no_grad():
                assert_close(converted(*each.args, **each.kwargs), module(*each.args, **each.kwargs))
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
        kwargs=inputs[0].kwargs,
        dynamic_shapes=shapes,
        opset_version=MINIMUM_NATIVE_OPSET,
        verbose=False,
    )
    for opset in opsets:
        yield opset, check(program, inputs, module, opset)


def main() -> None:
    """Prints a table of the opsets, then the failures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", action="store_true", help="also the model families of transformers")
    parser.add_argument("--only", nargs="*", help="the names of the networks")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    families = [family for family in FAMILIES if not family.blocked] if options.families else []
    cases = [case for case in (*CASES, *families) if not options.only or case.name in options.only]
    counts: dict[int, int] = defaultdict(int)
    for case in cases:
        for opset, failure in reached(case):
            counts[opset] += not failure
            if failure:
                print(f"{case.name}, opset {opset}: {failure}", flush=True)
    print("| opset | networks |\n|---|---|")
    for opset in OPSETS:
        print(f"| {opset} | {counts[opset]} of {len(cases)} |")


if __name__ == "__main__":
    main()
