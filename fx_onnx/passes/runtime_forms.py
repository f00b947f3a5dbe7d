"""What ONNX Runtime's CPU provider does not compute in 64 bits, said by operators that it does.

No wider dtype holds 64 bits, so a Cast cannot help (``runtime_types``), and one to 32 bits would give other numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.cpu_kernels import kernels, since_version
from fx_onnx.passes.rewrite import Editor, Rewrite, attribute, dims

__all__ = ["FORMS", "RuntimeForms"]

_INT64 = DataType.INT64
_BOOLEAN = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"})
# erf(x) / x by powers of x² / 2 - 1 where |x| < 2, and x exp(x²) erfc(x) by powers of 9 / x² - 1.25 beyond: fitted at
# Chebyshev's points of [0, 4] and of [1/36, 1/4] for 1/x², which leaves errors of 1e-15 and 1e-14.
_ERF = (
    0.6749332360396554, -0.261111860931244, 0.11947913860983116, -0.0486627774491756, 0.01712834457228541,
    -0.005234875836174289, 0.0014050914198729823, -0.00033514353212698336, 7.180102302822527e-05,
    -1.3946281052537593e-05, 2.4757716191350494e-06, -4.0449301578496896e-07, 6.123102620206284e-08,
    -8.636538753076724e-09, 1.113071029648799e-09, -1.2932464864993056e-10, 2.210534362086327e-11,
    -4.365574568510057e-12,
)  # fmt: skip
_ERFC = (
    0.5312118330102713, -0.0225328901081682, 0.002433720338097294, -0.0003826826216971859, 7.5062246279065e-05,
    -1.7114527246403742e-05, 4.360432010113302e-06, -1.211172521357145e-06, 3.6065965156265795e-07,
    -1.1338019486658567e-07, 3.743904107714455e-08, -1.3614986837278748e-08, 4.9999334635356944e-09,
    -1.1113649011855383e-09, 3.454719882940157e-10, -5.549281268235983e-10, 2.4136414317961483e-10,
)  # fmt: skip


class RuntimeForms(Rewrite):
    """Elu, Erf, Atan, Conv, AveragePool, ... of float64 → operators that have kernels for float64; Relu of int64 → Max.

    Accurate to float64 (a few units in the last place), at the cost of more nodes; float32 is not touched.
    """

    name = "runtime_forms"
    op_types = ()

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Says one node otherwise."""
        x = node.inputs[0]
        if x is None or not isinstance(x.type, ir.TensorType) or x.dtype not in (DataType.DOUBLE, DataType.INT64):
            return False
        version = since_version(node.op_type, editor.model.graph.opset_imports.get("", 0))
        if version is None or any(x.dtype in next(iter(k.admitted.values())) for k in kernels(node.op_type, version)):
            return False
        if x.dtype is DataType.INT64 and node.op_type != "Relu":
            return False
        result = FORMS[node.op_type](_Writer(node, editor, x), x)
        if result is None:
            return False
        _replace(node, result)
        return True


class _Writer:
    """Writes nodes before the one that they stand for: ``f.Add(a, 1.0)``; numbers take the dtype of its first input."""

    def __init__(self, node: ir.Node, editor: Editor, x: Value) -> None:
        self.node, self.editor, self.dtype = node, editor, x.dtype or DataType.DOUBLE
        self._count = 0

    def __getattr__(self, op_type: str) -> Callable[..., Value]:
        if not op_type[0].isupper():
            raise AttributeError(op_type)

        def write(*inputs: Any, dtype: DataType | None = None, **attributes: Any) -> Value:
            values = [each if isinstance(each, Value) else self._constant(each) for each in inputs]
            node = ir.node(op_type, values, attributes, metadata_props=dict(self.node.metadata_props))
            node.outputs[0].name = node.name = self.editor.unique(f"{self.node.name}.{op_type}_{self._count}")
            self._count += 1
            found = DataType.BOOL if op_type in _BOOLEAN else dtype or self.dtype
            node.outputs[0].type = ir.TensorType(found)
            self.editor.insert(node, self.node)
            return node.outputs[0]

        return write

    def _constant(self, number: Any) -> Value:
        """A number in the dtype of the tensor, a list of integers or an array as they are."""
        if isinstance(number, (int, float)):
            number = np.array(number, dtype=self.dtype.numpy())
        return self.editor.constant(number, self.node)

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute of the node."""
        return attribute(self.node, name, default)

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Horner's scheme, the constant term first."""
        result: Value = self.Add(self.Mul(x, coefficients[-1]), coefficients[-2])
        for each in coefficients[-3::-1]:
            result = self.Add(self.Mul(result, x), each)
        return result

    def log1p(self, x: Value) -> Value:
        """log(1 + x), accurate near zero too: what 1 + x rounds away is made good by the slope."""
        u = self.Add(x, 1.0)
        log = self.Log(u)
        slope = self.Div(x, self.Sub(u, 1.0))
        small = self.Where(self.Equal(u, 1.0), x, self.Mul(log, slope))
        return self.Where(self.Less(x, 1.0), small, log)

    def odd(self, x: Value, of_positive: Value) -> Value:
        """-f(-x) where x is negative."""
        return self.Where(self.Less(x, 0.0), self.Neg(of_positive), of_positive)


def _replace(node: ir.Node, result: Value) -> None:
    """Gives the result the node's name and users, and removes the node."""
    output, producer = node.outputs[0], result.producer()
    name, output.name, result.shape = output.name, None, output.shape
    result.name = name
    if producer is not None:
        producer.name = name
    result.metadata_props.update(output.metadata_props)
    result.meta.update(output.meta)
    output.replace_all_uses_with(result, replace_graph_outputs=True)
    if node.graph is not None:
        node.graph.remove(node, safe=True)


# ---------------------------------------------------------------- activations


def _relu(f: _Writer, x: Value) -> Value:
    """max(x, 0)."""
    return f.Max(x, 0)


def _leaky_relu(f: _Writer, x: Value) -> Value:
    """x, or alpha x below zero."""
    return f.Where(f.Less(x, 0.0), f.Mul(x, float(f.attribute("alpha", 0.01))), x)


def _prelu(f: _Writer, x: Value) -> Value:
    """x, or slope x below zero."""
    return f.Where(f.Less(x, 0.0), f.Mul(x, f.node.inputs[1]), x)


def _expm1(f: _Writer, x: Value) -> Value:
    """exp(x) - 1 = 2 t / (1 - t), t = tanh(x / 2), for x below zero, where it does not cancel."""
    t = f.Tanh(f.Mul(x, 0.5))
    return f.Div(f.Mul(t, 2.0), f.Sub(1.0, t))


def _elu(f: _Writer, x: Value) -> Value:
    """x, or alpha (exp(x) - 1) below zero."""
    below = f.Mul(_expm1(f, f.Min(x, 0.0)), float(f.attribute("alpha", 1.0)))
    return f.Where(f.Less(x, 0.0), below, x)


def _celu(f: _Writer, x: Value) -> Value:
    """x, or alpha (exp(x / alpha) - 1) below zero."""
    alpha = float(f.attribute("alpha", 1.0))
    return f.Where(f.Less(x, 0.0), f.Mul(_expm1(f, f.Min(f.Div(x, alpha), 0.0)), alpha), x)


def _selu(f: _Writer, x: Value) -> Value:
    """gamma times x, or gamma alpha (exp(x) - 1) below zero; the constants to float64, which attributes are not."""
    alpha = 1.6732632423543772848170429916717
    gamma = 1.0507009873554804934193349852946
    return f.Mul(f.Where(f.Less(x, 0.0), f.Mul(_expm1(f, f.Min(x, 0.0)), alpha), x), gamma)


def _softplus(f: _Writer, x: Value) -> Value:
    """max(x, 0) + log(1 + exp(-|x|))."""
    return f.Add(f.Max(x, 0.0), f.log1p(f.Exp(f.Neg(f.Abs(x)))))


def _softsign(f: _Writer, x: Value) -> Value:
    """x / (1 + |x|)."""
    return f.Div(x, f.Add(f.Abs(x), 1.0))


def _hard_sigmoid(f: _Writer, x: Value) -> Value:
    """alpha x + beta, between 0 and 1; an alpha of float32's 1/6 is meant to be 1/6."""
    alpha, beta = (_meant(f.attribute(name, default)) for name, default in (("alpha", 0.2), ("beta", 0.5)))
    return f.Max(f.Min(f.Add(f.Mul(x, alpha), beta), 1.0), 0.0)


def _hard_swish(f: _Writer, x: Value) -> Value:
    """x times x / 6 + 1 / 2, between 0 and 1."""
    return f.Mul(x, f.Max(f.Min(f.Add(f.Div(x, 6.0), 0.5), 1.0), 0.0))


def _meant(number: float) -> float:
    """The simple fraction or decimal that float32 rounded to ``number``."""
    sixths = round(number * 6) / 6
    return sixths if np.float32(sixths) == np.float32(number) else float(str(np.float32(number)))


def _thresholded_relu(f: _Writer, x: Value) -> Value:
    """x above alpha, or 0."""
    return f.Where(f.Greater(x, float(f.attribute("alpha", 1.0))), x, 0.0)


def _gelu(f: _Writer, x: Value) -> Value:
    """x times the normal distribution, by erf or by tanh."""
    if f.attribute("approximate", "none") in ("tanh", b"tanh"):
        cubic = f.Add(x, f.Mul(f.Mul(f.Mul(x, x), x), 0.044715))
        half = f.Tanh(f.Mul(cubic, math.sqrt(2 / math.pi)))
    else:
        half = f.Erf(f.Mul(x, math.sqrt(0.5)))
    return f.Mul(f.Mul(x, 0.5), f.Add(half, 1.0))


def _mish(f: _Writer, x: Value) -> Value:
    """x tanh(softplus(x))."""
    return f.Mul(x, f.Tanh(_softplus(f, x)))


# ---------------------------------------------------------------- functions


def _erf(f: _Writer, x: Value) -> Value:
    """Two polynomials, in x² and in 1 / x²; 1 from 6 on."""
    a = f.Min(f.Abs(x), 6.0)
    low = f.Min(a, 2.0)
    inner = f.Mul(low, f.polynomial(f.Sub(f.Mul(f.Mul(low, low), 0.5), 1.0), _ERF))
    high = f.Max(a, 2.0)
    square = f.Mul(high, high)
    tail = f.Mul(f.polynomial(f.Sub(f.Div(9.0, square), 1.25), _ERFC), f.Div(f.Exp(f.Neg(square)), high))
    return f.odd(x, f.Where(f.Less(a, 2.0), inner, f.Sub(1.0, tail)))


def _tan(f: _Writer, x: Value) -> Value:
    """sin / cos."""
    return f.Div(f.Sin(x), f.Cos(x))


def _sinh(f: _Writer, x: Value) -> Value:
    """(exp(x) - exp(-x)) / 2, and 2 t / (1 - t²), t = tanh(x / 2), near zero."""
    half = f.Mul(f.Exp(f.Mul(f.Abs(x), 0.5)), math.sqrt(0.5))
    large = f.Sub(f.Mul(half, half), f.Div(f.Exp(f.Neg(f.Abs(x))), 2.0))
    t = f.Tanh(f.Mul(x, 0.5))
    small = f.Div(f.Mul(t, 2.0), f.Sub(1.0, f.Mul(t, t)))
    return f.Where(f.Less(f.Abs(x), 1.0), small, f.odd(x, large))


def _cosh(f: _Writer, x: Value) -> Value:
    """(exp(x) + exp(-x)) / 2."""
    half = f.Mul(f.Exp(f.Mul(f.Abs(x), 0.5)), math.sqrt(0.5))
    return f.Add(f.Mul(half, half), f.Div(f.Exp(f.Neg(f.Abs(x))), 2.0))


def _asinh(f: _Writer, x: Value) -> Value:
    """log(|x| + sqrt(x² + 1)) with the sign of x, by log1p; log(2 |x|) where the square would overflow."""
    a = f.Abs(x)
    b = f.Min(a, 1e9)
    square = f.Mul(b, b)
    near = f.log1p(f.Add(b, f.Div(square, f.Add(f.Sqrt(f.Add(square, 1.0)), 1.0))))
    return f.odd(x, f.Where(f.Greater(a, 1e9), f.Add(f.Log(a), math.log(2)), near))


def _acosh(f: _Writer, x: Value) -> Value:
    """log(x + sqrt(x² - 1)) by log1p; log(2 x) where the square would overflow."""
    t = f.Sub(f.Min(x, 1e9), 1.0)
    near = f.log1p(f.Add(t, f.Sqrt(f.Mul(t, f.Add(t, 2.0)))))
    return f.Where(f.Greater(x, 1e9), f.Add(f.Log(x), math.log(2)), near)


def _atanh(f: _Writer, x: Value) -> Value:
    """log(1 + 2 x / (1 - x)) / 2."""
    a = f.Abs(x)
    return f.odd(x, f.Mul(f.log1p(f.Div(f.Mul(a, 2.0), f.Sub(1.0, a))), 0.5))


def _atan(f: _Writer, x: Value) -> Value:
    """The reciprocal above 1, the angle halved twice, then the series up to the 25th power."""
    a = f.Abs(x)
    steep = f.Greater(a, 1.0)
    z = f.Where(steep, f.Div(1.0, a), a)
    for _ in range(2):
        z = f.Div(z, f.Add(f.Sqrt(f.Add(f.Mul(z, z), 1.0)), 1.0))
    series = f.polynomial(f.Mul(z, z), [(-1) ** n / (2 * n + 1) for n in range(13)])
    angle = f.Mul(f.Mul(z, 4.0), series)
    return f.odd(x, f.Where(steep, f.Sub(math.pi / 2, angle), angle))


def _asin(f: _Writer, x: Value) -> Value:
    """atan(x / sqrt(1 - x²))."""
    return f.Atan(f.Div(x, f.Sqrt(f.Mul(f.Sub(1.0, x), f.Add(x, 1.0)))))


def _acos(f: _Writer, x: Value) -> Value:
    """2 atan(sqrt((1 - x) / (1 + x)))."""
    return f.Mul(f.Atan(f.Sqrt(f.Div(f.Sub(1.0, x), f.Add(x, 1.0)))), 2.0)


# ---------------------------------------------------------------- windows


def _global_average_pool(f: _Writer, x: Value) -> Value | None:
    """The mean over all spatial axes."""
    return None if x.shape is None else f.ReduceMean(x, list(range(2, len(x.shape))), keepdims=1)


def _global_max_pool(f: _Writer, x: Value) -> Value | None:
    """The maximum over all spatial axes."""
    return None if x.shape is None else f.ReduceMax(x, list(range(2, len(x.shape))), keepdims=1)


def _windows(
    f: _Writer, x: Value, kernel: Sequence[int], pads: Sequence[int], strides: Sequence[int] | None = None
) -> Value:
    """x with each spatial axis as two: the place of the window, and the place in it."""
    count = len(kernel)
    strides = strides or f.attribute("strides", [1] * count)
    steps = f.attribute("dilations", [1] * count)
    if any(pads):
        x = f.Pad(x, list(pads), 0.0, list(range(2, count + 2)))
    for place in reversed(range(count)):
        axis, size = place + 2, kernel[place]
        span = (size - 1) * steps[place] + 1
        length = f.Shape(x, start=axis, end=axis + 1, dtype=_INT64)
        last = f.Squeeze(f.Sub(length, [span - 1], dtype=_INT64), [0], dtype=_INT64)
        starts = f.Range(np.array(0), last, np.array(strides[place]), dtype=_INT64)
        inside = np.arange(size, dtype=np.int64).reshape(1, size) * steps[place]
        x = f.Gather(x, f.Add(f.Unsqueeze(starts, [1], dtype=_INT64), inside, dtype=_INT64), axis=axis)
    return x


def _contracted(f: _Writer, windows: Value, weight: Value, sizes: Sequence[int], order: str, count: int) -> Value:
    """The windows times the weights, group by group, summed by one Einsum; and the bias.

    Args:
        f: writes.
        windows: batch, channels, then for each spatial axis the place of the window and the place in it.
        weight: of the shape (group, ...).
        sizes: channels of a group that come in, channels of all groups that go out.
        order: the letters of the weight's axes after the group: c in, m out.
        count: of spatial axes.
    """
    group = f.attribute("group", 1)
    places, inside = "uvw"[:count], "xyz"[:count]
    pairs = "".join(f"{a}{b}" for a, b in zip(places, inside, strict=True))
    batch = f.Shape(windows, start=0, end=1, dtype=_INT64)
    grouped = f.Concat(batch, [group, sizes[0]], f.Shape(windows, start=2, dtype=_INT64), axis=0, dtype=_INT64)
    equation = f"ngc{pairs},g{order}{inside}->ngm{places}"
    result = f.Einsum(f.Reshape(windows, grouped), weight, equation=equation)
    spatial = f.Shape(result, start=3, dtype=_INT64)
    result = f.Reshape(result, f.Concat(batch, [sizes[1]], spatial, axis=0, dtype=_INT64))
    if len(f.node.inputs) > 2 and f.node.inputs[2] is not None:
        result = f.Add(result, f.Reshape(f.node.inputs[2], [1, sizes[1], *[1] * count]))
    return result


def _weight_sizes(f: _Writer) -> list[int] | None:
    """The sizes of a convolution's weight; None where one is not known, or the padding is not given by numbers."""
    sizes = [size for size in dims(f.node.inputs[1]) or () if isinstance(size, int)]
    known = f.node.inputs[1] is not None and len(sizes) == len(dims(f.node.inputs[1]) or ()) > 2
    return sizes if known and not _pads_itself(f) else None


def _pads_itself(f: _Writer) -> bool:
    return f.attribute("auto_pad", "NOTSET") not in ("NOTSET", b"NOTSET")


def _conv(f: _Writer, x: Value) -> Value | None:
    """The windows of x times the weights, summed."""
    sizes = _weight_sizes(f)
    if sizes is None:
        return None
    out, each, *kernel = sizes
    group = f.attribute("group", 1)
    windows = _windows(f, x, kernel, f.attribute("pads", [0] * 2 * len(kernel)))
    weight = f.Reshape(f.node.inputs[1], [group, out // group, each, *kernel])
    return _contracted(f, windows, weight, [each, out], "mc", len(kernel))


def _conv_transpose(f: _Writer, x: Value) -> Value | None:
    """The convolution, by the mirrored weights, of x with zeros between its elements."""
    sizes = _weight_sizes(f)
    if sizes is None or "output_shape" in f.node.attributes:
        return None
    into, each, *kernel = sizes
    group, count = f.attribute("group", 1), len(kernel)
    strides, pads = f.attribute("strides", [1] * count), f.attribute("pads", [0] * 2 * count)
    steps, more = f.attribute("dilations", [1] * count), f.attribute("output_padding", [0] * count)
    for place, stride in enumerate(strides):
        if stride > 1:
            x = _spread(f, x, place + 2, stride)
    reach = [(size - 1) * step for size, step in zip(kernel, steps, strict=True)]
    begins = [reach[i] - pads[i] for i in range(count)]
    ends = [reach[i] - pads[count + i] + more[i] - (strides[i] - 1) for i in range(count)]
    weight = f.Reshape(f.node.inputs[1], [group, into // group, each, *kernel])
    mirror = list(range(3, 3 + count))
    weight = f.Slice(weight, [-1] * count, [-(2**62)] * count, mirror, [-1] * count)
    windows = _windows(f, x, kernel, [*begins, *ends], [1] * count)
    return _contracted(f, windows, weight, [into // group, each * group], "cm", count)


def _spread(f: _Writer, x: Value, axis: int, stride: int) -> Value:
    """x with stride - 1 zeros after each element along an axis."""
    apart = f.Pad(f.Unsqueeze(x, [axis + 1]), [0, stride - 1], 0.0, [axis + 1])
    before, after = f.Shape(x, end=axis, dtype=_INT64), f.Shape(x, start=axis + 1, dtype=_INT64)
    return f.Reshape(apart, f.Concat(before, [-1], after, axis=0, dtype=_INT64))


def _average_pool(f: _Writer, x: Value) -> Value | None:
    """The sum over each window by what counts in it: all of it, or what is not padding."""
    kernel = f.attribute("kernel_shape")
    pads = f.attribute("pads", [0] * 2 * len(kernel))
    if f.attribute("ceil_mode", 0) or _pads_itself(f):
        return None
    inside = list(range(3, 2 * len(kernel) + 2, 2))
    total = f.ReduceSum(_windows(f, x, kernel, pads), inside, keepdims=0)
    if f.attribute("count_include_pad", 0) or not any(pads):
        return f.Div(total, float(math.prod(kernel)))
    sizes = f.Concat([1, 1], f.Shape(x, start=2, dtype=_INT64), axis=0, dtype=_INT64)
    ones = f.Expand(1.0, sizes)
    return f.Div(total, f.ReduceSum(_windows(f, ones, kernel, pads), inside, keepdims=0))


Form = Callable[[_Writer, Value], Value | None]

FORMS: dict[str, Form] = {
    "Relu": _relu,
    "LeakyRelu": _leaky_relu,
    "PRelu": _prelu,
    "Elu": _elu,
    "Celu": _celu,
    "Selu": _selu,
    "Softplus": _softplus,
    "Softsign": _softsign,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "ThresholdedRelu": _thresholded_relu,
    "Gelu": _gelu,
    "Mish": _mish,
    "Erf": _erf,
    "Tan": _tan,
    "Sinh": _sinh,
    "Cosh": _cosh,
    "Asinh": _asinh,
    "Acosh": _acosh,
    "Atanh": _atanh,
    "Atan": _atan,
    "Asin": _asin,
    "Acos": _acos,
    "GlobalAveragePool": _global_average_pool,
    "GlobalMaxPool": _global_max_pool,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "AveragePool": _average_pool,
}
"""op_type → how a node of it is said otherwise; None where that cannot be."""

RuntimeForms.op_types = tuple(FORMS)
