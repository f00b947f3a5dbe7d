"""The record of a target."""

import re
from pathlib import Path

import pytest
import torch

import fx_onnx
from fx_onnx.targets.known_targets import find_target
from fx_onnx.targets.target import Lack, Target
from tests.exporting import exported


@pytest.mark.parametrize(
    ("lack", "covered"),
    [
        (Lack("Pad"), True),
        (Lack("Pad", first=19), True),
        (Lack("Pad", first=21), False),
        (Lack("Pad", last=18), False),
        (Lack("Pad", dtype="float64"), False),
        (Lack("Pad", dtype="float"), True),
        (Lack("Resize"), False),
    ],
)
def test_what_a_lack_covers(lack: Lack, covered: bool) -> None:
    assert lack.covers("Pad", 20, "float") == covered


def test_a_wrong_record_is_refused() -> None:
    with pytest.raises(fx_onnx.ArgumentError, match="ONNX has no operator 'Geluu'"):
        Lack("Geluu")
    for lacks in (("Gelu",), Lack("Gelu")):
        with pytest.raises(fx_onnx.ArgumentError, match="lacks must be a tuple of Lack"):
            Target("x", "any", lacks=lacks)  # type: ignore[arg-type]
    with pytest.raises(fx_onnx.ArgumentError, match=r"no target \['openvino'\]"):
        find_target(["openvino"])  # type: ignore[arg-type]


def test_a_target_reads_its_table() -> None:
    assert Target("x", "any").kernels is None
    table = Target("x", "any", table="openvino").kernels
    assert table is not None
    assert table.runtime == "OpenVINO"


def test_the_report_lists_what_the_target_changed(tmp_path: Path) -> None:
    """And the nodes without a kernel, with their lines."""
    x = torch.ones(2, 3, dtype=torch.bfloat16)
    exported(lambda x: x.neg(), x, target="onnxruntime", report=True, artifacts_dir=tmp_path)
    (report,) = tmp_path.glob("*.md")
    text = report.read_text(encoding="utf-8")
    assert re.search(r"\| legalize \| .* \| target onnxruntime: Cast \+2 \|", text)
    assert re.search(r"\| openvino \| 100\.0% \|", text)
    exported(lambda x: (x > 0).nonzero(), torch.ones(2, 3), report=True, artifacts_dir=tmp_path / "other")
    (report,) = (tmp_path / "other").glob("*.md")
    assert re.search(r"\| webgpu \| NonZero \| .*exporting\.py:\d+ \| no kernel", report.read_text(encoding="utf-8"))
