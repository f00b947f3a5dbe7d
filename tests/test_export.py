"""Tests of export() as users call it: files, reports, verification, names and invalid arguments."""

import io
from pathlib import Path

import onnx
import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx import ArgumentError, CaptureError, CheckerError, UnsupportedOperatorError, VerificationError
from tests.compare import assert_close

X = torch.randn(3, 4)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor, bias: Tensor | None = None, *, scale: float = 2.0) -> dict[str, Tensor | int | None]:
        self.calls.add_(1)
        y = self.linear(x) * scale
        return {"y": y if bias is None else y + bias, "nothing": None, "rows": x.shape[0]}


class Unsupported(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.hash_tensor(x) + x


def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def test_a_path(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    fx_onnx.export(net(), (X,), path)
    onnx.checker.check_model(str(path), full_check=True)
    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"], "a single file by default"


def test_a_binary_file() -> None:
    file = io.BytesIO()
    fx_onnx.export(net(), (X,), file)
    onnx.checker.check_model(onnx.load_from_string(file.getvalue()))


def test_external_data_and_weights_as_inputs(tmp_path: Path) -> None:
    module = nn.Linear(64, 64).eval()
    path = tmp_path / "net.onnx"
    fx_onnx.export(module, (torch.randn(2, 64),), path, external_data=True, keep_initializers_as_inputs=True)
    assert (tmp_path / "net.onnx.data").stat().st_size >= 64 * 64 * 4
    assert {value.name for value in onnx.load(path).graph.input} == {"input", "weight", "bias"}


def test_without_parameters(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    fx_onnx.export(net(), (X,), path, export_params=False)
    assert not {"linear.weight", "linear.bias"} & {value.name for value in onnx.load(path).graph.initializer}


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((X,), None), (X, None), ((X, {"scale": 2.0}), None), ((), {"x": X}), ((X,), {"bias": torch.ones(2)})],
)
def test_forms_of_arguments(args: object, kwargs: dict[str, object] | None) -> None:
    program = fx_onnx.export(net(), args, kwargs=kwargs)  # type: ignore[arg-type]
    expected = net()(X, bias=(kwargs or {}).get("bias"))
    assert_close(program(X, **({"bias": kwargs["bias"]} if kwargs and "bias" in kwargs else {}))[0], expected["y"])


def test_call_structured_returns_the_structure_of_the_module() -> None:
    program = fx_onnx.export(net(), (X,), dynamic_shapes={"x": {0: "rows"}})
    result = program.call_structured(torch.randn(5, 4))
    assert list(result) == ["y", "nothing", "rows"]
    assert (result["nothing"], int(result["rows"]), result["y"].shape) == (None, 5, (5, 2))


def test_an_updated_buffer_is_an_output_named_after_it() -> None:
    program = fx_onnx.export(net(), (X,))
    assert [value.name for value in program.model.graph.outputs][-1] == "calls_out"
    assert_close(program(X)[-1], torch.tensor(1.0))
    assert_close(torch.from_numpy(program.model.graph.initializers["calls"].const_value.numpy()), torch.tensor(0.0))


def test_an_exported_program_is_not_captured_again() -> None:
    exported = torch.export.export(net(), (X,))
    before = str(exported)
    program = fx_onnx.export(exported)
    assert program.exported_program is exported
    assert str(exported) == before, "export() must not change the captured program"


def test_a_decomposed_exported_program() -> None:
    exported = torch.export.export(net(), (X,)).run_decompositions()
    program = fx_onnx.export(exported)
    assert [value.name for value in program.model.graph.outputs][-1] == "calls_out"
    assert_close(program(X)[0], net()(X)["y"])


def test_verify_report_profile_and_dump(tmp_path: Path) -> None:
    fx_onnx.export(
        net(), (X,), report=True, verify=True, profile=True, dump_exported_program=True, artifacts_dir=tmp_path / "new"
    )
    kinds = {path.name.rpartition("_")[2]: path for path in (tmp_path / "new").iterdir()}
    assert set(kinds) == {"success.html", "success.md", "profile.txt", "program.pt2"}
    assert "aten.linear.default" in kinds["success.html"].read_text(encoding="utf-8")
    text = kinds["success.md"].read_text(encoding="utf-8")
    for part in ("capture", "aten.linear.default", "aten_linear", "torch", "onnxruntime", "calls_out"):
        assert part in text
    torch.export.load(kinds["program.pt2"])


def test_a_report_of_a_failure(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"hash_tensor.default: 1 call, first at .*test_export.py"):
        fx_onnx.export(Unsupported().eval(), (X,), report=True, artifacts_dir=tmp_path)
    page, path = sorted(tmp_path.iterdir())
    assert (page.suffix, page.stem) == (".html", path.stem)
    assert path.name.endswith("_decompose.md")
    assert "UnsupportedOperatorError" in path.read_text(encoding="utf-8")


def test_verify_raises_if_results_differ(tmp_path: Path) -> None:
    table = {
        torch.ops.aten.linear.default: lambda op, input, weight, bias=None: op.MatMul(
            input, op.transpose(weight, [1, 0])
        )
    }
    with pytest.raises(VerificationError, match="differs from the PyTorch module"):
        fx_onnx.export(net(), (X,), tmp_path / "net.onnx", verify=True, custom_translation_table=table)
    assert not list(tmp_path.iterdir()), "a wrong program is not saved"


def test_verify_raises_if_the_model_is_not_valid(tmp_path: Path) -> None:
    def unknown_operator(op, input, weight, bias=None):  # type: ignore[no-untyped-def]
        return op.emit("NoSuchOperator", input, domain="ai.onnx.ml")

    table = {torch.ops.aten.linear.default: unknown_operator}
    with pytest.raises(CheckerError, match=r"The model is not valid ONNX: .*NoSuchOperator") as caught:
        fx_onnx.export(net(), (X,), tmp_path / "net.onnx", verify=True, custom_translation_table=table)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_without_optimization() -> None:
    plain = fx_onnx.export(nn.Identity().eval(), (X,), optimize=False)
    assert_close(plain(X)[0], X)


def test_verbose_prints_a_line_per_stage(capfd: pytest.CaptureFixture[str]) -> None:
    fx_onnx.export(net(), (X,), verbose=True)
    printed = capfd.readouterr().out
    lines = [line for line in printed.splitlines() if line.startswith("[fx_onnx] ")]
    stages = [line.removeprefix("[fx_onnx] ").partition(":")[0] for line in lines]
    assert stages[0] == "capture"
    assert stages[-1] == "add_doc_strings"
    assert printed.isascii()


def test_the_model_can_ask_whether_it_is_traced() -> None:
    class Asks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + 1 if fx_onnx.is_in_onnx_export() else x

    assert_close(fx_onnx.export(Asks().eval(), (X,))(X)[0], X + 1)
    assert not fx_onnx.is_in_onnx_export()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"f": "/no/such/folder/net.onnx"}, "no such folder"),
        ({"input_names": list("abcde")}, "input_names has 5 names, but the model has 1 input: x, and 3 weights"),
        ({"output_names": ["a", "b", "c", "d"]}, "output_names has 4 names"),
        ({"input_names": ["a"], "output_names": ["a"]}, "must differ"),
        ({"opset_version": 99}, "opset_version must be a number"),
        ({"dynamic_shapes": {"x": {7: "rows"}}}, "7"),
    ],
)
def test_invalid_arguments(options: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message) as caught:
        fx_onnx.export(net(), (X,), **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_an_error_of_the_forward_is_in_the_message() -> None:
    class Wrong(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x @ torch.ones(5, 5)

    with pytest.raises(CaptureError, match=r"must have same reduction dim.*test_export.py:\d+: return x @ torch.ones"):
        fx_onnx.export(Wrong().eval(), (X,))
