"""Symbolic functions as translations: precedence, arguments, calls that they decline, and sizes that stay dynamic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.onnx import symbolic_helper as torch_helper

import fx_onnx
from fx_onnx.translation.symbolic_registry import register, unregister
from tests.compare import assert_close

X = torch.randn(2, 3)
aten = torch.ops.aten


@contextmanager
def _registered(name: str, function: Callable[..., Any], opset: int = 9) -> Iterator[None]:
    register(name, function, opset)
    try:
        yield
    finally:
        unregister(name, opset)


def _module(function: Callable[..., Any]) -> nn.Module:
    class Module(nn.Module):
        def forward(self, *args: Any) -> Any:
            return function(*args)

    return Module().eval()


def _kinds(program: fx_onnx.ONNXProgram) -> list[str]:
    return [node.op_type for node in program.model.graph]


def as_max(g: Any, self: Any) -> Any:
    return g.op("Max", self, torch.tensor(0.0)).setType(self.type())


def as_relu(g: Any, self: Any) -> Any:
    return g.op("Relu", self)


def declining(g: Any, *args: Any) -> None:
    g.op("com.example::Never", args[0])


# ---------------------------------------------------------------- precedence


def test_a_registration_has_precedence_over_the_package_and_a_table_over_both() -> None:
    module = _module(torch.relu)
    with _registered("::relu", as_max):
        assert _kinds(fx_onnx.export(module, (X,), verify=True)) == ["Max"]
        table = {aten.relu.default: lambda op, self: op.LeakyRelu(self, alpha=0.0)}
        assert _kinds(fx_onnx.export(module, (X,), custom_translation_table=table)) == ["LeakyRelu"]
    assert _kinds(fx_onnx.export(module, (X,))) == ["Relu"]


def test_a_registration_with_torch_onnx_is_read() -> None:
    torch.onnx.register_custom_op_symbolic("aten::relu", as_max, 9)
    try:
        assert _kinds(fx_onnx.export(_module(torch.relu), (X,))) == ["Max"]
        with _registered("aten::relu", as_relu):  # a registration with fx_onnx has precedence
            assert _kinds(fx_onnx.export(_module(torch.relu), (X,))) == ["Relu"]
    finally:
        torch.onnx.unregister_custom_op_symbolic("aten::relu", 9)
    assert _kinds(fx_onnx.export(_module(torch.relu), (X,))) == ["Relu"]


def test_a_library_does_not_replace_a_translation_of_its_own_operators() -> None:
    def of_library(g: Any, self: Any) -> Any:
        return as_max(g, self)

    of_library.__module__ = "aten.onnx"
    with _registered("aten::relu", of_library):
        assert _kinds(fx_onnx.export(_module(torch.relu), (X,))) == ["Relu"]


def test_functions_of_torch_onnx_take_the_values() -> None:
    def clip(g: Any, self: Any) -> Any:
        bound = g.op("Constant", value_t=torch.tensor(0.0))
        assert torch_helper._is_constant(bound)
        assert torch_helper._maybe_get_const(bound, "f") == 0.0
        assert not torch_helper._is_constant(self)
        return g.op("Max", self, bound)

    assert _kinds(fx_onnx.export(_module(torch.relu), (X,), custom_translation_table={aten.relu: clip})) == ["Max"]


def test_a_registration_serves_opsets_from_its_own_on() -> None:
    with _registered("aten::relu", as_max, 19):
        assert _kinds(fx_onnx.export(_module(torch.relu), (X,), opset_version=18)) == ["Relu"]
        assert _kinds(fx_onnx.export(_module(torch.relu), (X,), opset_version=19)) == ["Max"]


def test_a_symbolic_function_is_a_value_of_the_table() -> None:
    program = fx_onnx.export(_module(torch.relu), (X,), custom_translation_table={aten.relu: as_max}, verify=True)
    assert _kinds(program) == ["Max"]


@pytest.mark.parametrize("function", [torch.relu, torch.nn.functional.selu, torch.lerp], ids=lambda f: f.__name__)
def test_a_function_that_returns_none_declines(function: Callable[..., Any]) -> None:
    """relu has a translation; lerp has a decomposition. Nothing of the trial run remains in the model."""
    args = (X,) if function is not torch.lerp else (X, X + 1, 0.25)
    with _registered(f"aten::{function.__name__}", declining):
        program = fx_onnx.export(_module(function), args, verify=True, optimize=False)
    assert "com.example" not in program.model.graph.opset_imports
    assert "Never" not in _kinds(program)


def test_a_declining_entry_of_the_table_leaves_the_call_to_the_registration() -> None:
    with _registered("aten::relu", as_max):
        program = fx_onnx.export(_module(torch.relu), (X,), custom_translation_table={aten.relu: declining})
    assert _kinds(program) == ["Max"]


def test_a_function_declines_call_by_call(tmp_path: Any) -> None:
    def of_matrices(g: Any, self: Any) -> Any:
        return as_max(g, self) if self.type().dim() == 2 else None

    module = _module(lambda x: (x.relu(), x.unsqueeze(0).relu()))
    with _registered("aten::relu", of_matrices):
        program = fx_onnx.export(module, (X,), verify=True, report=True, artifacts_dir=tmp_path)
    assert sorted(_kinds(program)) == ["Max", "Relu", "Unsqueeze"]
    (report,) = tmp_path.glob("*.md")
    assert "of_matrices" in report.read_text()


def test_a_name_without_an_operator_is_in_the_report(tmp_path: Any) -> None:
    with _registered("fx_onnx_tests::no_such_operator", as_relu):
        fx_onnx.export(_module(torch.relu), (X,), report=True, artifacts_dir=tmp_path)
    (report,) = tmp_path.glob("*.md")
    assert "no operator has the names of registered symbolic functions: fx_onnx_tests::no_such" in report.read_text()


# ---------------------------------------------------------------- arguments


def test_all_arguments_arrive_with_defaults_and_dtypes_as_numbers() -> None:
    seen: list[Any] = []

    def softmax(g: Any, input: Any, dim: Any, dtype: Any) -> Any:
        seen.append((dim, dtype))
        return g.op("Cast", g.op("Softmax", input, axis_i=dim), to_i=fx_onnx.JitScalarType(dtype).onnx_type())

    with _registered("aten::softmax", softmax):
        module = _module(lambda x: torch.softmax(x, 1, dtype=torch.float64))
        program = fx_onnx.export(module, (X,))
    assert seen[-1] == (1, 7)
    assert_close(program(X), module(X), tolerance=1e-6)


def test_the_number_of_results_of_a_list() -> None:
    def unbind(g: Any, self: Any, dim: int = 0, _outputs: int | None = None) -> Any:
        parts = g.op("Split", self, axis_i=dim, num_outputs_i=_outputs, outputs=_outputs)
        return [g.op("Squeeze", part, torch.tensor([dim])) for part in parts]

    with _registered("aten::unbind", unbind):
        program = fx_onnx.export(_module(lambda x: x.unbind(1)), (X,), verify=True)
    assert _kinds(program).count("Squeeze") == 3


def test_a_function_that_does_not_fit_is_refused() -> None:
    def relu(g: Any) -> Any: ...

    with pytest.raises(fx_onnx.ArgumentError, match=r"relu cannot take the arguments of aten::relu\(Tensor self\)"):
        fx_onnx.export(_module(torch.relu), (X,), custom_translation_table={aten.relu.default: relu})
    with _registered("aten::relu", relu), pytest.raises(fx_onnx.TranslationError, match=r"relu.*positional argument"):
        fx_onnx.export(_module(torch.relu), (X,))


@pytest.mark.parametrize("form", ["symbolic", "emitter"])
def test_a_dynamic_size_cannot_become_static(form: str) -> None:
    def symbolic(g: Any, self: Any) -> Any:
        return g.op("Expand", g.op("Relu", self), torch.tensor([int(self.type().sizes()[0]), 3]))

    def emitter(op: Any, self: Any) -> Any:
        return op.Expand(op.Relu(self), [int(op.sizes(self)[0]), 3])

    table = {aten.relu.default: symbolic if form == "symbolic" else emitter}
    with pytest.raises(fx_onnx.TranslationError, match=r"relu.* can only be translated where Eq\(.*, 2\)"):
        fx_onnx.export(_module(torch.relu), (X,), dynamic_shapes=(({0: "n"},),), custom_translation_table=table)


def test_dynamic_sizes_are_inputs_of_nodes() -> None:
    def flat(g: Any, self: Any, start: int, end: int) -> Any:
        rows, columns = self.type().sizes()
        return g.op("Reshape", self, [rows * columns])

    with _registered("aten::flatten", flat):
        program = fx_onnx.export(_module(torch.flatten), (X,), dynamic_shapes=(({0: "n"},),))
    assert_close(program(torch.cat([X, X])), torch.cat([X, X]).flatten())


# ---------------------------------------------------------------- autograd.Function


class Scaled(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        return x.relu() * factor


class ScaledWithSymbolic(Scaled):
    @staticmethod
    def symbolic(g: Any, x: Any, factor: float) -> Any:
        return g.op("Mul", x, torch.tensor(factor)) if factor == 2 else None


scaled = Scaled.apply
SCALED = _module(lambda x: Scaled.apply(x, 3.0))


def test_python_op_serves_functions_without_symbolic() -> None:
    seen: dict[str, Any] = {}

    def python_op(g: Any, *args: Any, **kwargs: Any) -> Any:
        node = g.original_node
        seen.update(kwargs, kind=node.kind(), scalars=node.scalar_args(), cconv=node.cconv(), object=node.pyobj())
        seen.update(outputs=node.outputsSize(), inputs=len(node.inputs()), args=len(args), pyname=node.pyname())
        (output,) = node.outputs()
        return g.op("com.example::Scaled", args[0]).setType(output.type())

    with _registered("prim::PythonOp", python_op):
        assert _kinds(fx_onnx.export(SCALED, (X,))) == ["Scaled"]
        assert _kinds(fx_onnx.export(_module(lambda x: scaled(x, 3.0)), (X,))) == ["Scaled"]
        both = fx_onnx.export(_module(lambda x: ScaledWithSymbolic.apply(x, 2.0)), (X,))
    assert _kinds(both) == ["Mul"]
    assert seen == {
        "name": "Scaled", "module": __name__, "inplace": 0, "kind": "prim::PythonOp", "scalars": [3.0], "cconv": "dc",
        "object": Scaled, "outputs": 1, "inputs": 1, "args": 1, "pyname": "Scaled",
    }  # fmt: skip


def test_a_declined_function_is_traced_through_its_forward() -> None:
    with _registered("prim::PythonOp", declining):
        program = fx_onnx.export(SCALED, (X,), verify=True)
        declined = fx_onnx.export(_module(lambda x: ScaledWithSymbolic.apply(x, 3.0)), (X,), verify=True)
    assert _kinds(program) == _kinds(declined) == ["Relu", "Mul"]


def test_a_function_that_cannot_be_an_operator_is_traced() -> None:
    class OfDict(Function):
        @staticmethod
        def forward(ctx: Any, x: dict[str, Tensor]) -> Tensor:
            return x["x"].relu()

    with _registered("prim::PythonOp", declining):
        assert _kinds(fx_onnx.export(_module(lambda x: OfDict.apply({"x": x})), (X,), verify=True)) == ["Relu"]


# ---------------------------------------------------------------- values of weights


def _quantized(g: Any, x: Any, amax: Any) -> Any:
    """Reads a weight as libraries of quantization do, and writes to what it gets."""
    scale = amax.squeeze().masked_fill_(amax.squeeze() == 0, 1.0) / 127
    axis = list(amax.shape).index(amax.numel()) if amax.numel() > 1 else None
    zero = g.op("Cast", torch.zeros(scale.shape), to_i=int(onnx.TensorProto.INT8))
    return g.op("DequantizeLinear", g.op("QuantizeLinear", x, scale, zero, axis_i=axis), scale, zero, axis_i=axis)


def _fake_quantize(symbolic: Any) -> Any:
    def forward(ctx: Any, x: Tensor, amax: Tensor) -> Tensor:
        scale = torch.where(amax == 0, 1.0, amax) / 127
        return torch.clamp((x / scale).round(), -128, 127) * scale

    members = {"forward": staticmethod(forward), "symbolic": staticmethod(symbolic)}
    return type("FakeQuantize", (Function,), members).apply  # type: ignore[attr-defined]


class Quantizer(nn.Module):
    """Passes its buffer, or what a function makes of it."""

    def __init__(self, symbolic: Any, amax: Tensor, taken: Callable[..., Any]) -> None:
        super().__init__()
        self.register_buffer("amax", amax)
        self.quantize, self.taken = _fake_quantize(symbolic), taken

    def forward(self, x: Tensor) -> Any:
        return self.quantize(x, self.taken(self.amax, x))


PARSED = [torch_helper.parse_args("v", "t")(_quantized), fx_onnx.symbolic_helper.parse_args("v", "t")(_quantized)]
AMAX = [torch.tensor(2.0), torch.tensor([[1.0, 0.0, 3.0]])]


@pytest.mark.parametrize("symbolic", PARSED)
@pytest.mark.parametrize("amax", AMAX)
@pytest.mark.parametrize("opset", [17, 19, 21])
def test_parse_args_reads_the_values_of_a_weight(symbolic: Any, amax: Tensor, opset: int) -> None:
    for taken in (lambda amax, x: amax, lambda amax, x: amax.detach(), lambda amax, x: amax.data):
        module = Quantizer(symbolic, amax.clone(), taken)
        program = fx_onnx.export(module, (X,), dynamic_shapes=({0: "n"},), opset_version=opset)
        assert _kinds(program) == ["QuantizeLinear", "DequantizeLinear"]
        larger = torch.randn(5, 3)
        assert_close(program(larger), module(larger))
        assert torch.equal(module.amax, amax)


@pytest.mark.parametrize(
    ("symbolic", "message"),
    [(PARSED[0], "its argument amax must be a constant, but the model"), (PARSED[1], r"amax.*must be a constant")],
)
def test_parse_args_does_not_read_values_of_inputs(symbolic: Any, message: str) -> None:
    with pytest.raises(fx_onnx.TranslationError, match=message):
        fx_onnx.export(Quantizer(symbolic, AMAX[0], lambda amax, x: x.amax()), (X,))


def test_other_functions_get_a_weight_as_an_initializer() -> None:
    def symbolic(g: Any, x: Any, amax: Any) -> Any:
        assert (amax.node().kind(), torch_helper._is_constant(amax)) == ("prim::Param", False)
        return g.op("com.example::Quantize", x, amax).setType(x.type())

    (node,) = fx_onnx.export(Quantizer(symbolic, AMAX[1], lambda amax, x: amax), (X,)).model.graph
    assert node.inputs[1].name == "amax"


def test_type_inference_of_torchscript_is_left_out() -> None:
    def symbolic(g: Any, x: Any, amax: Any) -> Any:
        result = g.op("com.example::Quantize", x, amax).setType(x.type().with_dtype(torch.uint8))
        torch._C._jit_pass_onnx_node_shape_type_inference(result.node(), g.params_dict, g.opset)
        return g.op("com.example::Dequantize", result, amax).setType(x.type())

    infer = torch._C._jit_pass_onnx_node_shape_type_inference
    program = fx_onnx.export(Quantizer(symbolic, AMAX[0], lambda amax, x: amax), (X,), dynamic_shapes=({0: "n"},))
    assert [(node.op_type, node.outputs[0].dtype) for node in program.model.graph] == [
        ("Quantize", ir.DataType.UINT8), ("Dequantize", ir.DataType.FLOAT),
    ]  # fmt: skip
    assert torch._C._jit_pass_onnx_node_shape_type_inference is infer


# ---------------------------------------------------------------- as published


def test_the_contrib_operators_of_onnx_runtime() -> None:
    """ONNX Runtime ships symbolic functions for its own operators, and registers them with torch.onnx."""
    from onnxruntime.tools import pytorch_export_contrib_ops as contrib

    matrix, image, grid = torch.randn(3, 3), torch.randn(1, 2, 4, 4), torch.rand(1, 3, 3, 2)

    def forward(matrix: Tensor, image: Tensor, grid: Tensor) -> Any:
        sampled = torch.grid_sampler(image, grid, 0, 0, False)
        return matrix.inverse(), matrix.triu(1), matrix.tril(), nn.functional.gelu(matrix), sampled

    with fx_onnx.replacing_torch_onnx():
        contrib.register()
        try:
            program = fx_onnx.export(_module(forward), (matrix, image, grid), verify=True)
        finally:
            contrib.unregister()
    domains = {node.op_type: node.domain for node in program.model.graph}
    assert {name for name, domain in domains.items() if domain == "com.microsoft"} >= {"Inverse", "Trilu", "Gelu"}
    assert "GridSample" in domains
