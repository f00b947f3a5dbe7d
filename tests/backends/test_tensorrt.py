"""The target tensorrt: its table, its rules of quantization, and the forms that its compiler takes."""

import pytest
import torch
from onnx_ir import DataType

import fx_onnx
from fx_onnx.targets.kernel_support import support
from fx_onnx.targets.known_targets import find_target
from tests.compare import assert_close
from tests.exporting import exported, operators, padded_maximum
from tests.models.quantized_networks import quantized, rows
from tests.passes.checking import model
from tests.torchvision_cpu import torchvision


def test_boolean_masks_are_read_without_compress() -> None:
    target = find_target("tensorrt")
    text = "g (float[N] x, bool[N] c) => (float[M] y) { y = Compress(x, c) }"
    assert [each.operator for each in support(model(text), target).missing] == ["Compress"]
    program = exported(lambda x: x[x > 0], torch.ones(2, 3), target="tensorrt")
    assert support(program.model, target).missing == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("g (float[N] x) => (float[M] y) { y, i, j, n = Unique(x) }", "no kernel"),
        ("g (float[1,N,4] b, float[1,1,N] s) => (int64[M,3] y) { y = NonMaxSuppression(b, s) }", "no kernel"),
        ("g (float[1,2,8,8] x, float[N,4] r, int64[N] i) => (float[N,2,1,1] y) { y = RoiAlign(x, r, i) }", "no kernel"),
        ("g (double[N] x) => (double[N] y) { y = Relu(x) }", "TensorRT computes float64 in float32"),
        ("g (int16[N] x) => (int16[N] y) { y = Add(x, x) }", "no kernel for int16"),
        ("g (bool[N] x) => (bool[] y) { y = ReduceMax<keepdims=0>(x) }", "no kernel for bool"),
        ("g (int32[N] x) => (int32[N] y) { y = Relu(x) }", "no kernel for int32"),
    ],
)
def test_the_table_has_the_dtypes_of_engines(text: str, reason: str) -> None:
    """It has no versions, except of operators whose type variables changed. float64 would be computed in float32."""
    found = support(model(text), find_target("tensorrt"))
    assert [each.reason for each in found.missing] == [reason]
    assert "TensorRT for RTX 1." in found.source


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "(float[N] x) => (float[M] y, int64[M] i) <int64[1] k = {4000}> { y, i = TopK(x, k) }",
            "TensorRT sorts at most",
        ),
        (
            "(float[N,2,8] x) => (float[N,2,6] y) { y = MaxPool<kernel_shape=[2], dilations=[2]>(x) }",
            "TensorRT has no ind",
        ),
        ("(float[1,2,8] x, float[2,2,K] w) => (float[1,2,M] y) { y = Conv(x, w) }", "the sizes of the kernel are dyn"),
        ("(float[N] x) => (float[N] y) { y = Softmax(x) }", "the input is a vector"),
        (
            "(float[2] x, int64[3] i, float[3] u) => (float[2] y) { y = ScatterElements(x, i, u) }",
            "the indices are long",
        ),
        ("() => (float y) { y = RandomUniform<shape: ints = []>() }", "TensorRT draws no tensor without axes"),
        ('(float[2] x, float[2] z) => (float y) { y = Einsum<equation="A,A->">(x, z) }', "TensorRT takes small"),
    ],
)
def test_what_is_refused_by_attributes_and_ranks(text: str, reason: str) -> None:
    found = support(model(f"g {text}"), find_target("tensorrt"))
    assert [each.reason.startswith(reason) for each in found.missing] == [True]


def test_bfloat16_stays() -> None:
    """ONNX Runtime's CPU provider needs Casts there; TensorRT needs them in few operators, such as Mish."""
    x = torch.ones(2, 4, dtype=torch.bfloat16)
    layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.LayerNorm(4)).bfloat16()
    assert "Cast" not in operators(exported(layers, x, target="tensorrt"))
    assert operators(exported(torch.nn.functional.mish, x, target="tensorrt")) == ["Cast", "Mish", "Cast"]


def test_uint8_is_in_inputs_and_outputs_only() -> None:
    x = torch.arange(6, dtype=torch.uint8).reshape(2, 3)
    program = exported(lambda x: x.t().float(), x, target="tensorrt")
    assert operators(program) == ["Cast", "Transpose", "Mod", "Cast"]
    assert torch.equal(program(x)[0], x.t().float())


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ("QuantizeLinear(x, s, zero)", ""),
        ("QuantizeLinear(x, s, three)", "the zero point is not 0"),
        ("QuantizeLinear<axis=0>(x, two, zeros)", "an activation has several scales"),
        ("QuantizeLinear(x, square, zero)", ""),
        ("QuantizeLinear(x, largest, zero)", "the scale is computed"),
    ],
)
def test_quantization_is_symmetric(node: str, reason: str) -> None:
    """The rules of TensorRT's documentation. What only constants decide is a constant."""
    text = f"""g (float[2,3] x) => (int8[2,3] y, float largest) <float s = {{0.5}}, float[2] two = {{0.5, 0.25}},
      int8 zero = {{0}}, int8 three = {{3}}, int8[2] zeros = {{0, 0}}> {{
      square = Mul(s, s)\n largest = ReduceMax<keepdims=0>(x)\n y = {node}
    }}"""
    found = support(model(text), find_target("tensorrt")).missing
    assert [each.reason.startswith(reason) for each in found] == ([True] if reason else [])


def test_weights_may_have_a_scale_for_each_channel() -> None:
    text = """g () => (float[2,3] y) <int8[2,3] w = {1, 2, 3, 4, 5, 6}, float[2] s = {0.5, 0.25}> {
      y = DequantizeLinear<axis=0>(w, s)
    }"""
    assert support(model(text), find_target("tensorrt")).missing == ()


@pytest.mark.parametrize("name", ["int8_dynamic", "int4_in_groups"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("opset", "dims"), [(18, {0: "rows"}), (20, None), (20, {0: "rows"})])
def test_quantized_layers_of_each_dtype_become_arithmetic(
    opset: int, dims: dict[int, str] | None, dtype: torch.dtype, name: str
) -> None:
    """Only a DequantizeLinear reads a constant of int8."""
    module, x = quantized(name).to(dtype), rows(2).to(dtype)
    program = exported(module, x, target="tensorrt", dynamic_shapes=(dims,), opset_version=opset)
    assert support(program.model, find_target("tensorrt")).missing == ()
    constants = [value for value in program.model.graph.initializers.values() if value.dtype == DataType.INT8]
    readers = {use.node.op_type for value in constants for use in value.uses()}
    assert constants and readers <= {"DequantizeLinear", "Reshape"}, readers
    assert_close(program(x), module(x))


def test_a_suppression_in_a_branch_is_told() -> None:
    """TensorRT for RTX has no kernel for it, and no results of unknown sizes in branches."""

    class Branch(torch.nn.Module):
        def forward(self, boxes: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            return torchvision.ops.nms(boxes, scores, 0.5) if scores.sum() > 0 else torch.arange(3)

    program = fx_onnx.export(Branch(), (torch.rand(6, 4), torch.rand(6)), target="tensorrt", verbose=False)
    missing = support(program.model, find_target("tensorrt")).missing
    assert [each.operator for each in missing] == ["NonMaxSuppression"]
    assert missing[0].line.startswith("tests/backends/test_tensorrt.py:")


def test_the_opset_of_the_target_and_of_the_caller() -> None:
    x = torch.ones(2, 3)
    assert exported(padded_maximum, x, target="tensorrt").model.graph.opset_imports[""] == find_target("tensorrt").opset
    assert exported(padded_maximum, x, target="tensorrt", opset_version=21).model.graph.opset_imports[""] == 21
