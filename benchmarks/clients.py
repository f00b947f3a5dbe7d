"""Runs the ONNX exports of other projects with fx_onnx, and writes docs/clients.md.

    python -m benchmarks.clients [CLIENT ...] [--base VENV] [--folder build/clients] [--limit SECONDS]

Installs each client and the wheel of this repository in a separate environment. There, torch.onnx goes through
fx_onnx, and nothing else is replaced. benchmarks/client_calls.py has the calls and compares results with
eager. Each outcome is stored when its call ends, so a run continues where an earlier one ended; remove the folder to
start again. `--base` is an environment whose packages are used, if their versions fit, instead of a download.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.client_calls import CALLS
from tools.matrix import ROOT, built_wheel, make_environment

PAGE = ROOT / "docs" / "clients.md"
KEYWORDS = "by keyword"

REQUIREMENTS: Mapping[str, Sequence[str]] = {
    "ultralytics": ["ultralytics"],
    "timm": ["timm"],
    "transformers": ["transformers>=5.20"],
    "optimum-onnx": ["optimum-onnx"],
    "segment-anything": ["segment-anything"],
    "sentence-transformers": ["sentence-transformers[onnx]"],
    "lightning": ["lightning"],
    "skorch": ["skorch"],
    "fastai": ["fastai"],
    "kornia": ["kornia"],
    "rfdetr": ["rfdetr[onnx]"],
    "anomalib": ["anomalib"],
    "segmentation-models-pytorch": ["segmentation-models-pytorch"],
    "monai": ["monai"],
    "diffusers": ["diffusers"],
    "openai-whisper": ["openai-whisper"],
    "silero-vad": ["silero-vad"],
    "stable-baselines3": ["stable-baselines3"],
    KEYWORDS: [],
}
"""What is installed for each client; the first is the client itself."""

RIGHT = "right"

HEAD = """\
# Clients

This page lists calls of other projects that export to ONNX, in
[`fx_onnx.replacing_torch_onnx()`](migrate.md#programs-that-nobody-edits). The code of the client is unchanged. The
weights are random. The file that the client writes runs in ONNX Runtime, and its results are compared with the
module's, for dynamic calls also at another size. The row "by keyword" has keywords that detectron2 and the tools of
ONNX Runtime use.
`python -m benchmarks.clients` installs each client in a separate environment and writes this page.

{right} of {count} calls are right, with torch {torch} and ONNX Runtime {runtime}. The table has the result of each
other one.

| client | version | calls |
|---|---|---|
{rows}

## Their own tests

These tests ran unedited by hand, with torch 2.13.0 and torch.onnx replaced for the session.

| project | tests | result |
|---|---|---|
| d3rlpy 2.8.1 | those of BC, DQN, SAC and TD3 | 46 of 46 |
| PyTorch Geometric 2.9.0 | `test_onnx` and the ONNX test of `test_basic_gnn` | 15 of 15 |
| Hummingbird 0.4.12 | those with `onnx` in their name, in 7 files | 13 of 22; 7 fail in skl2onnx; in 2, an isolation \
forest is refused ([FX1109](troubleshooting.md#fx1109)) |
| docTR 1.1.1a0 | 16 of the 21 exports of `test_models_classification_pt` | 14 of 16; 2 skip themselves, \
as outputs differ by more than 1e-4 |
| Lightning 2.6.2 | `test_onnx` of the models | 8 of 8; 6 skip themselves |
| NNCF 3.2.0 | those that export, in 3 files | 8 of 10; one calls torch.export itself, one needs \
`torch.jit.is_tracing()` |
| Model Compression Toolkit 2.4.0 | those with `onnx` in their name in `exporter_tests` | 3 of 8; 5 count nodes that \
the library writes only where `torch.jit.is_tracing()` is true (torch.onnx of torch 2.13: 0 of 8) |
| rsl_rl 5.4.2 | those with `onnx` in their name in the tests of models | 5 of 5 |
| NVIDIA Model Optimizer 0.40 | those that export on a CPU, in 8 files | 91 of 97, torch.onnx 95; 2 fail for both, \
3 need that an input that the forward does not read is dropped, one needs TorchScript's names of nodes |
"""


def outcome(python: Path, client: str, text: str, limit: float) -> str:
    """Returns "right", or what went wrong with a call."""
    command = [python, "-m", "benchmarks.client_calls", client, text]
    settings = {**os.environ, "PYTHONSAFEPATH": "1"}  # the installed fx_onnx, not the one in the working directory
    try:
        done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return f"not done in {limit:.0f} s"
    lines = done.stdout.splitlines() or [json.dumps(f"exit code {done.returncode}: {done.stderr[-300:]}")]
    found: str = json.loads(lines[-1])
    return found


def version(python: Path, requirement: str) -> str:
    """Returns the version of a required package in an environment."""
    name = re.split(r"[^\w-]", requirement)[0]
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    return subprocess.check_output([python, "-c", code], text=True).strip()


def page(
    outcomes: Mapping[tuple[str, str], str], versions: Mapping[str, str], torch: Iterable[str], runtime: Iterable[str]
) -> str:
    """Returns the text of docs/clients.md, with the calls that have run.

    Args:
        outcomes: the outcome of each call that has run.
        versions: the version of each client.
        torch: the versions of torch in the environments.
        runtime: the versions of ONNX Runtime in the environments.
    """
    rows, count = [], 0
    for client in REQUIREMENTS:
        calls = [(text, outcomes[client, text]) for text in CALLS[client] if (client, text) in outcomes]
        cells = [f"`{text}`" if found == RIGHT else f"`{text}`: {found.replace('|', '/')}" for text, found in calls]
        count += len(calls)
        if cells:
            rows.append(f"| {client} | {versions[client]} | {'<br>'.join(cells)} |")
    right = sum(each == RIGHT for each in outcomes.values())
    used = {"torch": " and ".join(sorted(torch)), "runtime": " and ".join(sorted(runtime))}
    return HEAD.format(right=right, count=count, rows="\n".join(rows), **used)


def main() -> int:
    """Prints a line for each call, and writes the page when all are done."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("clients", nargs="*", help=f"only these: {', '.join(REQUIREMENTS)}")
    parser.add_argument("--base", type=Path, help="an environment whose packages are used instead of a download")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "clients")
    parser.add_argument("--limit", type=float, default=600, help="seconds for one call")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    wheel, stored = built_wheel(options.folder), options.folder / "outcomes.jsonl"
    lines = stored.read_text(encoding="utf-8").splitlines() if stored.exists() else []
    outcomes = {(client, text): found for client, text, found in map(json.loads, lines)}
    versions: dict[str, str] = {}
    torch: set[str] = set()
    runtime: set[str] = set()
    for client, requirements in REQUIREMENTS.items():
        if options.clients and client not in options.clients:
            continue
        python = make_environment(options.folder / client.replace(" ", "-"), wheel, requirements, options.base)
        versions[client] = version(python, requirements[0]) if requirements else "-"
        torch.add(version(python, "torch"))
        runtime.add(version(python, "onnxruntime"))
        for text in CALLS[client]:
            if (client, text) not in outcomes:
                outcomes[client, text] = outcome(python, client, text, options.limit)
                with stored.open("a", encoding="utf-8") as file:
                    print(json.dumps([client, text, outcomes[client, text]]), file=file)
            print(f"{client}: {text}: {outcomes[client, text]}", flush=True)
    if not options.clients:
        PAGE.write_text(page(outcomes, versions, torch, runtime), encoding="utf-8")
    return int(any(each != RIGHT for each in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
