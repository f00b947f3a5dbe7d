"""Opset 15 → 14: parts of a shape, and BatchNormalization of mixed types."""

import onnx_ir as ir
import pytest
import torch

from fx_onnx.core.errors import OnnxExporterError
from fx_onnx.passes.legalization.opsets.step_13 import STEP_13
from fx_onnx.passes.legalization.opsets.step_14 import STEP_14
from tests.compare import assert_close
from tests.passes.checking import check, model, run


@pytest.mark.parametrize(
    ("flags", "operators"),
    [
        ("", ["Shape"]),
        ("<start=1>", ["Shape", "Slice"]),
        ("<end=-1>", ["Shape", "Slice"]),
        ("<start=-2, end=9>", ["Shape", "Slice"]),
        ("<start=2, end=1>", ["Shape", "Slice"]),
    ],
)
def test_shape(flags: str, operators: list[str]) -> None:
    text = f"g (float[A,B,C] x) => (int64[N] y) {{ y = Shape{flags}(x) }}"
    check(model(text, opset=15), STEP_14, [torch.randn(2, 3, 5)], operators)


def test_batch_normalization_of_mixed_types() -> None:
    """float16 data with float32 statistics is computed in float32."""
    statistics = "float[3] w, float[3] b, float[3] m, float[3] v"
    text = f"g (float16[N,3,4] x, {statistics}) => (float16[N,3,4] y) {{ y = BatchNormalization(x, w, b, m, v) }}"
    program = model(text, opset=15)
    STEP_14(program)
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
    STEP_14(program)
    STEP_13(program)
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
    STEP_14(program)
    assert ir.serde.serialize_model(program).graph == before


def test_refused() -> None:
    text = "g (float[N] x) => (float[N] y) { y = Bernoulli(x) }"
    with pytest.raises(OnnxExporterError, match=r"opset 14 cannot express Bernoulli.*opset_version=15"):
        STEP_14(model(text, opset=15))
