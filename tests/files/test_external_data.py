"""Tests of the weights in memory whose data file is removed."""

import numpy as np
import onnx_ir as ir
import pytest

from fx_onnx.files.external_data import reads, without_files
from fx_onnx.onnx_model.weights import computed
from fx_onnx.passes.traversal import all_initializers


def model_of(*tensors):
    graph = ir.Graph([], [], nodes=[], name="g", opset_imports={"": 18})
    for tensor in tensors:
        graph.register_initializer(ir.Value(name=tensor.name, const_value=tensor))
    return ir.Model(graph, ir_version=10)


def stored(folder, name, array, dtype=ir.DataType.FLOAT, file="a.data", packed=None):
    raw = (array if packed is None else packed).tobytes()
    with (folder / file).open("ab") as out:
        offset = out.tell()
        out.write(raw)
    shape = ir.Shape(array.shape)
    return ir.ExternalTensor(file, offset, len(raw), dtype, shape=shape, name=name, base_dir=str(folder))


@pytest.mark.parametrize("in_both", [False, True])
def test_weights_survive_the_removal_of_their_files(tmp_path, in_both):
    (tmp_path / "a.data").write_bytes(b"123")  # the tensors behind it are not aligned
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    first = stored(tmp_path, "first", values)
    second = stored(tmp_path, "second", values * 2, file="b.data" if in_both else "a.data")
    four = stored(tmp_path, "four", np.array([1, 2, 3]), ir.DataType.UINT4, packed=np.array([0x21, 0x03], np.uint8))
    empty = stored(tmp_path, "empty", np.zeros((0, 2), np.float32))
    total = computed(lambda a, b: a + b, first, second, dtype=ir.DataType.FLOAT, shape=(2, 3), name="total")
    model = model_of(first, four, empty, total)
    files = [tmp_path / "a.data", tmp_path / "b.data"] if in_both else [tmp_path / "a.data"]
    for value, tensor in without_files(model, files, {}).items():
        value.const_value = tensor
    assert not any(reads(value.const_value, file) for value in all_initializers(model.graph) for file in files)
    for file in files:
        file.unlink()
    found = {value.name: value.const_value.numpy() for value in all_initializers(model.graph)}
    np.testing.assert_array_equal(found["first"], values)
    np.testing.assert_array_equal(found["four"].astype(int), [1, 2, 3])
    np.testing.assert_array_equal(found["total"], values * 3)
    assert found["empty"].shape == (0, 2)


def test_a_weight_in_the_new_file_is_read_from_there(tmp_path):
    old = stored(tmp_path, "w", np.ones(2, np.float32))
    new = stored(tmp_path, "w", np.ones(2, np.float32), file="b.data")
    model = model_of(old)
    (value,) = all_initializers(model.graph)
    assert without_files(model, [tmp_path / "a.data"], {value: new}) == {value: new}
    assert without_files(model, [tmp_path / "c.data"], {value: new}) == {}
