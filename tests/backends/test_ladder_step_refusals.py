"""Tests of all refusals: each names the operator, torch's operator, the line of the model and the lowest opset."""

import ast
import inspect
import re
from pathlib import Path

import onnx_ir as ir
import pytest

from fx_onnx.backends import ladder
from fx_onnx.backends.ladder import LADDER
from fx_onnx.messages.errors import OnnxExporterError
from fx_onnx.onnx_model import metadata
from fx_onnx.passes.legalization.rows import ROWS
from tests.passes.checking import model

# A model in an opset, and a part of the reason for which the opset below it cannot express the model.
REFUSED = [
    (18, "(float[N] x) => (float[N] y) { y = OptionalGetElement(x) }", "the operator has another meaning there"),
    (18, "(float[3] x, int64[K] a) => (float[N] y) { y = ReduceMean(x, a) }", "its axes are computed at run time"),
    (18, "(float[3,4] x, int64[2] s) => (float[A,B] y) { y = CenterCropPad(x, s) }", "that opset has no such operator"),
    (18, "(float[1,1,6,6] x) => (float[1,1,C,D] y)"
     " { y = LpPool<kernel_shape=[2,2], ceil_mode=1>(x) }", "its attribute ceil_mode does not exist"),
    (18, "(float[1,1,A,A] x, int64[2] s) => (float[A,B,C,D] y)"
     ' { y = Resize<axes=[2,3], mode="linear", antialias=1>(x, , , s) }', "with antialiasing, or some size"),
    (18, "(float[1,1,4,4] x, int64[2] s) => (float[A,B,C,D] y)"
     ' { y = Resize<axes=[2,3], keep_aspect_ratio_policy="not_larger">(x, , , s) }', "it keeps the aspect ratio"),
    (18, "(float[N,C,9] x) => (float[N,D,4,4] y) <int64[2] s = {4,4}, int64[2] k = {2,2}> { y = Col2Im(x, s, k) }",
     "its number of channels is not static"),
    (18, "(float[] x, int64[2] p) => (float[] y) <int64[1] a = {0}> { y = Pad(x, p, , a) }", "the rank of its input"),
    (18, "(float[N] x) => (float[N] y) { y = ReduceL1<noop_with_empty_axes=1>(x) }", "noop_with_empty_axes and no ax"),
    (18, "(float[] x, int64[N] i, float[N] u) => (float[] y) { y = ScatterElements<reduction=\"max\">(x, i, u) }",
     "the rank of its input is not known"),
    (18, "(float[A] x, int64[N,K] i, float[N] u) => (float[A] y) { y = ScatterND<reduction=\"max\">(x, i, u) }",
     "the number of its indexed axes is not known"),
    (17, "(float[] x) => (float[] y) { y = DFT(x) }", "the rank of its input is not known"),
    (17, "(float[1,N,1] x, int64 n) => (float[A,B,C] y) { y = DFT(x, n) }", "its length is an input"),
    (17, "(float[1,5000,1] x) => (float[A,B,C] y) { y = DFT(x) }", "the length of the transform is not at most 4096"),
    (16, "(float[1,1,4,4] x, float[1,2,2,2] g) => (float[A,B,C,D] y) { y = GridSample<mode=\"bicubic\">(x, g) }",
     "its mode is bicubic, or it samples no image"),
    (16, "(float[1,1,4,4] x, float[R,4] r, int64[R] b) => (float[R,1,1,1] y) { y = RoiAlign<mode=\"max\">(x, r, b) }",
     "it takes the maximum of regions"),
    (14, "(seq(float[N]) x) => (seq(float[N]) y) { y = Identity(x) }", "it admits tensors only"),
    (13, "(bfloat16[N] x) => (bfloat16[N] y) { y = Abs(x) }", "it does not admit the element type BFLOAT16"),
    (13, "(float x) => (float y) { y = Softmax<axis=-2>(x) }", "its input is a scalar"),
    (13, "(float[A,B] x, float[A,B] s) => (uint8[A,B] y) { y = QuantizeLinear(x, s) }", "not a scalar or a vector"),
    (12, "(int64[N] x, float[N] e) => (int64[N] y) { y = Pow(x, e) }", "it raises integers to the power of a float"),
    (12, "(float[N] x, float r, bool t) => (float[N] y) { y = Dropout(x, r, t) }", "its training mode is computed"),
    (12, "(float[N] x, float r) => (float[N] y) <bool t = {1}> { y = Dropout(x, r, t) }", "its ratio is computed"),
    (12, "(float[A,B] x, int64[A,1] i) => (float[A] y) { y = GatherND<batch_dims=1>(x, i) }", "it has batch axes"),
    (11, '(float[A,B] x, int64[4] p) => (float[C,D] y) { y = Pad<mode="edge">(x, p) }', "its pads are computed"),
    (11, "(float[A,B] x, int64[N,K] i) => (float[] y) { y = GatherND(x, i) }", "the number of its indexed axes"),
    (11, "(int64 x) => (int64 y) <int64 a = {0}> { y = CumSum(x, a) }", "its input is a scalar"),
    (11, "(float[] x, int64[N] i) => (float[] y) { y = GatherElements(x, i) }", "the rank of its input is not known"),
    (11, "(int64[1,1,4,4] x, float[0] r) => (int64[1,1,8,8] y) <float[4] s = {1,1,2,2}>"
     ' { y = Resize<mode="linear">(x, r, s) }', "it interpolates integers"),
    (11, "(float[1,1,H,W] x, float[0] r) => (float[A,B,C,D] y) <float[4] s = {1,1,2,2}>"
     ' { y = Resize<mode="cubic">(x, r, s) }', "its mode is cubic with half_pixel"),
    (11, "(float[1,1,H,W] x, float[0] r, float[4] s) => (float[A,B,C,D] y)"
     ' { y = Resize<mode="linear">(x, r, s) }', "its scales are computed at run time"),
    (11, "(float[1,1,H,W] x, float[0] r) => (float[A,B,C,D] y) <float[4] s = {1,1,2,2}>"
     ' { y = Resize<nearest_mode="round_prefer_floor">(x, r, s) }', "equally near, it takes the first one"),
    (11, "(uint32[N] x, uint32[N] s) => (uint32[N] y) { y = BitShift<direction=\"LEFT\">(x, s) }", "no such operator"),
    (10, "(float[N] x, int64[K] b, int64[K] e) => (float[M] y) { y = Slice(x, b, e) }", "its axes are not known"),
    (10, "(float[N] x, int64[1] b, int64[1] t) => (float[M] y) <int64[1] a = {0}> { y = Slice(x, b, b, a, t) }",
     "its steps are computed at run time"),
    (10, "(float[N] x, int64[1] k) => (float[M] y, int64[M] i) { y, i = TopK(x, k) }", "its k is computed at run time"),
    (10, "(float[1,2,7,8] x) => (float[A,B,C,D] y) { y = MaxPool<kernel_shape=[2,2], dilations=[2,2]>(x) }",
     "it has dilations"),
    (10, "(float[1,2,7,8] x) => (float[A,B,C,D] y)"
     " { y = AveragePool<kernel_shape=[2,2], ceil_mode=1, count_include_pad=1>(x) }", "counts the padding"),
    (10, "(float[1,2,H,W] x) => (float[A,B,C,D] y) { y = MaxPool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>(x) }",
     "it has ceil_mode, and its sizes are not static"),
    (10, "(float[1,1,2,2] x) => (float[1,1,2,2] y) { y = MaxPool<kernel_shape=[1,1], strides=[3,3], ceil_mode=1>(x) }",
     "it has ceil_mode with a window that has no element"),
    (10, "(float[1,1,4] x, float[3] s) => (float[A,B,C] y) { y = Resize(x, s) }", "its scales are not constants"),
    (10, "(float[N] x) => (bool[N] y) { y = IsInf<detect_positive=0, detect_negative=0>(x) }", "detects no infinity"),
    (10, "(float[N] x) => (float[N] y) { y = Mod<fmod=1>(x, x) }", "opset 9 has no remainder of floats"),
    (10, "(uint8[2,3] a, uint8[3,4] b, uint8[2] z) => (int32[2,4] y) { y = MatMulInteger(a, b, z) }",
     "its zero point is not a scalar"),
    (9, "(uint64[N] a, uint64[N] b) => (bool[N] y) { y = Less(a, b) }", "it compares UINT64"),
    (9, "(bool[N] c, float[N] a, float[N] b) => (float[N] y) { y = Where(c, a, b) }", "chooses between floats"),
    (9, "(float[N] x) => (int64[1,M] y) { y = NonZero(x) }", "that opset has no operator that finds elements"),
    (9, "(int64[N] i, float[2] v) => (float[N,4] y) <int64 d = {4}> { y = OneHot(i, d, v) }", "are not 0 and 1"),
    (9, "(float[A,B] x) => (float[A,B] y) { y = EyeLike(x) }", "its sizes are not static"),
    (9, "(int64[A,B,C] x) => (int64[D,E] y) { y = Flatten<axis=2>(x) }", "its sizes are not static"),
    (9, "(float[1,1,4] x, float[3] s) => (float[A,B,C] y) { y = Upsample(x, s) }", "its scales are computed"),
    (9, "(float s, float[A,2] x) => (float t, float[A,2] y)"
     " { t, y = Scan<num_scan_inputs=1, scan_input_axes=[1], body ="
     " b (float c, float[A] r) => (float d, float[A] q) { d = Identity(c) q = Identity(r) }>(s, x) }",
     "it has scan_input_axes"),
    (8, "(float[A] x, int64[1] s) => (float[B] y) { y = Expand(x, s) }", "it is not known which axes it expands"),
    (8, "(float[A] x, float[B] z) => (float[C] y) { y = Max(x, z) }", "it is not known which axes it expands"),
    (8, "(float[1,1,4,4] x) => (float[1,1,2,2] y, int64[1,1,2,2] i)"
     " { y, i = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) }", "its indices are read"),
]  # fmt: skip
STEPS = {each.opset + 1: each for each in LADDER}
FOLDER = Path(ladder.__file__).parent


def refusal(opset, text):
    """Returns the error of the step from an opset down for a model whose nodes have torch's metadata."""
    program = model(f"g {text}", opset=opset)
    for node in ir.traversal.RecursiveGraphIterator(program.graph):
        node.metadata_props[metadata.NAMESPACE] = "a: module/b: aten.some.overload"
        node.metadata_props[metadata.STACK_TRACE] = 'File "model.py", line 12, in forward\n    y = f(x)'
    with pytest.raises(OnnxExporterError) as caught:
        STEPS[opset](program)
    return caught.value


def reasons():
    """Yields the longest text of each reason that a row of a step returns, or that a helper raises."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.py")]
    raised = [each for tree in trees for each in ast.walk(tree) if isinstance(each, ast.Raise)]
    yield from map(longest_text, (each for each in raised if "DeclinedError" in ast.unparse(each)))
    for row in ROWS:
        for each in ast.walk(ast.parse(inspect.getsource(row.function))) if row.is_of_opset else ():
            if isinstance(each, ast.Return) and isinstance(each.value, ast.Constant | ast.JoinedStr | ast.IfExp):
                yield longest_text(each)


def longest_text(node):
    """Returns the longest text with a space in an expression, which is no name of an operator."""
    constants = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
    return max((each for each in constants if isinstance(each, str) and " " in each), key=len, default="")


@pytest.mark.parametrize(("opset", "text", "reason"), REFUSED)
def test_the_sentence(opset, text, reason):
    message = refusal(opset, text).message
    assert re.fullmatch(
        rf"ONNX opset {opset - 1} cannot express \w+ of aten\.some\.overload at model\.py:12, because (.+); "
        rf"export with opset_version={opset} or above\.",
        message,
    )
    assert reason in message


def test_each_reason_has_a_case():
    messages = [refusal(opset, text).message for opset, text, _ in REFUSED]
    assert [reason for reason in reasons() if not any(reason in message for message in messages)] == []
