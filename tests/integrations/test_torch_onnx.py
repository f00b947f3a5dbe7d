"""Programs that call torch.onnx export through fx_onnx, however they hold its functions."""

from __future__ import annotations

import inspect
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.onnx.utils
from torch import nn
from torch.onnx import export as imported_before

import fx_onnx
from fx_onnx.messages import errors

X = torch.randn(2, 3)


def _linear() -> nn.Module:
    return nn.Linear(3, 4).eval()


def _holds(function: Any = torch.onnx.export) -> Any:
    return function


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda *given: torch.onnx.export(*given), id="attribute"),
        pytest.param(imported_before, id="imported before"),
        pytest.param(partial(imported_before, opset_version=18), id="partial"),
        pytest.param(_holds(), id="default of a parameter"),
        pytest.param(lambda *given: torch.onnx.utils.export(*given), id="utils"),
        pytest.param(lambda *given: torch.onnx.export(*given, dynamo=False), id="the older exporter"),
    ],
)
@pytest.mark.filterwarnings("error::fx_onnx.OnnxExporterWarning")
def test_every_holder_of_export_calls_fx_onnx(call: Any, tmp_path: Path) -> None:
    with fx_onnx.replacing_torch_onnx() as calls:
        program = call(_linear(), (X,), tmp_path / "model.onnx")
    assert isinstance(program, fx_onnx.ONNXProgram)
    assert sum(calls.values()) == 1
    assert (tmp_path / "model.onnx").stat().st_size > 0


def test_torch_onnx_is_restored_also_after_an_error_and_in_nested_contexts() -> None:
    owners = (torch.onnx, torch.onnx.errors, torch.onnx.utils)
    names = [dict(vars(owner)) for owner in owners]
    code, attributes = torch.onnx.export.__code__, dict(vars(torch.onnx.export))
    with pytest.raises(ZeroDivisionError), fx_onnx.replacing_torch_onnx(), fx_onnx.replacing_torch_onnx():
        assert torch.onnx.export.__code__ is not code
        raise ZeroDivisionError
    assert [dict(vars(owner)) for owner in owners] == names
    assert (torch.onnx.export.__code__, vars(torch.onnx.export)) == (code, attributes)
    assert torch.onnx.export.__defaults__ == ((), None)


def test_contexts_may_end_in_any_order() -> None:
    code, first, second = torch.onnx.export.__code__, fx_onnx.replacing_torch_onnx(), fx_onnx.replacing_torch_onnx()
    first.__enter__()
    calls = second.__enter__()
    first.__exit__(None, None, None)
    torch.onnx.export(_linear(), (X,))
    second.__exit__(None, None, None)
    assert calls == {"torch.onnx.export": 1}
    assert torch.onnx.export.__code__ is code
    assert not hasattr(torch.onnx, "dynamo_export")


def test_each_context_counts_the_calls() -> None:
    with fx_onnx.replacing_torch_onnx() as outer, fx_onnx.replacing_torch_onnx() as inner, ThreadPoolExecutor() as pool:
        assert isinstance(pool.submit(torch.onnx.export, _linear(), (X,)).result(), torch.onnx.ONNXProgram)
    assert outer == inner == {"torch.onnx.export": 1}


def test_programs_find_the_parameters_that_torch_has() -> None:
    before = inspect.signature(torch.onnx.export)
    with fx_onnx.replacing_torch_onnx():
        assert inspect.signature(torch.onnx.export) == before


def test_old_and_new_keywords_keep_their_meaning(tmp_path: Path) -> None:
    with fx_onnx.replacing_torch_onnx(), pytest.warns(FutureWarning, match="enable_onnx_checker"):
        program = torch.onnx.export(
            _linear(), X, tmp_path / "model.onnx", input_names=["a"], dynamic_axes={"a": {0: "batch"}},
            opset_version=12, enable_onnx_checker=True,
        )  # fmt: skip
    assert program.model.opset_imports[""] == 12
    assert str(program.model.graph.inputs[0].shape) == "[batch,3]"


@pytest.mark.parametrize(("options", "shape"), [({}, "[2,3]"), ({"dynamic_shapes": True}, "[s")])
def test_dynamo_export(options: dict[str, bool], shape: str, tmp_path: Path) -> None:
    with fx_onnx.replacing_torch_onnx():
        chosen = torch.onnx.ExportOptions(**options)
        program = torch.onnx.dynamo_export(nn.Sigmoid().eval(), X, export_options=chosen)
        program.save(str(tmp_path / "model.onnx"))
    assert str(program.model.graph.inputs[0].shape).startswith(shape)
    torch.testing.assert_close(program(X)[0], X.sigmoid())


def test_the_registry_of_dynamo_export() -> None:
    with fx_onnx.replacing_torch_onnx():
        registry = torch.onnx.OnnxRegistry()
        registry.register_op(lambda op, x: op.Abs(x), "aten", "relu", overload="default")
        options = torch.onnx.ExportOptions(onnx_registry=registry, op_level_debug=False)
        program = torch.onnx.dynamo_export(nn.ReLU(), X, export_options=options)
        with pytest.raises(fx_onnx.ArgumentError, match=r"There is no operator aten::relu\.x; import"):
            registry.register_op(print, "aten", "relu", "x")
    assert [node.op_type for node in program.model.graph] == ["Abs"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: torch.onnx.ExportOptions(fake_context=object()), "no export option fake_context"),
        (lambda: torch.onnx.dynamo_export(_linear(), X, export_options=3), "must be torch.onnx.ExportOptions, not 3"),
        (lambda: _all_dynamic(nn.ReLU()), "do not fit forward"),
        (lambda: _all_dynamic(torch.relu, X), "is a plain callable"),
    ],
)
def test_wrong_calls_of_dynamo_export(call: Any, message: str) -> None:
    with pytest.raises(fx_onnx.ArgumentError, match=message), fx_onnx.replacing_torch_onnx():
        call()


def _all_dynamic(model: Any, *args: torch.Tensor) -> Any:
    return torch.onnx.dynamo_export(model, *args, export_options=torch.onnx.ExportOptions(dynamic_shapes=True))


def test_programs_catch_the_errors() -> None:
    caught = []
    with fx_onnx.replacing_torch_onnx():
        for errors in (torch.onnx, torch.onnx.errors):
            try:
                torch.onnx.export(_linear(), (X,), opset_version=99)
            except errors.OnnxExporterError as error:
                caught.append(type(error))
    assert caught == [fx_onnx.ArgumentError] * 2


def test_the_first_error_of_a_process_may_be_made_there() -> None:
    fx_onnx.OnnxExporterError.__bases__ = (errors._OnnxError,)  # as before the first error
    with fx_onnx.replacing_torch_onnx(), pytest.raises(torch.onnx.OnnxExporterError, match="no dtype"):
        raise fx_onnx.CaptureError("no dtype")
    with pytest.raises(torch.onnx.OnnxExporterError):
        raise fx_onnx.CaptureError("the base is torch's class again")
    assert fx_onnx.OnnxExporterError.__bases__ == (torch.onnx.OnnxExporterError,)


def test_export_to_pretty_string() -> None:
    with fx_onnx.replacing_torch_onnx() as calls:
        assert "Sigmoid" in torch.onnx.export_to_pretty_string(nn.Sigmoid().eval(), X)
    assert calls == {"torch.onnx.export_to_pretty_string": 1}


def test_symbolic_functions_are_registered_with_fx_onnx() -> None:
    with fx_onnx.replacing_torch_onnx():
        torch.onnx.register_custom_op_symbolic("aten::selu", lambda g, x: g.op("Selu", x), 9)
        try:
            program = torch.onnx.export(nn.SELU().eval(), (X,))
        finally:
            torch.onnx.unregister_custom_op_symbolic("aten::selu", 9)
    assert [node.op_type for node in program.model.graph] == ["Selu"]


def test_a_warning_is_shown_at_the_line_of_the_program() -> None:
    with fx_onnx.replacing_torch_onnx(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.onnx.export(nn.Dropout().train(), (X,))
    assert [each.filename for each in caught] == [__file__]


class Broadcast(nn.Module):
    """Adds one row to each row, in an order in which a buffer of the row would be reused for the sum."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return ((y * 2).exp() + x).sin()


class Columns(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x[:, None] * y[None]).sum(2) + y


@pytest.mark.parametrize(
    ("model", "shape", "others"),
    [(Broadcast(), (1, 6), (1, 4)), (Columns(), (1, 6), (1, 4)), (Broadcast(), (5, 1), (3, 1))],
)
def test_an_axis_of_size_1_that_broadcasts_stays_1(model: nn.Module, shape: Any, others: Any) -> None:
    hints = dict.fromkeys(range(2), torch.export.Dim.DYNAMIC)
    given, shapes = (torch.randn(5, 6), torch.randn(shape)), (hints, hints)
    with pytest.raises(fx_onnx.OnnxExporterError, match="is 1 in the example"):
        fx_onnx.export(model, given, dynamic_shapes=shapes)
    with fx_onnx.replacing_torch_onnx(), pytest.warns(fx_onnx.OnnxExporterWarning, match="static with size 1"):
        program = torch.onnx.export(model, given, dynamic_shapes=shapes, dynamo=True)
    for x, y in (given, (torch.randn(3, 4), torch.randn(others))):
        torch.testing.assert_close(program(x, y)[0], model(x, y), atol=1e-4, rtol=1e-4)


def test_another_dim_that_the_model_fixes_is_an_error_there() -> None:
    hints = ({0: torch.export.Dim.DYNAMIC},)
    with fx_onnx.replacing_torch_onnx(), pytest.raises(fx_onnx.OnnxExporterError, match="FX1107"):
        torch.onnx.export(_Fixed(), (torch.randn(4, 6),), dynamic_shapes=hints)


class _Fixed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones(4, 6)
