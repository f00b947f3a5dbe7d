"""Normalizations."""

import onnx_ir as ir
import pytest
import torch

from fx_onnx.backends.ladder import OpsetStep
from fx_onnx.backends.legalization.normalizations import legalize_batch_statistics, legalize_vectors
from tests.compare import assert_close
from tests.passes.checking import check, check_equal, model, run


@pytest.mark.parametrize("read", ["", ", float[3] m, float[3] v"])
@pytest.mark.parametrize("shape", [(8, 3), (2, 3, 4, 5)])
def test_batch_normalization_in_training(shape: tuple[int, ...], read: str) -> None:
    """The result and the new statistics, of which a caller may read none."""
    sizes = ",".join("ABCD"[: len(shape)])
    text = f"""(float[{sizes}] x, float[3] s, float[3] b, float[3] m0, float[3] v0) => (float[{sizes}] y{read})
    {{ y, m, v = BatchNormalization<training_mode=1, momentum=0.8>(x, s, b, m0, v0) }}"""
    check_equal(model(f"g {text}", opset=14), OpsetStep(13), [torch.randn(shape), *torch.rand(4, 3)])


def test_batch_normalization_of_mixed_types() -> None:
    """float16 data with float32 statistics is computed in float32."""
    statistics = "float[3] w, float[3] b, float[3] m, float[3] v"
    text = f"g (float16[N,3,4] x, {statistics}) => (float16[N,3,4] y) {{ y = BatchNormalization(x, w, b, m, v) }}"
    program = model(text, opset=15)
    OpsetStep(14)(program)
    assert [node.op_type for node in program.graph] == ["Cast", "BatchNormalization", "Cast"]
    x, w, b, m, v = torch.randn(2, 3, 4).half(), *(torch.rand(3) + 0.5 for _ in range(4))
    want = torch.nn.functional.batch_norm(x.float(), m, v, w, b).half()
    assert_close(run(program, [x, w, b, m, v]), want)


def test_batch_normalization_of_mixed_types_in_training() -> None:
    """The new statistics are results too. ONNX Runtime has no kernel for training before the step to opset 13."""
    statistics = "float[3] w, float[3] b, float[3] m, float[3] v"
    text = f"""g (float16[N,3,4] x, {statistics}) => (float16[N,3,4] y, float[3] nm, float[3] nv)
    {{ y, nm, nv = BatchNormalization<training_mode=1>(x, w, b, m, v) }}"""
    program = model(text, opset=15)
    OpsetStep(14)(program)
    OpsetStep(13)(program)
    x, w, b, m, v = torch.randn(2, 3, 4).half(), *(torch.rand(3) + 0.5 for _ in range(4))
    want = torch.nn.functional.batch_norm(x.float(), None, None, w, b, training=True).half()
    y, mean, variance = run(program, [x, w, b, m, v])
    assert_close(y, want)
    assert_close(mean, 0.9 * m + 0.1 * x.float().mean((0, 2)))
    assert_close(variance, 0.9 * v + 0.1 * x.float().var((0, 2), correction=0))


def test_batch_normalization_of_one_type_stays() -> None:
    text = "g (float[N,3] x, float[3] w) => (float[N,3] y) { y = BatchNormalization(x, w, w, w, w) }"
    program = model(text, opset=15)
    before = ir.serde.serialize_model(program).graph
    OpsetStep(14)(program)
    assert ir.serde.serialize_model(program).graph == before


NORM = ["ReduceMean", "Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Add"]

X, WEIGHT, BIAS = torch.randn(2, 5, 4) * 3 + 100, torch.randn(5, 4), torch.randn(5, 4)


@pytest.mark.parametrize("axis", [1, -2])
def test_layer_normalization(axis: int) -> None:
    text = f"(float[N,5,4] x, float[5,4] w, float[5,4] b) => (float[N,5,4] y) {{ y = LayerNormalization<axis={axis}>"
    check(model(f"g {text}(x, w, b) }}", opset=17), OpsetStep(16), [X, WEIGHT, BIAS], NORM)


def test_layer_normalization_returns_its_statistics() -> None:
    text = """g (float[N,5,4] x, float[4] w) => (float[A,B,C] y, float[D,E,F] mean, float[G,H,I] inverse)
    { y, mean, inverse = LayerNormalization<epsilon=0.5>(x, w) }"""
    check(model(text, opset=17), OpsetStep(16), [X, WEIGHT[0]], [*NORM[:-1], "Reciprocal"])


def test_layer_normalization_of_float16_is_computed_in_float32() -> None:
    """The squares of 300 exceed the range of float16."""
    text = "(float16[N,4] x, float16[4] w, float16[4] b) => (float16[N,4] y) { y = LayerNormalization(x, w, b) }"
    program = model(f"g {text}", opset=17)
    x, w, b = (torch.tensor([[-300.0, 300.0, 200.0, 0.0]]).half(), torch.randn(4).half(), torch.randn(4).half())
    OpsetStep(16)(program)
    assert [node.op_type for node in program.graph].count("Cast") == 2
    want = torch.nn.functional.layer_norm(x.float(), (4,), w.float(), b.float())
    (got,) = run(program, [x, w, b])
    assert got.dtype == torch.float16
    torch.testing.assert_close(got.float(), want, atol=4e-3, rtol=0)


@pytest.mark.parametrize("node", ["Softmax", "LogSoftmax<axis=0>", "Hardmax", "ArgMax", "ArgMin<keepdims=0>"])
def test_a_vector_is_one_row_for_tensorrt(node: str) -> None:
    kind = "int64" if node.startswith("Arg") else "float"
    text = f"g (float[N] x) => ({kind}[] y) {{ y = {node}(x) }}"
    x = torch.tensor([0.5, 3.0, -1.0])
    check(model(text), legalize_vectors, [x], ["Unsqueeze", node.partition("<")[0], "Squeeze"])


def test_statistics_of_a_batch_for_tensorrt() -> None:
    text = """(float[4,3] x, float[3] s, float[3] b, float[3] m0, float[3] v0) => (float[4,3] y, float[3] m, float[3] v)
    { y, m, v = BatchNormalization<training_mode=1>(x, s, b, m0, v0) }"""
    program = model(f"g {text}", opset=18)
    check_equal(program, legalize_batch_statistics, [torch.randn(4, 3), *torch.rand(4, 3)])
    assert "BatchNormalization" not in [node.op_type for node in program.graph]
