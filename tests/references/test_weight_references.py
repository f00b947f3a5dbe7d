"""Tests that a saved model refers to equal weights in safetensors files, and stores all other weights."""

import gc
import io
import json
import os
import warnings
from unittest import mock

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import fx_onnx
from fx_onnx.messages.errors import ArgumentError, OnnxExporterWarning
from fx_onnx.onnx_model.weights import LazyWeight, computed, elementwise, weight
from fx_onnx.references import weight_references
from fx_onnx.references.weight_references import StoredWeight, by_reference, stored_weights

X = torch.tensor([[1, 5, 2], [0, 3, 3]])


class Network(nn.Module):
    """Has weights that are read directly, transposed, folded, tied or in half precision, and constants in the code."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(6, 8)
        self.linear = nn.Linear(8, 8)
        self.conv, self.norm = nn.Conv1d(3, 4, 1), nn.BatchNorm1d(4)
        self.scale = nn.Parameter(torch.rand(8).to(torch.bfloat16))
        self.head = nn.Linear(8, 6, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("steps", torch.arange(8.0))

    def forward(self, x):
        h = self.linear(self.embed(x)) * self.scale.float() + self.steps
        h = h + torch.arange(x.shape[1], device=x.device)[:, None]
        return self.head(self.norm(self.conv(h)))


def make():
    torch.manual_seed(0)
    return Network().eval()


def without_data(how):
    """Exports the network without the data of its weights."""
    if how == "meta":
        with torch.device("meta"):
            return fx_onnx.export(Network().eval(), (X.to("meta"),))
    if how == "inside":
        with FakeTensorMode():
            return fx_onnx.export(Network().eval(), (torch.empty(2, 3, dtype=torch.int64),))
    with FakeTensorMode():
        model = Network().eval()
    return fx_onnx.export(model, (X,))


def tensors(model):
    """Returns the tensors that save_pretrained writes. It writes a tied weight once."""
    return {name: tensor.clone() for name, tensor in model.state_dict().items() if name != "head.weight"}


def places(path):
    proto = onnx.load(path, load_external_data=False)
    return {t.name: {e.key: e.value for e in t.external_data} for t in proto.graph.initializer if t.external_data}


def run(path):
    return torch.from_numpy(onnxruntime.InferenceSession(str(path)).run(None, {"x": X.numpy()})[0])


def check(path):
    torch.testing.assert_close(run(path), make()(X))


@pytest.mark.parametrize("how", ["meta", "fake", "inside"])
@pytest.mark.parametrize("external", [None, True])
def test_exported_without_weights(tmp_path, how, external):
    save_file(tensors(make()), tmp_path / "w.safetensors")
    program = without_data(how)
    before = list(program.model.graph), dict(program.model.graph.initializers)
    program.save(tmp_path / "m.onnx", weights_from=tmp_path / "w.safetensors", external_data=external)
    check(tmp_path / "m.onnx")
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    found = places(tmp_path / "m.onnx")
    assert {"head.weight", "linear.weight", "linear.bias", "steps"} <= set(found)  # also transposed weights
    assert {place["location"] for place in found.values()} <= {"w.safetensors", "m.onnx.data"}
    assert (list(program.model.graph), dict(program.model.graph.initializers)) == before
    with pytest.raises(ArgumentError, match="has no data"):
        program.save(tmp_path / "n.onnx")


def test_references_have_the_offsets_of_the_header(tmp_path):
    model = make()
    save_file(tensors(model), tmp_path / "w.safetensors")
    fx_onnx.export(model, (X,)).save(tmp_path / "m.onnx", weights_from=tmp_path)
    raw = (tmp_path / "w.safetensors").read_bytes()
    place = places(tmp_path / "m.onnx")["head.weight"]
    begin, length = int(place["offset"]), int(place["length"])
    assert raw[begin : begin + length] == model.embed.weight.detach().numpy().tobytes()
    check(tmp_path / "m.onnx")


def test_shards_below_the_folder(tmp_path):
    data = tensors(make())
    (tmp_path / "weights").mkdir()
    names = sorted(data)
    index = {name: f"part-{number % 2}.safetensors" for number, name in enumerate(names)}
    for file in set(index.values()):
        held = {name: data[name] for name in names if index[name] == file}
        save_file(held | {"unlisted": torch.zeros(1)}, tmp_path / "weights" / file)
    (tmp_path / "weights" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    for source in (tmp_path / "weights", tmp_path / "weights" / "model.safetensors.index.json"):
        without_data("meta").save(tmp_path / "m.onnx", weights_from=source)
        check(tmp_path / "m.onnx")
    assert {p["location"] for p in places(tmp_path / "m.onnx").values()} == {
        "weights/part-0.safetensors",
        "weights/part-1.safetensors",
    }


def test_weights_with_other_values_are_stored(tmp_path):
    model = make()
    data = tensors(model)
    data["embed.weight"] = data["embed.weight"] + 1
    data["steps"] = data["steps"].double()
    save_file(data, tmp_path / "w.safetensors")
    program = fx_onnx.export(model, (X,))
    with pytest.warns(OnnxExporterWarning, match=r"2 weights are stored with the model.*steps.*head.weight") as caught:
        program.save(tmp_path / "m.onnx", weights_from=tmp_path / "w.safetensors")
    assert caught[0].filename == __file__
    assert "linear.weight" in places(tmp_path / "m.onnx")
    assert "head.weight" not in places(tmp_path / "m.onnx")
    check(tmp_path / "m.onnx")


def test_a_tied_weight_is_found_by_any_of_its_names(tmp_path):
    data = tensors(make())
    data["head.weight"] = data.pop("embed.weight")
    save_file(data, tmp_path / "w.safetensors")
    without_data("fake").save(tmp_path / "m.onnx", weights_from=tmp_path / "w.safetensors")
    check(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("linear.weight"), r"'linear.weight' has no data and is not in the files"),
        (
            lambda d: d.update(steps=d["steps"].half()),
            r"'steps' is FLOAT\[8\] in the model, but FLOAT16\[8\] in 'w.saf",
        ),
        (lambda d: d.update(steps=d["steps"][:7].clone()), r"'steps' is FLOAT\[8\] in the model, but FLOAT\[7\]"),
    ],
)
def test_a_weight_without_data_must_be_in_the_files(tmp_path, change, message):
    data = tensors(make())
    change(data)
    save_file(data, tmp_path / "w.safetensors")
    with pytest.raises(ArgumentError, match=message):
        without_data("meta").save(tmp_path / "m.onnx", weights_from=tmp_path / "w.safetensors")
    assert os.listdir(tmp_path) == ["w.safetensors"]


# Files


def header(path, entries, data=b""):
    text = json.dumps(entries).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(dtype="F32", shape=(2,), begin=0, end=8):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def test_every_dtype(tmp_path):
    dtypes = [torch.bool, torch.uint8, torch.int16, torch.uint32, torch.int64, torch.float16, torch.bfloat16]
    dtypes += [torch.float64, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64]
    data = {str(dtype): torch.tensor([[0, 1, 1]]).to(dtype) for dtype in dtypes}
    data["scalar"], data["empty"] = torch.tensor(2.5), torch.zeros(0, 3)
    save_file(data, tmp_path / "w.safetensors")
    found = stored_weights(tmp_path, tmp_path)
    for name, tensor in data.items():
        ours = weight(tensor, name)
        assert (found[name].dtype, found[name].shape) == (ours.dtype, ours.shape)
        assert found[name].numpy().tobytes() == ours.tobytes()
        assert weight_references._holds(found[name], ours)
        other = tensor.clone()
        other.view(-1).view(torch.uint8)[:1] = 7
        assert not tensor.numel() or not weight_references._holds(found[name], weight(other, name))


@pytest.mark.parametrize(
    ("entries", "data", "message"),
    [
        ({"w": entry(end=12)}, bytes(12), r"'w' .*has 12 bytes, but FLOAT\[2\] needs 8 bytes|not a safetensors file"),
        ({"w": entry()}, bytes(4), r"'w' should end at byte \d+ of .*, which has \d+ bytes"),
        ({"v": {"data_offsets": [0, 1]}, "w": entry()}, bytes(4), "'w' should end at byte"),
        ({"w": {"data_offsets": ["a", 9]}}, bytes(4), "not a safetensors file"),
        ({"w": entry()}, bytes(20), "not a safetensors file"),
        ({"w": {"dtype": "F32"}}, b"", "not a safetensors file"),
        ([1], b"", "not a safetensors file"),
    ],
)
def test_broken_files(tmp_path, entries, data, message):
    with pytest.raises(ArgumentError, match=message):
        stored_weights(header(tmp_path / "w.safetensors", entries, data), tmp_path)


@pytest.mark.parametrize("content", [b"", b"1234", bytes(8), b"\xff" * 20, b"\x02" + bytes(7) + b"no"])
def test_files_that_are_not_safetensors(tmp_path, content):
    (tmp_path / "w.safetensors").write_bytes(content)
    with pytest.raises(ArgumentError, match=r"w.safetensors' is not a safetensors file"):
        stored_weights(tmp_path / "w.safetensors", tmp_path)


def test_files_outside_the_folder(tmp_path):
    (tmp_path / "in").mkdir()
    save_file({"w": torch.zeros(2)}, tmp_path / "w.safetensors")
    (tmp_path / "in" / "linked.safetensors").symlink_to(tmp_path / "w.safetensors")
    index = tmp_path / "in" / "model.safetensors.index.json"
    with pytest.raises(ArgumentError, match="outside of the model's folder"):
        stored_weights(tmp_path / "w.safetensors", tmp_path / "in")
    with pytest.raises(ArgumentError, match=r"\(through a link\), outside of the model's folder"):
        stored_weights(tmp_path / "in", tmp_path / "in")
    index.write_text(json.dumps({"weight_map": {"w": "../w.safetensors"}}))
    with pytest.raises(ArgumentError, match="outside of the model's folder"):
        stored_weights(index, tmp_path / "in")
    assert stored_weights(index, tmp_path)["w"].location == "w.safetensors"


def test_ambiguous_and_missing_sources(tmp_path):
    with pytest.raises(ArgumentError, match="no safetensors file in"):
        stored_weights(tmp_path, tmp_path)
    with pytest.raises(ArgumentError, match="there is no file"):
        stored_weights(tmp_path / "w.safetensors", tmp_path)
    for name in ("a", "b"):
        save_file({"w": torch.zeros(2)}, tmp_path / f"{name}.safetensors")
    with pytest.raises(ArgumentError, match=r"'w' is in 'a.safetensors' and in 'b.safetensors'"):
        stored_weights(tmp_path, tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    for text in ("no", "{}", '{"weight_map": [1]}', '{"weight_map": {"w": 1}}'):
        index.write_text(text)
        with pytest.raises(ArgumentError, match="not an index"):
            stored_weights(tmp_path, tmp_path)
    index.write_text(json.dumps({"weight_map": {"w": "c.safetensors"}}))
    with pytest.raises(ArgumentError, match=r"names 'c.safetensors', which does not exist"):
        stored_weights(tmp_path, tmp_path)
    (tmp_path / "other.safetensors.index.json").touch()
    with pytest.raises(ArgumentError, match="has 2 indices"):
        stored_weights(tmp_path, tmp_path)


def test_destinations_that_are_refused(tmp_path):
    model = make()
    program = fx_onnx.export(model, (X,))
    save_file(tensors(model), tmp_path / "m.onnx.data")
    with pytest.raises(ArgumentError, match=r"over the file .* which holds its weights"):
        program.save(tmp_path / "m.onnx", weights_from=tmp_path / "m.onnx.data")
    with pytest.raises(ArgumentError, match="weights_from needs a path"):
        program.save(tmp_path / "n.onnx", weights_from=tmp_path / "m.onnx.data", include_initializers=False)
    with (tmp_path / "n.onnx").open("wb") as file, pytest.raises(ArgumentError, match="weights_from needs a path"):
        program.save(file, weights_from=tmp_path / "m.onnx.data")


def test_saving_over_the_data_that_the_program_reads(tmp_path):
    model = make()
    data = {name: tensor for name, tensor in tensors(model).items() if name != "linear.bias"}
    save_file(data, tmp_path / "w.safetensors")
    fx_onnx.export(model, (X,)).save(tmp_path / "m.onnx", external_data=True)
    program = fx_onnx.ONNXProgram(ir.load(tmp_path / "m.onnx"))
    for _ in range(2):
        program.save(tmp_path / "m.onnx", external_data=True, weights_from=tmp_path / "w.safetensors")
        check(tmp_path / "m.onnx")
        torch.testing.assert_close(program(X)[0], model(X))
    assert len([name for name in os.listdir(tmp_path) if name.endswith(".data")]) <= 1


def test_weights_that_were_never_read_survive_the_removal_of_their_file(tmp_path):
    model = make()
    save_file(tensors(model), tmp_path / "w.safetensors")
    fx_onnx.export(model, (X,)).save(tmp_path / "m.onnx", external_data=True)
    with mock.patch.object(weight_references, "_holds", return_value=True):
        program = fx_onnx.ONNXProgram(ir.load(tmp_path / "m.onnx"))
        program.save(tmp_path / "m.onnx", weights_from=tmp_path / "w.safetensors")
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "w.safetensors"]
    torch.testing.assert_close(program(X)[0], model(X))


# Models


def graph_of(tensor):
    """Returns a model that adds one weight."""
    text = '<ir_version: 10, opset_import: ["" : 18]> g (float[2, 3] x) => (float[2, 3] y) { y = Add(x, w) }'
    model = ir.serde.deserialize_model(onnx.parser.parse_model(text))
    value = model.graph[0].inputs[1]
    value.const_value, value.shape, value.type = tensor, ir.Shape([2, 3]), ir.TensorType(ir.DataType.FLOAT)
    model.graph.register_initializer(value)
    return model


def test_a_transposed_weight_becomes_a_transpose_and_another_reads_the_file(tmp_path):
    data = torch.arange(6.0).reshape(3, 2)
    save_file({"s": data}, tmp_path / "w.safetensors")
    stored = stored_weights(tmp_path, tmp_path)
    for source in (weight(data, "s"), weight(data.to("meta"), "s")):
        flipped = computed(torch.t, source, dtype=ir.DataType.FLOAT, shape=(2, 3), name="w")
        model = graph_of(flipped)
        pointing, differing = by_reference(model, stored)
        assert [node.op_type for node in pointing.graph] == ["Transpose", "Add"]
        assert pointing.graph[1] is model.graph[0]  # the nodes are not copied
        assert list(model.graph.initializers) == ["w"]
        assert list(pointing.graph.initializers) == ["s"]
        assert not differing
    scaled = computed(lambda t: t.t() * 2, source, dtype=ir.DataType.FLOAT, shape=(2, 3), name="w")
    pointing, _ = by_reference(graph_of(scaled), stored)
    found = pointing.graph.initializers["w"].const_value
    assert isinstance(found, LazyWeight)
    np.testing.assert_array_equal(found.numpy(), data.t().numpy() * 2)
    doubled = computed(
        lambda t: t * 2, stored["s"], dtype=ir.DataType.FLOAT, shape=(3, 2), along=elementwise([(3, 2)], 2)
    )
    file = io.BytesIO()
    with mock.patch("fx_onnx.onnx_model.weights.PIECE_BYTES", 8), mock.patch.object(StoredWeight, "numpy"):
        doubled.tofile(file)  # each piece reads its own part of the file only
    assert file.getvalue() == (data * 2).numpy().tobytes()
    with warnings.catch_warnings(), pytest.raises(ArgumentError, match=r"'s' has no data and is not in the files"):
        by_reference(graph_of(scaled), {})


def test_weights_in_subgraphs(tmp_path):
    text = """<ir_version: 10, opset_import: ["" : 18]>
    g (bool c, float[3] x) => (float[3] y) {
        y = If (c) <then_branch = t () => (float[3] a) <float[3] w = {0, 1, 2}> { a = Add(x, w) },
                    else_branch = e () => (float[3] b) { b = Neg(x) }>
    }"""
    program = fx_onnx.ONNXProgram(ir.serde.deserialize_model(onnx.parser.parse_model(text)))
    save_file({"w": torch.arange(3.0)}, tmp_path / "w.safetensors")
    program.save(tmp_path / "m.onnx", weights_from=tmp_path)
    branch = onnx.load(tmp_path / "m.onnx", load_external_data=False).graph.node[0].attribute[0].g
    assert branch.initializer[0].external_data[0].value == "w.safetensors"
    (value,) = program.model.graph[0].attributes["then_branch"].as_graph().initializers.values()
    assert not isinstance(value.const_value, ir.ExternalTensor)


def test_no_garbage_is_collected_meanwhile(tmp_path):
    save_file({str(index): torch.zeros(1) for index in range(1000)}, tmp_path / "w.safetensors")
    gc.collect(0)
    before = gc.get_stats()
    with mock.patch.object(gc, "enable"):  # the first allocation after it may collect
        stored_weights(tmp_path, tmp_path)
    after = gc.get_stats()
    gc.enable()
    assert after == before


@pytest.mark.parametrize(
    ("function", "order"),
    [
        (lambda t: t.permute(2, 0, 1), (2, 0, 1)),
        (lambda t: t.mT, (0, 2, 1)),
        (lambda t: t, (0, 1, 2)),
        (lambda t: t.reshape(4, 3, 2), None),
        (lambda t: t.flip(0), None),
        (lambda t: -t, None),
        (lambda t: t.clone(), None),
    ],
)
def test_transposition(function, order):
    data = torch.arange(24.0).reshape(2, 3, 4)
    source = weight(data, "s")
    found = computed(function, source, dtype=ir.DataType.FLOAT, shape=function(data).shape).transposition()
    assert found == (None if order is None else (source, order))


@pytest.mark.parametrize(
    ("function", "reads", "offset"),
    [
        (lambda t: t[0], {0: (1, 2)}, 12),
        (lambda t: t, {0: (0, 1)}, 0),
        (lambda t: t[0], {0: (1, 2), 1: (1, 3)}, 16),
        (lambda t: t[0], {0: (1, 2), 2: (1, 3)}, None),  # not contiguous
        (lambda t: t[0].t(), {0: (1, 2)}, None),
        (lambda t: -t[0], {0: (1, 2)}, None),
        (lambda t: t[0], {}, None),
    ],
)
def test_runs(function, reads, offset):
    source = weight(torch.arange(24.0).reshape(2, 3, 4), "s")
    shape = function(source.raw[tuple(slice(*reads.get(axis, (None,))) for axis in range(3))]).shape
    found = computed(function, source, dtype=ir.DataType.FLOAT, shape=shape, reads=reads)
    assert found.run == (None if offset is None else (source, offset))
    if offset is not None:
        flat = source.raw.flatten()[offset : offset + shape.numel()]
        torch.testing.assert_close(found.values(), flat.reshape(shape))


class Experts(nn.Module):
    """Multiplies groups of rows with the matrices of a stack, as they are and transposed."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Parameter(torch.rand(3, 6, 4)), nn.Parameter(torch.rand(3, 6, 4))

    def forward(self, x):
        rows = [torch.nn.functional.linear(x[i], self.up[i]) @ self.down[i] for i in range(3)]
        return torch.stack(rows)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_matrices_of_a_stack_refer_to_their_place_in_the_file(tmp_path, device):
    model, x = Experts().eval(), torch.rand(3, 2, 4)
    data = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    save_file(data, tmp_path / "w.safetensors")
    program = fx_onnx.export(model.to(device), (x.to(device),))
    program.save(tmp_path / "m.onnx", weights_from=tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "w.safetensors"]
    raw, found = (tmp_path / "w.safetensors").read_bytes(), places(tmp_path / "m.onnx")
    for name in ("up", "down"):
        for index in range(3):
            begin, length = (int(found[f"{name}.{index}"][key]) for key in ("offset", "length"))
            assert raw[begin : begin + length] == data[name][index].numpy().tobytes()
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    (y,) = onnxruntime.InferenceSession(str(tmp_path / "m.onnx")).run(None, {"x": x.numpy()})
    want = torch.stack([x[i] @ data["up"][i].t() @ data["down"][i] for i in range(3)])
    torch.testing.assert_close(torch.from_numpy(y), want)
    (tmp_path / "w.safetensors").unlink()
    save_file(data | {"up": data["up"] + 1}, tmp_path / "w.safetensors")
    if device == "cpu":  # other values are written, and reported
        with pytest.warns(OnnxExporterWarning, match="'up'"):
            program.save(tmp_path / "m.onnx", weights_from=tmp_path)
        (other,) = onnxruntime.InferenceSession(str(tmp_path / "m.onnx")).run(None, {"x": x.numpy()})
        np.testing.assert_array_equal(other, y)


def test_files_without_any_weight_of_the_model(tmp_path):
    save_file({"other": torch.ones(3)}, tmp_path / "w.safetensors")
    program = fx_onnx.export(torch.nn.Linear(4, 4).eval(), (torch.ones(1, 4),))
    with pytest.warns(OnnxExporterWarning, match="none of them is in the files of weights_from"):
        program.save(tmp_path / "m.onnx", weights_from=tmp_path / "w.safetensors")
