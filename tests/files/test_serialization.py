"""Tests of the files that a saved model reads, found without reading its weights, and of its inputs."""

import io
import itertools

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

import fx_onnx
from fx_onnx.files.save import save
from fx_onnx.files.serialization import drop_initializer_infos, referenced_files
from tests.text_models import model_of


def external(location):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    tensor.external_data.add(key="length", value="8")
    return tensor


def graph(*initializers, nodes=()):
    return helper.make_graph(list(nodes), "g", [], [], initializer=list(initializers))


def test_every_place_of_a_tensor(tmp_path):
    attributes = [
        helper.make_attribute("then", graph(external("branch.data"))),
        helper.make_attribute("graphs", [graph(external("graphs.data"))]),
        helper.make_attribute("value", external("value.data")),
    ]
    node = helper.make_node("If", ["c"], ["y"])
    node.attribute.extend(attributes)
    function = helper.make_function("d", "f", [], [], [], [])
    function.node.append(helper.make_node("Constant", [], ["c"], value=external("function.data")))
    large = helper.make_tensor("large", TensorProto.FLOAT, [100_000], np.zeros(100_000, np.float32).tobytes(), raw=True)
    model = helper.make_model(graph(large, external("./graph.data"), nodes=[node]), functions=[function])
    helper.set_model_props(model, {"location": "metadata.data"})
    onnx.save(model, tmp_path / "m")
    wanted = {f"{name}.data" for name in ("branch", "graphs", "value", "function", "graph")}
    assert referenced_files(tmp_path / "m") == wanted


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 1000, b"\xff" * 1000, b"\x0a" * 1000, b"text", b"\x3a\x03\x0a\x01\x0b"]
)
def test_files_that_are_not_models(tmp_path, content):
    (tmp_path / "m").write_bytes(content)
    assert referenced_files(tmp_path / "m") == set()


def test_deep_nesting(tmp_path):
    inner = b"location"
    for level in range(3000):  # node, attribute and graph in turns
        field = (0x0A, 0x2A, 0x32)[level % 3]
        size, header = len(inner), bytearray([field])
        while size > 0x7F:
            header.append(size & 0x7F | 0x80)
            size >>= 7
        inner = bytes([*header, size]) + inner
    (tmp_path / "m").write_bytes(inner)
    assert referenced_files(tmp_path / "m") == set()


def test_a_damaged_model_names_the_files_before_the_damage(tmp_path):
    raw = helper.make_model(graph(external("a.data"))).SerializeToString()
    (tmp_path / "m").write_bytes(raw + b"\xff\xff")
    assert referenced_files(tmp_path / "m") == {"a.data"}
    for damaged in (raw.replace(b"length\x12", b"length\x0a\xff"), raw.replace(b"a.data", b"\xff" * 6), raw[:-9]):
        (tmp_path / "m").write_bytes(damaged)
        assert referenced_files(tmp_path / "m") <= {"a.data"}


def streamed(model):
    """Returns a saved model, and the message of onnx_ir, which has the weights too."""
    file, whole = io.BytesIO(), ir.serde.serialize_model(model)
    save(model, file)
    drop_initializer_infos(whole.graph)
    return onnx.load_from_string(file.getvalue()), whole


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 16_383, 16_384, 2**21 - 1, 2**21])
def test_lengths_of_one_to_four_bytes(size):
    text = '<ir_version: 10, opset_import: ["" : 18]> g (uint8 x) => (uint8[N] y) { y = Add(x, w) }'
    model = model_of(text, w=torch.full((size,), 7, dtype=torch.uint8))
    found, whole = streamed(model)
    assert found == whole
    assert found.graph.initializer[0].raw_data == b"\7" * size


@pytest.mark.parametrize("count", [1, 1023, 1024, 1025, 2500])
def test_nodes_and_values_keep_their_order(count):
    names = ["x", *(f"v{number}" for number in range(count)), "y"]
    nodes = [helper.make_node("Neg", [source], [result]) for source, result in itertools.pairwise(names)]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in names]
    whole = helper.make_graph(nodes, "g", infos[:1], infos[-1:], value_info=infos[1:-1])
    found, expected = streamed(ir.serde.deserialize_model(helper.make_model(whole)))
    assert found == expected
    assert [info.name for info in found.graph.value_info] == names[1:-1]


@pytest.mark.parametrize("include", [True, False])
def test_weights_without_a_declared_type_become_inputs_with_one(include):
    text = """<ir_version: 10, opset_import: ["" : 18]>
    g (float[2, 3] x) => (float[2, 3] y) { a = Add(x, w)  y = Add(a, s) }"""
    model = model_of(text, w=torch.ones(2, 3), s=torch.tensor(1.0))
    for value in model.graph.initializers.values():
        value.type = value.shape = None
    file = io.BytesIO()
    save(model, file, include_initializers=include, keep_initializers_as_inputs=True)
    graph = onnx.load_from_string(file.getvalue()).graph
    wanted = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in (("w", [2, 3]), ("s", []))]
    assert list(graph.input)[1:] == wanted
    assert [each.name for each in graph.initializer] == (["w", "s"] if include else [])
    assert all(value.type is None and value.shape is None for value in model.graph.initializers.values())


def test_initializers_are_not_in_value_info():
    """Their metadata is in the tensor; the types of results stay. A body has initializers too."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("w", "v", "y", "u", "z")]
    infos[0].metadata_props.add(key="kind", value="PARAMETER")
    tensors = [helper.make_tensor(name, TensorProto.FLOAT, [2], [1, 2]) for name in ("w", "u", "v")]
    body = helper.make_graph([], "body", [], [], initializer=tensors, value_info=infos)
    node = helper.make_node("If", ["c"], ["z"], then_branch=body)
    whole = helper.make_graph([node], "g", [], [], initializer=tensors, value_info=infos)
    drop_initializer_infos(whole)
    for each in (whole, whole.node[0].attribute[0].g):
        assert [info.name for info in each.value_info] == ["y", "z"]
        assert [(entry.key, entry.value) for entry in each.initializer[0].metadata_props] == [("kind", "PARAMETER")]


def test_constants_are_no_inputs(tmp_path):
    """ONNX Runtime would take 1e-5 for an epsilon that may be overridden."""
    module, x = torch.nn.LayerNorm(8, eps=0.5).eval(), torch.randn(2, 8)
    fx_onnx.export(module, (x,), tmp_path / "m.onnx", opset_version=14, keep_initializers_as_inputs=True)
    assert [each.name for each in onnx.load(tmp_path / "m.onnx").graph.input] == ["input", "weight", "bias"]
    (found,) = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, {"input": x.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), module(x).detach())


@pytest.mark.parametrize("external", [False, True])
def test_the_model_does_not_change_meanwhile(tmp_path, monkeypatch, external):
    """Other threads may save the model, or run it."""
    program = fx_onnx.export(torch.nn.Linear(2, 3).eval(), (torch.ones(1, 2),))
    before = {name: value.const_value for name, value in program.model.graph.initializers.items()}
    serialize, seen = ir.serde.serialize_model, []

    def observed(model):
        seen.extend(program.model.graph.initializers[name].const_value is tensor for name, tensor in before.items())
        return serialize(model)

    monkeypatch.setattr(ir.serde, "serialize_model", observed)
    program.save(tmp_path / "m.onnx", external_data=external)
    assert seen
    assert all(seen)
