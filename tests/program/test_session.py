"""Tests of every dtype in ONNX Runtime, and of the structure of outputs."""

import onnx_ir as ir
import pytest
import torch
from torch.export import Dim, export

from fx_onnx.messages.errors import ArgumentError
from fx_onnx.onnx_model.weights import weight
from fx_onnx.program.onnx_program import ONNXProgram
from fx_onnx.program.session import new_session, run_session
from tests.text_models import model_of


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_run_takes_and_returns_tensors():
    text = '<ir_version: 10, opset_import: ["" : 18]> g (float[a, b] x) => (float[a, b] y) { y = Neg(x) }'
    session = new_session(ir.serde.serialize_model(model_of(text)).SerializeToString())
    source = torch.arange(6.0).reshape(2, 3).t()
    (found,) = run_session(session, {"x": source})
    assert torch.equal(found, -source)


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
