"""What the command finds in ONNX files."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch

import fx_onnx
from fx_onnx.cli import onnx_files


class Net(torch.nn.Module):
    def __init__(self, bias: float = 0.0) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        with torch.no_grad():
            self.linear.weight.copy_(torch.arange(12).view(3, 4) / 12)
            self.linear.bias.fill_(bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()


def saved(path: Path, bias: float = 0.0, **options: object) -> Path:
    x, batch = torch.ones(2, 4), {"x": {0: "batch"}}
    fx_onnx.export(Net(bias).eval(), (x,), path, dynamic_shapes=batch, **options)  # type: ignore[arg-type]
    return path


def test_a_valid_model_has_no_problems(tmp_path: Path) -> None:
    assert onnx_files.check(saved(tmp_path / "m.onnx")) == []


def test_a_broken_model_has_problems(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx")
    model = onnx.load(path)
    model.graph.node[0].op_type = "NoSuchOperator"
    path.write_bytes(model.SerializeToString())
    problems = onnx_files.check(path)
    assert [problem.partition(":")[0] for problem in problems] == ["ONNX's checker", "ONNX Runtime"]


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_text("text")
    with pytest.raises(fx_onnx.ArgumentError, match=r"m\.onnx is not an ONNX model.*\[fx-onnx explain FX1510\]"):
        onnx_files.read(tmp_path / "m.onnx")
    (tmp_path / "x.onnx").write_bytes(b"x" * 50)  # a protobuf message with unknown fields
    with pytest.raises(fx_onnx.ArgumentError, match="it imports no opset"):
        onnx_files.read(tmp_path / "x.onnx")


@pytest.mark.parametrize("damage", ["text", "dtype", "version", "texts elsewhere", "null"])
def test_a_part_that_only_protobuf_accepts_is_refused(tmp_path: Path, damage: str) -> None:
    path = saved(tmp_path / "m.onnx")
    model = onnx.load(path)
    if damage == "dtype":
        model.graph.initializer[0].data_type = 0
    elif damage == "version":
        model.opset_import[0].version = 2**40
    elif damage in ("texts elsewhere", "null"):
        onnx.external_data_helper.set_external_data(model.graph.initializer[0], "a\0b" if damage == "null" else "a")
        model.graph.initializer[0].data_type = onnx.TensorProto.FLOAT if damage == "null" else onnx.TensorProto.STRING
    model.producer_name = "abcdefgh"
    content = model.SerializeToString()
    path.write_bytes(content.replace(b"abcdefgh", b"\xff" * 8) if damage == "text" else content)
    with pytest.raises(fx_onnx.ArgumentError, match=r"not an ONNX model: .*(UTF-8|no dtype|no version|texts|null)"):
        onnx_files.read(path)


def test_equal_models(tmp_path: Path) -> None:
    found = onnx_files.compare_files(saved(tmp_path / "a.onnx"), saved(tmp_path / "b.onnx"))
    assert found.same_numbers
    assert not (found.operators or found.interface or found.weights)
    assert [number.max_abs for number in found.numbers] == [0]
    assert not found.skipped
    assert onnx_files.as_json(found)["numbers_compared"]


def test_other_weights(tmp_path: Path) -> None:
    found = onnx_files.compare_files(saved(tmp_path / "a.onnx"), saved(tmp_path / "b.onnx", bias=1.0))
    assert not found.same_numbers
    assert found.weights == ["linear.bias: other values"]


def test_another_opset_has_other_operators_and_equal_numbers(tmp_path: Path) -> None:
    module, x = torch.nn.GELU().eval(), (torch.ones(3),)
    for opset in (18, 20):
        fx_onnx.export(module, x, tmp_path / f"{opset}.onnx", opset_version=opset)
    found = onnx_files.compare_files(tmp_path / "18.onnx", tmp_path / "20.onnx")
    assert found.same_numbers
    assert found.operators["Gelu"] == (0, 1)


def test_other_inputs(tmp_path: Path) -> None:
    fx_onnx.export(torch.nn.ReLU().eval(), (torch.ones(2, 4),), tmp_path / "b.onnx")
    found = onnx_files.compare_files(saved(tmp_path / "a.onnx"), tmp_path / "b.onnx")
    assert found.interface == [
        "1: input x: float[batch, 4]",
        "2: input input: float[2, 4]",
        "1: output relu: float[batch, 3]",
        "2: output relu: float[2, 4]",
    ]
    assert not found.same_numbers
    assert found.skipped == "The results are not compared, because the inputs or outputs differ."
    assert not onnx_files.as_json(found)["numbers_compared"]
