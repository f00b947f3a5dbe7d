"""What a report tells about targets."""

import re
from pathlib import Path

import torch

from tests.exporting import exported


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
