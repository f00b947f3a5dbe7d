"""Weights read the module's own memory, whatever its layout, and lazily computed ones follow their sources."""

import io

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fx_onnx.messages.errors import ArgumentError, OnnxExporterError
from fx_onnx.onnx_model import weights
from fx_onnx.onnx_model.dtypes import storage_dtype
from fx_onnx.onnx_model.weights import (
    as_torch,
    computed,
    elementwise,
    has_data,
    memory_key,
    permuted,
    rebind,
    same_memory,
    weight,
)

DTYPES = [
    torch.bool,
    torch.int8,
    torch.uint16,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.complex64,
    torch.float8_e4m3fn,
    torch.float8_e5m2fnuz,
]


def written(tensor):
    file = io.BytesIO()
    tensor.tofile(file)
    return file.getvalue()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_reads_back(dtype):
    source = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]).to(dtype)
    tensor = weight(source, "w")
    assert tensor.nbytes == len(tensor.tobytes())
    assert written(tensor) == tensor.tobytes()
    assert tensor.numpy().shape == (2, 3)
    again = as_torch(ir.Tensor(tensor.numpy(), dtype=tensor.dtype))
    assert again.dtype == dtype
    assert torch.equal(again.to(torch.complex64), source.to(torch.complex64))


def test_contiguous_data_is_read_in_place():
    parameter = torch.nn.Parameter(torch.zeros(3))
    tensor = weight(parameter, "w")
    view = tensor.numpy()
    with torch.no_grad():
        parameter.add_(1)
    np.testing.assert_array_equal(view, np.ones(3, np.float32))
    assert as_torch(tensor).data_ptr() == parameter.data_ptr()
    assert not as_torch(tensor).requires_grad


def test_layouts():
    matrix = torch.arange(6.0).reshape(2, 3)
    assert weight(matrix.t(), "w").tobytes() == matrix.t().contiguous().numpy().tobytes()
    assert weight(matrix[:, 1:], "w").tobytes() == matrix[:, 1:].contiguous().numpy().tobytes()
    assert weight(torch.tensor(2.5), "w").numpy().shape == ()
    assert weight(torch.zeros(0, 3), "w").tobytes() == b""
    conjugate = torch.tensor([1 + 2j, 3 - 4j]).conj()
    np.testing.assert_array_equal(weight(conjugate, "w").numpy(), [1 - 2j, 3 + 4j])
    negative = torch.tensor([1 + 2j]).conj().imag
    assert negative.is_neg()
    np.testing.assert_array_equal(weight(negative, "w").numpy(), [-2.0])


@pytest.mark.parametrize("kind", ["fake", "meta"])
def test_without_data(kind):
    if kind == "fake":
        with FakeTensorMode():
            source = torch.zeros(2, 3)
    else:
        source = torch.zeros(2, 3, device="meta")
    tensor = weight(source, "layer.weight")
    assert (list(tensor.shape), tensor.dtype, has_data(tensor)) == ([2, 3], ir.DataType.FLOAT, False)
    for read in (tensor.numpy, tensor.tobytes, lambda: as_torch(tensor)):
        with pytest.raises(OnnxExporterError, match=r"'layer.weight' .*apply_weights"):
            read()
    assert not has_data(computed(torch.t, tensor, dtype=tensor.dtype, shape=(3, 2)))


def test_real_weights_can_be_read_under_a_fake_mode():
    tensor = weight(torch.arange(6.0).reshape(2, 3).t(), "w")
    with FakeTensorMode():
        assert tensor.numpy()[1, 1] == 4.0


def test_a_later_conversion_of_the_module_has_no_effect():
    """``model.bfloat16()`` gives the parameters new data; the program keeps the weights that it was exported with."""
    model = torch.nn.Linear(2, 2).half()
    expected, tensor = model.weight.detach().clone(), weight(model.weight, "w")
    model.bfloat16()
    torch.testing.assert_close(weights.as_torch(tensor), expected, rtol=0, atol=0)


def test_refused_dtype():
    with pytest.raises(ArgumentError, match="no element type"):
        weight(torch.empty(2, dtype=torch.bits8), "w")


def test_computed_weights_are_computed_when_read_and_not_cached():
    calls = []
    source = torch.arange(6.0).reshape(2, 3)

    def transposed(tensor):
        calls.append(1)
        return tensor.t()

    tensor = computed(transposed, weight(source, "w"), dtype=ir.DataType.FLOAT, shape=(3, 2), name="w_t")
    assert (calls, list(tensor.shape), tensor.nbytes) == ([], [3, 2], 24)
    np.testing.assert_array_equal(tensor.numpy(), source.t().numpy())
    assert written(tensor) == source.t().contiguous().numpy().tobytes()
    assert len(calls) == 2
    doubled = computed(lambda t: t * 2, tensor, dtype=ir.DataType.FLOAT, shape=(3, 2))
    assert torch.equal(as_torch(doubled), source.t() * 2)


@pytest.mark.parametrize("shape", [(7, 5), (1, 9, 6), (3, 2, 40), (2, 2, 2, 30)])
def test_computed_in_pieces(shape, monkeypatch):
    """A weight with `along` is written in pieces of at most PIECE_BYTES, and so are those that are computed from it."""
    monkeypatch.setattr(weights, "PIECE_BYTES", 64)
    largest = []

    def scaled(tensor, factor):
        largest.append(tensor.nbytes)
        return tensor * factor

    source, factor = torch.randn(shape), torch.randn(shape[-1])
    along = elementwise([shape, factor.shape], len(shape))
    sources = weight(source, "w"), weight(factor, "f")
    tensor = computed(scaled, *sources, dtype=ir.DataType.FLOAT, shape=shape, along=along)
    assert written(tensor) == (source * factor).numpy().tobytes()
    assert max(largest) <= 64 and len(largest) > 1
    largest.clear()
    order = list(range(len(shape)))[::-1]
    turned = computed(lambda t: t.permute(order), tensor, dtype=tensor.dtype, shape=shape[::-1], along=permuted(order))
    assert written(turned) == (source * factor).permute(order).contiguous().numpy().tobytes()
    assert max(largest) <= 64
    whole = computed(scaled, *sources, dtype=ir.DataType.FLOAT, shape=shape)
    assert written(whole) == written(tensor)


@pytest.mark.parametrize("shape", [(50, 3), (3, 50), (5, 7, 9)])
def test_packed_in_pieces(shape, monkeypatch):
    """Pieces of integers of 4 bits end with a byte; where they cannot, the weight is packed whole."""
    source = torch.randint(-8, 8, shape, dtype=torch.int8)
    along = elementwise([shape], len(shape))
    tensor = computed(lambda t: t, weight(source, "w"), dtype=ir.DataType.INT4, shape=shape, name="w_4", along=along)
    whole = written(tensor)
    monkeypatch.setattr(weights, "PIECE_BYTES", 8)
    assert written(tensor) == whole == tensor.tobytes()


def test_computed_in_pieces_of_another_shape_is_caught():
    along = elementwise([(4, 3)], 2)
    tensor = computed(torch.t, weight(torch.zeros(4, 4), "w"), dtype=ir.DataType.FLOAT, shape=(4, 4), along=along)
    with pytest.raises(OnnxExporterError, match="is FLOAT"):
        tensor.part({0: (0, 2)})


def test_computed_with_the_wrong_shape_is_caught():
    tensor = computed(torch.t, weight(torch.zeros(2, 3), "w"), dtype=ir.DataType.FLOAT, shape=(2, 3), name="w_t")
    with pytest.raises(OnnxExporterError, match=r"'w_t' is FLOAT\[3, 2\]"):
        tensor.tobytes()


@pytest.mark.parametrize("dtype", [ir.DataType.INT4, ir.DataType.UINT4, ir.DataType.INT2, ir.DataType.UINT2])
@pytest.mark.parametrize("shape", [(), (3,), (2, 4), (3, 5), (0, 2)])
def test_integers_of_two_and_four_bits_are_packed(dtype, shape):
    low, high = int(dtype.min), int(dtype.max)
    count = int(np.prod(shape))
    source = (torch.arange(count) % (high - low + 1) + low).reshape(shape).to(storage_dtype(dtype))
    tensor = computed(lambda t: t, weight(source, "w"), dtype=dtype, shape=shape, name="w_packed")
    expected = ir.Tensor(source.numpy().astype(dtype.numpy()), dtype=dtype)
    assert written(tensor) == tensor.tobytes() == expected.tobytes()
    assert tensor.nbytes == len(expected.tobytes())
    np.testing.assert_array_equal(tensor.numpy(), expected.numpy())
    assert torch.equal(as_torch(tensor), source)
    assert torch.equal(as_torch(expected), source)


def test_values_that_do_not_fit_in_four_bits_are_caught():
    source = weight(torch.tensor([7, 8], dtype=torch.int8), "w")
    tensor = computed(lambda t: t, source, dtype=ir.DataType.INT4, shape=(2,), name="w_packed")
    with pytest.raises(OnnxExporterError, match=r"'w_packed' has values outside \[-8, 7\], the range of INT4"):
        tensor.tobytes()


def test_transposition_recognizes_a_packed_weight():
    packed = computed(
        lambda t: t, weight(torch.ones(2, 4, dtype=torch.int8), "w"), dtype=ir.DataType.INT4, shape=(2, 4)
    )
    turned = computed(torch.t, packed, dtype=ir.DataType.INT4, shape=(4, 2))
    assert turned.transposition() == (packed, (1, 0))
    np.testing.assert_array_equal(turned.numpy(), packed.numpy().T)


def test_rebind_reaches_the_sources_of_computed_weights():
    # The folded weight has the name of its source. The new data replaces the source and must be folded too.
    folded = computed(lambda t: t * 10, weight(torch.ones(2), "w"), dtype=ir.DataType.FLOAT, shape=(2,), name="w")
    used = set()
    new = rebind(folded, {"w": torch.tensor([1.0, 2.0]), "other": torch.ones(1)}, used)
    np.testing.assert_array_equal(new.numpy(), [10.0, 20.0])
    assert used == {"w"}
    assert rebind(folded, {"other": torch.ones(1)}, used) is folded
    with pytest.raises(ArgumentError, match=r"'w' is FLOAT\[3\], but the model holds FLOAT\[2\]"):
        rebind(folded, {"w": torch.ones(3)}, used)


def test_same_memory():
    base = torch.arange(6.0)
    assert same_memory(base, base.view(6))
    assert same_memory(torch.nn.Parameter(base), base)
    assert not same_memory(base[:3], base[3:])
    assert not same_memory(base, base.clone())
    assert not same_memory(base.view(2, 3), base.view(3, 2))
    with FakeTensorMode():
        fake = torch.zeros(4)
        assert same_memory(fake, fake.view(4))
        assert not same_memory(fake, torch.zeros(4))
    assert len({memory_key(base), memory_key(base.detach())}) == 1
