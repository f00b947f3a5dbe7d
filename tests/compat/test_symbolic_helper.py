"""The helpers of symbolic functions, in functions of the shape that libraries publish."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.compat import symbolic_helper as helper
from fx_onnx.compat.symbolic_graph import GraphContext, SymbolicValue
from fx_onnx.compat.symbolic_helper import parse_args
from tests.compare import assert_close
from tests.translation.emitters import emitter, symbolic_sizes, value

aten = torch.ops.aten
X = torch.randn(2, 3, 4)


def _graph() -> tuple[GraphContext, SymbolicValue]:
    """Returns a graph, and an input of float32 with a dynamic first size."""
    op = emitter()
    size, _ = symbolic_sizes()
    return GraphContext(op), SymbolicValue(value(op, 1, size, 3), op)  # type: ignore[arg-type]


# ---------------------------------------------------------------- as published


@parse_args("v", "i", "i", "i", "i")
def topk(g: Any, self: Any, k: int, dim: int, largest: int, sorted: int) -> Any:
    return helper._topk_helper(g, self, k, dim, largest=bool(largest), sorted=bool(sorted))


@parse_args("v", "i", "b")
def sort(g: Any, self: Any, dim: int, descending: bool) -> Any:
    return helper._sort_helper(g, self, dim, descending)


def roll(g: Any, self: Any, shifts: list[int], dims: list[int]) -> Any:
    result = self
    for shift, dim in zip(shifts, dims, strict=True):
        tail = helper._slice_helper(g, result, axes=[dim], starts=[-shift], ends=[2**62])
        head = helper._slice_helper(g, result, axes=[dim], starts=[0], ends=[-shift])
        result = g.op("Concat", tail, head, axis_i=dim)
    return result


@parse_args("v", "is", "none", "none", "f", "none")
def layer_norm(g: Any, input: Any, normalized_shape: list[int], weight: Any, bias: Any, eps: float, cudnn: Any) -> Any:
    assert helper._is_none(weight)
    assert normalized_shape == [4]
    axes = [-place for place in range(len(normalized_shape), 0, -1)]
    centered = g.op("Sub", input, g.op("ReduceMean", input, axes_i=axes))
    variance = g.op("ReduceMean", g.op("Mul", centered, centered), axes_i=axes)
    epsilon = helper._maybe_cast_to_type(g, helper._generate_wrapped_number(g, eps), fx_onnx.JitScalarType.FLOAT)
    return g.op("Div", centered, g.op("Sqrt", g.op("Add", variance, epsilon)))


@parse_args("v", "i", "i")
def select(g: Any, self: Any, dim: int, index: int) -> Any:
    return helper._squeeze_helper(g, helper._select_helper(g, self, dim, index), [dim])


@parse_args("v", "is", "i")
def sum_of_dims(g: Any, self: Any, dim: list[int], keepdim: int, dtype: Any = None) -> Any:
    return helper._reducesum_helper(g, self, dim, keepdims_i=keepdim)


def flatten(g: Any, self: Any, start_dim: int, end_dim: int) -> Any:
    rows = helper._size_helper(g, self, 0)
    shape = g.op("Concat", rows, torch.tensor([-1]), axis_i=0)
    return helper._unsqueeze_helper(g, helper._squeeze_helper(g, helper._reshape_helper(g, self, shape), [1]), [1])


@helper.quantized_args(True, False)
@parse_args("v", "f")
def leaky_relu(g: Any, self: Any, negative_slope: float) -> Any:
    return g.op("LeakyRelu", self, alpha_f=negative_slope)


@pytest.mark.parametrize(
    ("operator", "symbolic", "call"),
    [
        (aten.topk.default, topk, lambda x: x.topk(2, 1)),
        (aten.sort.default, sort, lambda x: x.sort(1, descending=True)),
        (aten.roll.default, roll, lambda x: x.roll((1, 2), (1, 2))),
        (aten.layer_norm.default, layer_norm, lambda x: nn.functional.layer_norm(x, (4,))),
        (aten.select.int, select, lambda x: x.select(1, 2)),
        (aten.flatten.using_ints, flatten, lambda x: x[:, :1, :1].flatten(1)),
        (aten.leaky_relu.default, leaky_relu, lambda x: nn.functional.leaky_relu(x, 0.2)),
    ],
)
def test_as_published(operator: Any, symbolic: Callable[..., Any], call: Callable[[Tensor], Any]) -> None:
    class Module(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return call(x)

    module = Module().eval()
    program = fx_onnx.export(
        module, (X,), dynamic_shapes=({0: "n"},), custom_translation_table={operator: symbolic}, verify=True
    )
    x = torch.randn(5, 3, 4)
    expected = module(x)
    assert_close(program(x), tuple(expected) if isinstance(expected, tuple) else expected)


# ---------------------------------------------------------------- single helpers


@pytest.mark.parametrize(
    ("descriptor", "given", "expected"),
    [
        ("v", 3, 3), ("i", 3.0, 3), ("i", True, 1), ("f", 2, 2.0), ("b", 1, True), ("s", "nearest", "nearest"),
        ("is", [1, 2.0], [1, 2]), ("is", 3, [3]), ("fs", (1, 2), [1.0, 2.0]), ("none", None, None), ("i", None, None),
        ("i", torch.tensor(4), 4), ("is", torch.tensor([4, 5]), [4, 5]),
    ],
)  # fmt: skip
def test_parse_args(descriptor: str, given: Any, expected: Any) -> None:
    found = parse_args(descriptor)(lambda g, x: x)(None, given)
    assert found == expected
    assert type(found) is type(expected)


def test_parse_args_reads_constants_and_tensors() -> None:
    g, _ = _graph()
    constant = g.op("Constant", value_t=torch.tensor([3, 4]))
    assert parse_args("is")(lambda g, x: x)(g, constant) == [3, 4]
    assert parse_args("t")(lambda g, x: x)(g, constant).tolist() == [3, 4]
    assert parse_args("t")(lambda g, x: x)(g, 2.5).item() == 2.5
    assert helper._get_const(constant, "is", "shape") == [3, 4]
    assert helper._maybe_get_const(constant, "t").tolist() == [3, 4]
    assert helper._scalar(helper._maybe_get_scalar(g.op("Constant", value_t=torch.tensor(7)))) == 7
    assert helper._maybe_get_scalar(constant) is constant
    assert helper._node_get(constant.node(), "value").tolist() == [3, 4]


def test_parse_args_refuses_what_is_not_constant() -> None:
    g, x = _graph()

    def named(g: Any, size: Any) -> Any: ...

    with pytest.raises(fx_onnx.TranslationError, match="The argument size of named must be a constant, but it depends"):
        parse_args("i")(named)(g, x)
    with pytest.raises(fx_onnx.TranslationError, match=r"size of named must be a constant, but it is the dynamic s\d+"):
        parse_args("is")(named)(g, [x.type().sizes()[0], 1])  # type: ignore[index]
    with pytest.raises(TypeError, match="named got 2 arguments for 1 descriptors"):
        parse_args("i")(named)(g, 1, 2)
    with pytest.raises(fx_onnx.ArgumentError, match=r"parse_args takes the descriptors v, t, none, .*, not 'q'"):
        parse_args("v", "q")


def test_facts_about_values() -> None:
    g, x = _graph()
    constant = g.op("Constant", value_t=torch.tensor([True]))
    facts = (helper._is_value, helper._is_tensor, helper._is_constant, helper._is_none, helper._is_fp, helper._is_bool)
    assert [fact(x) for fact in facts] == [True, True, False, False, True, False]
    assert [fact(constant) for fact in facts] == [True, True, True, False, False, True]
    assert [fact(None) for fact in facts] == [False, False, True, True, False, False]
    assert (helper._get_tensor_rank(x), helper._get_tensor_sizes(x)) == (2, [None, 3])
    assert helper._get_tensor_sizes(x, allow_nonstatic=False) is None
    assert (helper._get_tensor_dim_size(x, 0), helper._get_tensor_dim_size(x, 1)) == (None, 3)
    assert helper._type_promote_from_values(constant, x) is fx_onnx.JitScalarType.FLOAT
    assert helper._type_promote_from_values(3) is fx_onnx.JitScalarType.UNDEFINED
    assert not helper.args_have_same_dtype([x, constant])
    assert not helper.is_complex_value(x)
    assert (helper._is_packed_list([1]), helper._is_tensor_list([x]), helper._is_scalar_list([x])) == (
        True,
        True,
        False,
    )
    assert helper._unpack_list((1, x)) == [1, x]
    assert helper._optional_input_placeholder_tensor(g) is None
    assert helper._numel_helper(g, x).node().kind() == "onnx::Size"


def test_tables_of_dtypes() -> None:
    assert helper.cast_pytorch_to_onnx["Long"] == 7
    assert helper.scalar_type_to_onnx[6] == 1
    assert helper.scalar_type_to_pytorch_type[11] is torch.bool
    assert helper.pytorch_name_to_type["Half"] is fx_onnx.JitScalarType.HALF


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: helper._unimplemented("topk", "out"), "does not support topk, out"),
        (lambda: helper._onnx_unsupported("topk"), "does not support topk"),
        (lambda: helper._onnx_opset_unsupported("topk", 9, 11), "topk needs opset 11, not 9"),
        (lambda: helper._onnx_opset_unsupported_detailed("topk", 9, 11, "no."), r"opset 11, not 9 \(no\)"),
        (lambda: helper._sort_helper(None, None, 0, out=1), "does not support Sort, the argument out"),  # type: ignore[arg-type]
    ],
)
def test_refusals(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(fx_onnx.OnnxExporterError, match=message):
        call()


# ---------------------------------------------------------------- quantization


def quantized_relu(g: Any, self: Any) -> Any:
    scale, zero_point = g.op("Constant", value_t=torch.tensor(0.25)), g.op("Constant", value_t=torch.tensor(128))
    quantized = helper.quantize_helper(g, self, scale, zero_point)
    assert len(quantized) == 3
    real, *_, axis = helper.dequantize_helper(g, quantized)
    assert axis is None
    helper.check_training_mode(0, "relu")
    return g.op("Relu", real)


def quantized_by_channel(g: Any, self: Any) -> Any:
    scales = g.op("Constant", value_t=torch.tensor([0.5, 0.25, 1.0]))
    zero_points = g.op("Constant", value_t=torch.zeros(3, dtype=torch.int8))
    quantized = helper.quantize_helper(g, self, scales, zero_points, axis=1)
    return g.op("Relu", helper.dequantize_helper(g, quantized, fx_onnx.TensorProtoDataType.INT8)[0])


def quantized_bias(g: Any, self: Any) -> Any:
    one = g.op("Constant", value_t=torch.tensor(0.5))
    values, scale, zero_point = helper.requantize_bias_helper(g, self, one, one)
    return helper.dequantize_helper(g, (values, scale, zero_point))[0]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (quantized_relu, lambda x: torch.fake_quantize_per_tensor_affine(x, 0.25, 128, 0, 255).relu()),
        (
            quantized_by_channel,
            lambda x: torch.fake_quantize_per_channel_affine(
                x, torch.tensor([0.5, 0.25, 1.0]), torch.zeros(3, dtype=torch.int32), 1, -128, 127
            ).relu(),
        ),
        (quantized_bias, lambda x: (x / 0.25).trunc() * 0.25),
    ],
)
def test_quantized_values(function: Any, expected: Callable[[Tensor], Tensor]) -> None:
    program = fx_onnx.export(nn.ReLU(), (X,), custom_translation_table={aten.relu.default: function}, optimize=False)
    torch.testing.assert_close(program(X)[0], expected(X))


def test_the_names_of_c_plus_plus() -> None:
    assert torch.onnx.symbolic_helper.scalar_name_to_pytorch.items() <= helper.scalar_name_to_pytorch.items()
