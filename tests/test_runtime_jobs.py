"""A job of benchmarks/runtimes.py, prepared on one machine, runs on another and leaves its outcome for the table."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from benchmarks.runtime_jobs import Job, Outcome, kept_at, main

MODEL = """<ir_version: 9, opset_import: ["": 18]> graph (float[n] x, bool up) => (float[n] y) {
    a = Neg(x)
    y = If (up) <
        then_branch = twice () => (float[n] b) { b = Add(a, a) },
        else_branch = same () => (float[n] c) { c = Abs(a) }
    >
}"""
NODES = {"CPUExecutionProvider": {"Neg": 1, "If": 1, "Add": 1, "Abs": 1}}


def outcomes(folder: Path, monkeypatch: pytest.MonkeyPatch, *jobs: Job) -> list[Outcome]:
    (folder / "jobs.json").write_text(json.dumps([asdict(job) for job in jobs]))
    monkeypatch.setattr("sys.argv", ["runtime_jobs", str(folder / "jobs.json"), "--processes", "2"])
    main()
    kept = [kept_at(folder, job.runtime, job.model, job.exporter) for job in jobs]
    return [Outcome(**json.loads(file.read_text())) for file in kept]


def job(folder: Path, runtime: str, model: str, wanted: list[float]) -> Job:
    """Returns the job of one run, whose result is -4, -2."""
    onnx.save(onnx.parser.parse_model(MODEL), folder / "model.onnx")
    for name, array in {"x": np.float32([2, 1]), "up": np.array(True), model: np.float32(wanted)}.items():
        np.save(folder / f"{name}.npy", array)
    inputs = [{"x": "x.npy", "up": "up.npy"}]
    worker = "python_runtimes.py"
    return Job(runtime, worker, "fx_onnx", model, "model.onnx", 1e-3, 60, inputs, [[f"{model}.npy"]], ["y"])


def test_the_outcomes_tell_results_and_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [job(tmp_path, "onnxruntime", "one", [-4, -2]), job(tmp_path, "onnxruntime", "two", [-4, -2.1])]
    right, wrong = outcomes(tmp_path, monkeypatch, *jobs)
    assert right == Outcome("fx_onnx", "one", exported=True, loads=True, right=True, nodes=NODES)
    assert (wrong.loads, wrong.right, wrong.why) == (True, False, "run 0, output 0: differs by 2.5e-02")


@pytest.mark.skipif("CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="it has the provider")
def test_a_runtime_without_a_gpu_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = outcomes(tmp_path, monkeypatch, job(tmp_path, "onnxruntime-cuda", "one", [-4, -2]))
    assert (found.loads, found.nodes) == (False, {})
    assert found.why == "RuntimeError: ONNX Runtime has no CUDAExecutionProvider here, only CPUExecutionProvider"
