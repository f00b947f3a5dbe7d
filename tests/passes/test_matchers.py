"""The matchers: which values are constants, which producers may be absorbed, and paths of producers."""

import numpy as np
import onnx_ir as ir
import torch

from fx_onnx.passes.matchers import (
    MAX_CONSTANT_BYTES,
    attribute,
    chain,
    constant_array,
    constant_integers,
    constant_number,
    dims,
    initializer_tensor,
    is_absorbable,
    producer_of,
    same_shape,
    single_use,
    single_use_producer,
)
from tests.passes.checking import model


def test_constants_are_read_and_weights_are_not() -> None:
    """A constant of the exporter has elements; a weight has only a tensor; a graph input has neither."""
    program = model("""g (float[N,3] x) => (float[N,3] u) <int64[2] c = {1,2}, float[1,1] h = {0.5}> {
      u = Add(x, w)
    }""", {"w": torch.randn(3)})  # fmt: skip
    x = program.graph.inputs[0]
    w, c, h = (program.graph.initializers[name] for name in ("w", "c", "h"))
    assert constant_integers(c) == [1, 2] and constant_integers(h) is None and constant_integers(None) is None
    assert constant_number(h) == 0.5 and constant_number(c) is None
    assert constant_array(w) is None and initializer_tensor(w) is w.const_value
    assert initializer_tensor(x) is None and constant_array(x) is None


def test_an_initializer_that_a_caller_can_override_is_no_constant() -> None:
    """It is a graph input too, so its value is only a default."""
    program = model("g (float[2] x) => (float[2] y) <float[2] c = {1.0,2.0}> { y = Add(x, c) }")
    c = program.graph.initializers["c"]
    program.graph.inputs.append(c)
    assert initializer_tensor(c) is None and constant_array(c) is None


def test_large_constants_are_not_read() -> None:
    """The limit is MAX_CONSTANT_BYTES."""
    for count, is_read in ((MAX_CONSTANT_BYTES // 8, True), (MAX_CONSTANT_BYTES // 8 + 1, False)):
        tensor = ir.Tensor(np.zeros(count))
        value = ir.Value(name="c", const_value=tensor)
        ir.Graph([], [], nodes=[], initializers=[value])
        assert (constant_array(value) is not None) is is_read


def test_dims_compare_by_name() -> None:
    """A symbolic dim equals itself; an unknown dim makes the whole shape unknown."""
    program = model("g (float[N,3] x, float[N,3] y, float[3] z) => (float[N,3] u) { u = Add(x, y) }")
    x, y, z = program.graph.inputs
    assert dims(x) == ("N", 3) and same_shape(x, y) and not same_shape(x, z)
    x.shape = ir.Shape([None, 3])
    assert dims(x) is None and not same_shape(x, y) and not same_shape(x, x)


def test_single_use() -> None:
    """One input of one node reads the value, and no graph returns it."""
    program = model("""g (float[N] x) => (float[N] y, float[N] z) {
      a = Relu(x)\n b = Relu(x)\n y = Add(b, b)\n z = Neg(a)
    }""")
    a, b, y, _ = program.graph
    assert single_use(a.outputs[0]) and is_absorbable(a.outputs[0])
    assert not single_use(b.outputs[0]) and not single_use(y.outputs[0])


def test_a_consumer_in_a_loop_absorbs_nothing_from_outside() -> None:
    """The absorbed node would run at every iteration."""
    program = model("""g (float[N] x, bool c) => (float[N] y) {
      r = Relu(x)
      y = If(c)<then_branch = a () => (float[N] u) { u = Neg(r) }, else_branch = b () => (float[N] v) { v = Abs(x) }>
    }""")
    relu = program.graph[0].outputs[0]
    assert single_use(relu) and not is_absorbable(relu)
    assert producer_of(relu, "Relu") is program.graph[0] and single_use_producer(relu, "Relu") is None


def test_producer_of_ignores_other_domains() -> None:
    """A custom operator may share its name with an ONNX operator."""
    program = model("""g (float[N] x) => (float[N] y) { a = local.Relu(x)\n y = Neg(a) }
    <domain: "local", opset_import: ["" : 20]>
    Relu (x) => (y) { y = Abs(x) }""")
    assert producer_of(program.graph[0].outputs[0], "Relu") is None
    assert producer_of(program.graph[1].outputs[0], "Abs", "Neg") is program.graph[1]
    assert producer_of(None, "Relu") is None


def test_chain() -> None:
    """The path follows first inputs from the consumer to the producers; a tuple allows several operators."""
    program = model("""g (float[2,3] x) => (float[6,2] y, float[2,1,3] z)
    <int64[1] i = {1}, int64[3] s = {2,2,3}, int64[2] t = {6,2}> {
      z = Unsqueeze(x, i)\n e = Expand(z, s)\n y = Reshape(e, t)
    }""")
    unsqueeze, expand, reshape = program.graph
    y = program.graph.outputs[0]
    assert chain(y, "Reshape", "Expand", "Unsqueeze") == (reshape, expand, unsqueeze)
    assert chain(y, "Reshape", "Expand", ("Reshape", "Unsqueeze")) == (reshape, expand, unsqueeze)
    assert chain(y, "Reshape", "Unsqueeze") is None
    assert chain(y, "Reshape", "Expand", "Unsqueeze", "Relu") is None
    assert chain(None, "Reshape") is None


def test_attributes() -> None:
    """An attribute has a default."""
    program = model("g (float[N] x, float[N] z) => (float[N] y) { a = LeakyRelu<alpha=0.5>(x)\n y = Add(a, z) }")
    leaky, add = program.graph
    assert attribute(leaky, "alpha", 0.01) == 0.5 and attribute(add, "alpha", 0.01) == 0.01
