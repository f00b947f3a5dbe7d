"""The record of a target."""

import pytest

import fx_onnx
from fx_onnx.targets.known_targets import find_target
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
