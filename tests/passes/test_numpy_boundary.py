"""Inputs and outputs of dtypes that NumPy lacks become float32."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from fx_onnx.passes.numpy_boundary import with_numpy_boundary

TEXT = """<ir_version: 10, opset_import: ["" : 19]>
g (DTYPE[2] x, float[2] y) => (DTYPE[2] z, float[2] w) {
    z = Identity(x)
    w = Neg(y)
}"""


@pytest.mark.parametrize(("dtype", "casts"), [("bfloat16", 2), ("float8e4m3fn", 2), ("float16", 0), ("float", 0)])
def test_the_boundary(dtype, casts):
    model = ir.from_proto(onnx.parser.parse_model(TEXT.replace("DTYPE", dtype)))
    proto = ir.to_proto(with_numpy_boundary(model))
    onnx.checker.check_model(proto, full_check=True)
    assert sum(node.op_type == "Cast" for node in proto.graph.node) == casts
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.array([1.03, -3.0], np.float16 if dtype == "float16" else np.float32)
    z, w = session.run(["z", "w"], {"x": x, "y": np.ones(2, np.float32)})
    expected = {"bfloat16": 1.03125, "float8e4m3fn": 1.0}.get(dtype, x[0])
    assert z.dtype == x.dtype and z.tolist() == [expected, -3] and w.tolist() == [-1, -1]
