"""Calls that stay calls of torch's operators: the modes of operator_export_type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx import ArgumentError, UnsupportedOperatorError
from fx_onnx.requests.export_modes import OperatorExportTypes as Types
from tests.compare import assert_close

X = torch.randn(3, 4)


class Calls(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def export(function: Callable[..., Any], mode: Any, *args: Any, **options: Any) -> fx_onnx.ONNXProgram:
    model = Calls(function).eval()
    program = fx_onnx.export(model, args or (X,), operator_export_type=mode, **options)
    onnx.checker.check_model(program.model_proto)
    return program


def nodes(program: fx_onnx.ONNXProgram) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (node.domain, node.op_type, {key: attribute.value for key, attribute in node.attributes.items()})
        for node in program.model.graph
    ]


def hashed(x: Tensor) -> Tensor:
    return torch.hash_tensor(torch.relu(x)) + torch.lerp(x, x, 0.5).sum()


def test_without_a_fallback_the_operator_is_an_error() -> None:
    with pytest.raises(UnsupportedOperatorError, match="hash_tensor"):
        export(hashed, Types.ONNX)


def test_aten_fallback_keeps_only_what_has_no_other_form() -> None:
    found = nodes(export(hashed, torch.onnx.OperatorExportTypes.ONNX_ATEN_FALLBACK))
    (own,) = [node for node in found if node[0]]
    assert own == (
        "org.pytorch.aten",
        "ATen",
        {"operator": "hash_tensor", "overload_name": "", "dim": (), "keepdim": 0, "mode": 0},
    )
    assert {"Relu", "Mul"} <= {op_type for _, op_type, _ in found}, "lerp is decomposed"


def test_fallthrough_keeps_the_domain_of_the_operator() -> None:
    (own,) = [node for node in nodes(export(hashed, Types.ONNX_FALLTHROUGH)) if node[0]]
    assert own == ("aten", "hash_tensor", {"dim": (), "keepdim": 0, "mode": 0})


def test_aten_makes_every_call_one_node() -> None:
    program = export(hashed, Types.ONNX_ATEN)
    found = nodes(program)
    assert {(domain, op_type) for domain, op_type, _ in found} == {("org.pytorch.aten", "ATen")}
    names = [(each["operator"], each["overload_name"]) for _, _, each in found]
    assert names == [("relu", ""), ("hash_tensor", ""), ("lerp", "Scalar"), ("sum", ""), ("add", "Tensor")]
    assert found[2][2]["weight"] == 0.5
    assert program.model.graph.opset_imports["org.pytorch.aten"] == 1


def test_lists_of_tensors_none_dtypes_and_strings() -> None:
    def function(x: Tensor, y: Tensor) -> Any:
        index = torch.ops.aten.index.Tensor(x, [None, torch.tensor([0, 1])])
        return torch.cat([x, y], 1), index, x.sum(0, dtype=torch.float64), torch.div(x, y, rounding_mode="floor")

    program = export(function, Types.ONNX_ATEN, X, X)
    by_name = {node.attributes["operator"].value: node for node in program.model.graph}
    cat, index = by_name["cat"], by_name["index"]
    assert ([value.name for value in cat.inputs], cat.attributes["tensors"].value) == (["args_0", "args_1"], 2)
    assert [value is None for value in index.inputs] == [False, True, False]
    assert index.attributes["indices"].value == 2
    assert by_name["sum"].attributes["dtype"].value == 7, "float64 in c10's numbers"
    assert by_name["div"].attributes["rounding_mode"].value == "floor"


def test_several_results_and_sizes_that_only_the_run_knows() -> None:
    def function(x: Tensor) -> Any:
        values, indices = torch.sort(x)
        return values, indices, x.reshape(x.shape[0] * 2, 2), torch.split(x, 2, 1)

    program = export(function, Types.ONNX_ATEN, dynamic_shapes={"args": ({0: "rows"},)})
    by_name = {node.attributes["operator"].value: node for node in program.model.graph if node.domain}
    assert len(by_name["sort"].outputs) == 2
    assert len(by_name["split"].outputs) == 2
    reshape = by_name["reshape"]
    assert len(reshape.inputs) == 2
    assert "shape" not in reshape.attributes


def test_a_users_translation_has_precedence() -> None:
    table = {torch.ops.aten.relu.default: lambda op, self: op.Relu(self)}
    program = export(torch.relu, Types.ONNX_ATEN, custom_translation_table=table)
    assert [op_type for _, op_type, _ in nodes(program)] == ["Relu"]
    assert_close(program(X)[0], torch.relu(X))


@torch.library.custom_op("fallback_nodes::scaled", mutates_args=())
def scaled(x: Tensor, factor: float, names: str | None = None) -> Tensor:
    return x * factor


@scaled.register_fake
def _(x: Tensor, factor: float, names: str | None = None) -> Tensor:
    return torch.empty_like(x)


def test_a_custom_operator() -> None:
    def function(x: Tensor) -> Tensor:
        result: Tensor = scaled(x, 2.0) + 1
        return result

    program = export(function, Types.ONNX_FALLTHROUGH, opset_version=17, custom_opsets={"fallback_nodes": 4})
    assert nodes(program)[0] == ("fallback_nodes", "scaled", {"factor": 2.0})
    assert dict(program.model.graph.opset_imports) == {"": 17, "fallback_nodes": 4}
    with pytest.raises(UnsupportedOperatorError, match=r"fallback_nodes\.scaled"):
        export(function, Types.ONNX_ATEN_FALLBACK)  # it is for operators of ATen only


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float, label: str) -> Tensor:
        return x * 2 * factor

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 2, None, None


def doubled(x: Tensor) -> Tensor:
    result: Tensor = Doubled.apply(x, 1.5, "a")
    return torch.relu(result)


@pytest.mark.parametrize("mode", [Types.ONNX_FALLTHROUGH, Types.ONNX_ATEN_FALLBACK])
def test_autograd_functions_stay_whole(mode: Types) -> None:
    found = nodes(export(doubled, mode))
    assert found == [(__name__, "Doubled", {"factor": 1.5, "label": "a"}), ("", "Relu", {})]


def test_autograd_inlining() -> None:
    assert_close(export(doubled, Types.ONNX)(X)[0], torch.relu(X * 3))
    with pytest.raises(UnsupportedOperatorError, match=r"autograd_function.Doubled.*: 1 call"):
        export(doubled, Types.ONNX, autograd_inlining=False)
    table = {Doubled: lambda op, x, factor, label: op.Mul(x, 2 * factor)}
    program = export(doubled, Types.ONNX, autograd_inlining=False, custom_translation_table=table)
    assert [op_type for _, op_type, _ in nodes(program)] == ["Mul", "Relu"]
    assert_close(program(X)[0], torch.relu(X * 3))


def test_activation_checkpointing_is_traced_all_the_same() -> None:
    def function(x: Tensor) -> Tensor:
        result: Tensor = torch.utils.checkpoint.checkpoint(torch.relu, x, use_reentrant=True)
        return result

    program = export(function, Types.ONNX, autograd_inlining=False)
    assert_close(program(X)[0], torch.relu(X))


def test_a_program_that_cannot_run_says_so(tmp_path: Any) -> None:
    program = export(hashed, Types.ONNX_FALLTHROUGH)
    for call in (program, program.call_reference):
        with pytest.raises(ArgumentError, match=r"cannot run, .* operator_export_type kept: aten::hash_tensor\."):
            call(X)
    with pytest.raises(ArgumentError, match="cannot run"):
        export(hashed, Types.ONNX_FALLTHROUGH, f=tmp_path / "m.onnx", verify=True)
    assert not list(tmp_path.iterdir())
