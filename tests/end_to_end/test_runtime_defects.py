"""Models that ONNX Runtime computes wrongly, each because of one wrong fusion or kernel.

Exports avoid most of these models, and docs/differences.md describes the others. If a new version of ONNX Runtime
computes a model right, its test fails. The rule or the description in the file ``avoided_by`` can then be removed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

TESTED = "1.31.1"
ROOT = Path(__file__).parents[2]
Arrays = dict[str, Any]


@dataclass(frozen=True)
class Defect:
    """A model that ONNX Runtime's CPU provider computes wrongly.

    Attributes:
        signature: the inputs and outputs in ONNX's text format.
        nodes: the nodes.
        feeds: the inputs.
        wanted: the result that the ONNX specification asks for, as a function of the inputs.
        avoided_by: the file whose rule avoids the model, or docs/differences.md if exports do not avoid it.
        opset: the opset of the model.
    """

    signature: str
    nodes: str
    feeds: Arrays
    wanted: Callable[..., Any]
    avoided_by: str
    opset: int = 20


X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
IMAGE = -np.abs(np.random.default_rng(0).standard_normal((1, 1, 4, 4))).astype(np.float32) - 1
IMAGES = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
SIGNAL = np.random.default_rng(0).standard_normal((1, 1000, 1)).astype(np.float32)

DEFECTS = {
    "a Gather by a descending Range becomes an empty Slice": Defect(
        "(float[N,4] x) => (float[M,4] y)",
        """n = Shape<start=0, end=1>(x)
           size = Squeeze(n)
           one = Constant<value_int=1>()
           last = Sub(size, one)
           minus = Constant<value_int=-1>()
           r = Range(last, minus, minus)
           y = Gather<axis=0>(x, r)""",
        {"x": X},
        lambda x: x[::-1],
        "fx_onnx/passes/legalization/ranges_and_slices.py",
    ),
    "a transposed matrix times a vector multiplies the wrong elements": Defect(
        "(float[N,4] x, float[N] v) => (float[4] y)",
        """t = Transpose<perm=[1,0]>(x)
           y = MatMul(t, v)""",
        {"x": X, "v": X[:, 0]},
        lambda x, v: x.T @ v,
        "fx_onnx/passes/legalization/products.py",
    ),
    "a Pad of zeros becomes the padding of MaxPool, which is -inf": Defect(
        "(float[1,1,4,4] x) => (float[1,1,A,B] y)",
        """p = Constant<value_ints=[0,0,1,1,0,0,1,1]>()
           q = Pad(x, p)
           y = MaxPool<kernel_shape=[6,6]>(q)""",
        {"x": IMAGE},
        lambda x: np.zeros((1, 1, 1, 1), np.float32),
        "fx_onnx/passes/legalization/axes_and_shapes.py",
    ),
    "an inner Dropout in training mode is removed": Defect(
        "(float[N] x) => (bool y)",
        """p = Constant<value_float=0.5>()
           t = Constant<value=bool {1}>()
           m = Mul(x, x)
           d = Dropout(m, p, t)
           e = Sub(d, m)
           s = ReduceL1<keepdims=0>(e)
           z = Constant<value_float=0.0>()
           y = Greater(s, z)""",
        {"x": np.ones(100, np.float32)},
        lambda x: np.array(True),
        "fx_onnx/translations/_random_draws.py",
    ),
    "BatchNormalization in training mode writes its statistics over constants": Defect(
        "(float[2,3,4,5] x) => (float[2,3,4,5] y)",
        """one = Constant<value_floats=[1.0,1.0,1.0]>()
           zero = Constant<value_floats=[0.0,0.0,0.0]>()
           y, mean, var = BatchNormalization<training_mode=1>(x, one, zero, zero, one)""",
        {"x": IMAGES},
        lambda x: (x - x.mean((0, 2, 3), keepdims=True)) / np.sqrt(x.var((0, 2, 3), keepdims=True) + 1e-5),
        "fx_onnx/translations/training_forms.py",
    ),
    "Swish has no kernel and is not inlined from opset 25 on": Defect(
        "(float[N] x) => (float[N] y)",
        "y = Swish(x)",
        {"x": X[0]},
        lambda x: x / (1 + np.exp(-x)),
        "fx_onnx/passes/legalization/special_functions.py",
        opset=25,
    ),
    "ReduceSum keeps a negative axis of an empty tensor": Defect(
        "(float[N,M] x) => (float[A] y)",
        """a = Constant<value_ints=[-1]>()
           y = ReduceSum<keepdims=0>(x, a)""",
        {"x": X[:0]},
        lambda x: x.sum(-1),
        "fx_onnx/translations/reduction.py",
    ),
    "Gemm ignores beta where the inner size is 0": Defect(
        "(float[N,K] x, float[K,M] w, float[M] c) => (float[A,B] y)",
        "y = Gemm<beta=2.0>(x, w, c)",
        {"x": X[:, :0], "w": X[:0], "c": X[0]},
        lambda x, w, c: x @ w + 2 * c,
        "fx_onnx/translations/linalg.py",
    ),
    "DFT of a length that is no power of two loses three digits": Defect(
        "(float[1,1000,1] x) => (float[1,1000,2] y)",
        """n = Constant<value=int64 {1000}>()
           a = Constant<value=int64 {1}>()
           y = DFT(x, n, a)""",
        {"x": SIGNAL},
        lambda x: np.stack([(f := np.fft.fft(x[..., 0])).real, f.imag], -1).astype(np.float32),
        "fx_onnx/translations/fft.py",
    ),
    "the remainder of an empty tensor by zero is an error": Defect(
        "(int64[N] x, int64 d) => (int64[N] y)",
        "y = Mod(x, d)",
        {"x": np.zeros(0, np.int64), "d": np.array(0)},
        lambda x, d: x,
        "docs/differences.md",
    ),
    "ReduceMax ignores NaN": Defect(
        "(float[N,M] x) => (float[A] y)",
        """a = Constant<value_ints=[0]>()
           y = ReduceMax<keepdims=0>(x, a)""",
        {"x": np.array([[1, 2], [np.nan, 3]], np.float32)},
        lambda x: x.max(0),
        "docs/differences.md",
    ),
    "Max of int64 compares the lower halves as signed numbers": Defect(
        "(int64[N] x, int64[N] z) => (int64[N] y)",
        "y = Max(x, z)",
        {"x": np.full(8, 2**31), "z": np.zeros(8, np.int64)},
        lambda x, z: np.maximum(x, z),
        "fx_onnx/passes/legalization/integers.py",
    ),
    "Sign of int64 compares the lower halves as signed numbers": Defect(
        "(int64[N] x) => (int64[N] y)",
        "y = Sign(x)",
        {"x": np.full(8, 2**31)},
        lambda x: np.sign(x),
        "fx_onnx/passes/legalization/integers.py",
    ),
    "ReduceSum of int64 is computed in float64": Defect(
        "(int64[N] x) => (int64 y)",
        """a = Constant<value_ints=[0]>()
           y = ReduceSum<keepdims=0>(x, a)""",
        {"x": np.array([2**53, 1, 1, 1], np.int64)},
        lambda x: x.sum(),
        "docs/differences.md",
    ),
}


def _is_right(defect: Defect) -> bool:
    header = f'<ir_version: 10, opset_import: ["" : {defect.opset}]>'
    model = onnx.parser.parse_model(f"{header} g {defect.signature} {{ {defect.nodes} }}")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # of onnxruntime's own classes, which have no public names
        return False
    try:
        (got,) = session.run(None, defect.feeds)
    except Exception:
        return False
    wanted = defect.wanted(**defect.feeds)
    if got.shape != wanted.shape:
        return False
    if got.dtype.kind != "f":
        return bool(np.all(got == wanted))
    return np.allclose(got, wanted, rtol=1e-6, atol=1e-4, equal_nan=True)


@pytest.mark.skipif(onnxruntime.__version__ != TESTED, reason=f"the list holds for ONNX Runtime {TESTED}")
@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS)
def test_the_runtime_still_has_the_defect(defect: Defect) -> None:
    assert not _is_right(defect), f"ONNX Runtime is right: remove what {defect.avoided_by} does about it"


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS)
def test_the_file_that_avoids_it_exists(defect: Defect) -> None:
    assert (ROOT / defect.avoided_by).exists()


def test_a_right_model_has_no_defect() -> None:
    assert _is_right(Defect("(float[N,4] x) => (float[N,4] y)", "y = Neg(x)", {"x": X}, lambda x: -x, ""))
