"""Runs the fuzzer: ``python -m tests.fuzz --count 1000 [--file build/fuzz.jsonl]``.

The results are appended to the file, one line for each program and opset. A run continues after the last seed in the
file. Each mistake is printed as the shortest module that still shows it.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections import Counter
from pathlib import Path

import torch

from tests.fuzz.generator import Program, generate
from tests.fuzz.verdicts import MISTAKES, Outcome, Verdict, judge, minimized, opsets


def main() -> None:
    """Judges the next programs, and prints a table of all outcomes in the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="the number of programs to judge")
    parser.add_argument("--file", type=Path, default=Path("build/fuzz.jsonl"))
    parser.add_argument("--seed", type=int, help="judge this seed only, and print it")
    parser.add_argument("--part", default="0/1", help="i/n: every n-th seed from the i-th on, for several processes")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    if options.seed is not None:
        program = generate(options.seed)
        print(program.source())
        for opset in opsets(options.seed):
            _report(program, judge(program, opset))
        return
    part, parts = map(int, options.part.split("/"))
    options.file.parent.mkdir(parents=True, exist_ok=True)
    known = [json.loads(line) for line in options.file.read_text().splitlines()] if options.file.exists() else []
    begin = max((entry["seed"] + 1 for entry in known if entry["seed"] % parts == part), default=part)
    with options.file.open("a") as file:
        for seed in range(begin + (part - begin) % parts, begin + options.count * parts, parts):
            program = generate(seed)
            for opset in opsets(seed):
                verdict = judge(program, opset)
                known.append(
                    {"seed": seed, "opset": opset, "outcome": verdict.outcome.value, "detail": verdict.detail[:500]}
                )
                file.write(json.dumps(known[-1]) + "\n")
                file.flush()
                if verdict.outcome in MISTAKES:
                    _report(program, verdict)
    for outcome, count in Counter(entry["outcome"] for entry in known).most_common():
        print(f"| {outcome} | {count} |")


def _report(program: Program, verdict: Verdict) -> None:
    print(
        f"seed {program.seed}, opset {verdict.opset}, {'dynamic' if program.dynamic else 'static'}: {verdict}",
        flush=True,
    )
    if verdict.outcome is Outcome.RIGHT:
        return

    def still_fails(shorter: Program) -> bool:
        try:
            shorter.eager(0)
        except Exception:
            return False
        return judge(shorter, verdict.opset).outcome is verdict.outcome

    print(minimized(program, still_fails).source(), flush=True)


if __name__ == "__main__":
    main()
