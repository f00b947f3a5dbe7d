"""Compares the CPU time of new processes: a first export of a Linear with fx_onnx, and with torch.export alone.

    python -m benchmarks.cold_process [--pairs 5]

The processes run in turns. They read compiled bytecode, as those of an installed package do: it is written to a
directory of this run, by a pair that does not count.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile

_MODULE = "torch.nn.Linear(3, 3), (torch.ones(2, 3),)"
PROGRAMS = {
    "fx_onnx": f"import torch, fx_onnx; fx_onnx.export({_MODULE})",
    "torch.export": f"import torch; torch.export.export({_MODULE})",
}


def seconds(program: str, bytecode: str) -> float:
    """Returns the user and system time of a process that runs a program."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program], check=True, env={**environment, "PYTHONPYCACHEPREFIX": bytecode})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Prints the median of each program and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as bytecode:
        rounds = [[seconds(program, bytecode) for program in PROGRAMS.values()] for _ in range(pairs + 1)][1:]
    medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
    print(*(f"{name} {median:.2f} s" for name, median in zip(PROGRAMS, medians, strict=True)), sep=", ", end=": ")
    print(f"{medians[0] / medians[1]:.2f}")


if __name__ == "__main__":
    main()
