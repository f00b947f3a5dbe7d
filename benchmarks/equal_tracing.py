"""Captures and exports models with and without the faster tracing, and tells what differs: nothing may.

    python -m benchmarks.equal_tracing [--models llama mamba ...] [--all] [--results FILE]

A model is one of benchmarks/captures.py, by default those whose times it measures, with static and with dynamic sizes.
It compares two programs of torch.export.export, with all their metadata, and the bytes of two files of fx_onnx.export.
With a file of results, it goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

import fx_onnx
from benchmarks.captures import JOBS, SAMPLE, Job, whole
from benchmarks.isolated import Failed, isolated
from fx_onnx.faster_tracing.exact_replacements import faster_tracing
from fx_onnx.faster_tracing.replacement import OFF
from tests.faster_tracing.program_differences import differences


def captured(job: Job) -> ExportedProgram | str:
    """Returns the program of torch.export, or its error."""
    shapes = pytree.tree_map_only(str, lambda _: Dim.AUTO, job.dynamic_shapes)
    try:
        kwargs = copy.deepcopy(job.kwargs)
        return torch.export.export(job.module, job.args, kwargs, dynamic_shapes=shapes, strict=False)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def exported(job: Job, variable: str) -> str:
    """Returns the hash of the file of fx_onnx, or the error."""
    os.environ[OFF] = variable
    try:
        return hashlib.sha256(whole(job).model_proto.SerializeToString(deterministic=True)).hexdigest()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def program_differences(plain: ExportedProgram | str, faster: ExportedProgram | str) -> list[str]:
    """Returns the differences of two programs, or of their errors."""
    if isinstance(plain, str) or isinstance(faster, str):
        return [] if plain == faster else [f"{plain} and {faster}"]
    return differences(plain, faster)


def compared(name: str, static: bool) -> list[str]:
    """Returns the differences of one model."""
    torch.manual_seed(0)
    job = JOBS[name]()
    if static:
        job = job._replace(dynamic_shapes=None)
    plain = captured(job)
    with faster_tracing():
        faster = captured(job)
    if found := program_differences(plain, faster):  # a first capture does more, of a cond for example
        found = program_differences(captured(job), faster)
    one, other = exported(job, "0"), exported(job, "1")
    return found[:5] + ([] if one == other else [f"files: {one} and {other}"])


def main() -> int:
    """Prints a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=JOBS, metavar="MODEL", default=SAMPLE)
    parser.add_argument("--all", action="store_true", help="all models")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for each model")
    parser.add_argument("--results", type=Path, help="stores each row; skips models that it has")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    path: Path | None = options.results
    known: dict[str, Any] = dict(map(json.loads, path.read_text().splitlines())) if path and path.exists() else {}
    fx_onnx.export(torch.nn.Identity().eval(), torch.ones(1), verbose=False)  # imported once, before the forks
    for name in JOBS if options.all else options.models:
        for static in (True, False):
            key = f"{name} {'static' if static else 'dynamic'}"
            if key not in known:
                try:
                    known[key] = isolated(lambda name=name, static=static: compared(name, static), options.limit)
                except Failed as error:
                    known[key] = [str(error)]
                if path is not None:
                    with path.open("a") as file:
                        print(json.dumps([key, known[key]]), file=file)
            print(key, "equal" if not known[key] else "; ".join(known[key]), flush=True)
    different = sum(bool(each) for each in known.values())
    print(f"{len(known) - different} of {len(known)} are equal")
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
