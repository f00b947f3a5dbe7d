"""Tests of binding arguments to graph inputs, of every dtype in ONNX Runtime, and of the structure of outputs."""

import onnx
import onnx_ir as ir
import pytest
import torch
from torch.export import Dim, export

from fx_onnx.core.errors import ArgumentError
from fx_onnx.core.weights import weight
from fx_onnx.program.onnx_program import ONNXProgram
from fx_onnx.program.session import bind, flatten_outputs, new_session, restore_structure, run_session


def model_of(text, **weights):
    model = ir.serde.deserialize_model(onnx.parser.parse_model(text))
    free = {value.name: value for node in model.graph for value in node.inputs if value.producer() is None}
    for name, tensor in weights.items():
        free[name].const_value = weight(tensor, name)
        model.graph.register_initializer(free[name])
    return model


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_bind_follows_the_signature_and_not_the_order_of_keywords():
    class Add(torch.nn.Module):
        def forward(self, p, scale=2, *, first, second):
            return p["a"] - p["b"] + first * scale - second, None, 3, {"k": first + 1}

    one, two, three, four = (torch.full((1,), float(n)) for n in range(1, 5))
    exported = export(Add(), ({"a": one, "b": two}, 2), {"first": three, "second": four})
    text = """<ir_version: 10, opset_import: ["" : 18]>
    g (float[1] a, float[1] b, float[1] first, float[1] second) => (float[1] y, float[1] k) {
        d = Sub(a, b) s = Add(first, first) t = Add(d, s) y = Sub(t, second) k = Neg(first) }"""
    graph = model_of(text).graph
    inputs = bind(graph, exported, ({"b": two, "a": one}, 2), {"second": four, "first": three})
    assert {name: tensor.item() for name, tensor in inputs.items()} == {"a": 1, "b": 2, "first": 3, "second": 4}
    with pytest.raises(ArgumentError, match="'scale' must be 2, a constant of the exported model"):
        bind(graph, exported, ({"a": one, "b": two}, 3), {"first": three, "second": four})
    result = restore_structure(exported, [one, two, three])  # the third is an updated buffer
    assert (result[0] is one, result[1:]) == (True, (None, 3, {"k": two}))
    assert flatten_outputs(exported, result) == [one, two]
    assert flatten_outputs(None, result) == [one, two]


def test_run_takes_and_returns_tensors():
    text = '<ir_version: 10, opset_import: ["" : 18]> g (float[a, b] x) => (float[a, b] y) { y = Neg(x) }'
    session = new_session(ir.serde.serialize_model(model_of(text)).SerializeToString())
    source = torch.arange(6.0).reshape(2, 3).t()
    (found,) = run_session(session, {"x": source})
    assert torch.equal(found, -source)


def test_one_axis_name_has_one_size():
    text = '<ir_version: 10, opset_import: ["" : 18]> g (float[n] a, float[n] b) => (float[n] c) { c = Add(a, b) }'
    with pytest.raises(ArgumentError, match="'n' is 3 in the input 'a' but 1 in the input 'b'"):
        ONNXProgram(model_of(text))(torch.ones(3), torch.ones(1))


def test_numbers_as_inputs():
    text = '<ir_version: 10, opset_import: ["" : 18]> g (int64 a, float b, bool c) => (int64 d, float e, bool f) {\n'
    text += "d = Add(a, a)\n e = Add(b, b)\n f = Not(c) }"
    program = ONNXProgram(model_of(text))
    d, e, f = program(3, 2, True)
    assert (d.item(), e.item(), f.item(), f.dtype) == (6, 4.0, False, torch.bool)
    with pytest.raises(ArgumentError, match=r"'a' must be int64\[\], but 2.5 was given"):
        program(2.5, 1.0, False)


DTYPES = [
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int8,
    torch.uint16,
    torch.bool,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_is_input_and_output(dtype):
    name = weight(torch.zeros(1, dtype=dtype), "").dtype.name.lower()
    text = f'<ir_version: 10, opset_import: ["" : 21]> g ({name}[a, b] x) => ({name}[a, b] y) {{ y = Identity(x) }}'
    program = ONNXProgram(model_of(text))
    source = torch.arange(6.0).reshape(2, 3).to(dtype)
    (found,) = program(source)
    assert found.dtype == dtype
    assert torch.equal(found.float(), source.float())
    (strided,) = program(source.t())
    assert torch.equal(strided.float(), source.t().float())
    (empty,) = program(source[:0])
    assert (empty.shape, empty.dtype) == ((0, 3), dtype)


@pytest.mark.parametrize("size", [3, 0])
def test_complex_in_and_out(size):
    class Conjugate(torch.nn.Module):
        def forward(self, z):
            return z.conj().resolve_conj()

    source = torch.randn(size, dtype=torch.complex64)
    text = '<ir_version: 10, opset_import: ["" : 18]> g (float[n, 2] z) => (float[n, 2] y) { y = Mul(z, sign) }'
    model = model_of(text, sign=torch.tensor([1.0, -1.0]))
    program = ONNXProgram(model, export(Conjugate(), (source,)))
    close(program(source)[0], torch.view_as_real(source.conj().resolve_conj()))
    close(program.call_structured(source), source.conj().resolve_conj())
    close(program.call_structured(source.conj()), source)


def test_symbolic_size_as_output():
    class Size(torch.nn.Module):
        def forward(self, x):
            return x.shape[0], x + 1

    text = """<ir_version: 10, opset_import: ["" : 18]>
    g (float[n] x) => (int64 sym_size_int_1, float[n] add) {
        shape = Shape(x)
        sym_size_int_1 = Squeeze(shape)
        add = Add(x, one)
    }"""
    exported = export(Size(), (torch.ones(3),), dynamic_shapes=({0: Dim.DYNAMIC},))
    program = ONNXProgram(model_of(text, one=torch.ones(())), exported)
    size, result = program.call_structured(torch.ones(5))
    assert size == 5 and isinstance(size, int)
    assert result.tolist() == [2.0] * 5


def test_a_provider_that_this_build_lacks_is_no_typing_error():
    import onnxruntime

    missing = next(
        name for name in onnxruntime.get_all_providers() if name not in onnxruntime.get_available_providers()
    )
    with pytest.raises(ArgumentError, match=rf"has no provider '{missing}'; it has .*CPUExecutionProvider"):
        new_session(b"", provider=missing)
    with pytest.raises(ArgumentError, match=r"did you mean 'CPUExecutionProvider'"):
        new_session(b"", provider="CPUExecutionProvidr")
