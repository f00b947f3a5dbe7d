"""The record of a target."""

import pytest

from fx_onnx.targets.target import Lack, Target


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


def test_a_target_reads_its_table() -> None:
    assert Target("x", "any").kernels is None
    table = Target("x", "any", table="openvino").kernels
    assert table is not None
    assert table.runtime == "OpenVINO"
