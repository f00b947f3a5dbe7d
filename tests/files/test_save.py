"""Tests that saving streams the weights, replaces files completely or not at all, and does not change the model."""

import errno
import io
import os
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from safetensors.torch import save_file
from torch._subclasses.fake_tensor import FakeTensorMode

import fx_onnx
from fx_onnx.files import save
from fx_onnx.files.serialization import drop_initializer_infos
from fx_onnx.messages.errors import ArgumentError, OnnxExporterError, OnnxExporterWarning
from fx_onnx.onnx_model.weights import Weight, computed, weight
from fx_onnx.program.session import new_session, run_session
from tests.compare import assert_close
from tests.modules import FourBitLinear
from tests.text_models import model_of

GRAPH = """<ir_version: 10, opset_import: ["" : 18]>
g (float[N, 16] x) => (float[N, 16] y) {
    h = MatMul(x, w)
    s = Add(h, b)
    y = MatMul(s, tied)
}"""


def make_model(seed=0):
    """Returns a model of ``(x @ w + b) @ tied``, in which w and tied are one tensor and b is small."""
    torch.manual_seed(seed)
    shared = torch.nn.Parameter(torch.randn(16, 16))
    return model_of(GRAPH, w=shared, b=torch.randn(16), tied=shared)


def run(path_or_bytes, x):
    session = onnxruntime.InferenceSession(path_or_bytes, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def expected(model, x):
    w, b = (model.graph.initializers[name].const_value.numpy() for name in ("w", "b"))
    return (x @ w + b) @ w


X = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)


def check(model, path_or_bytes):
    np.testing.assert_allclose(run(path_or_bytes, X), expected(model, X), rtol=1e-4, atol=1e-4)


def state(model):
    """Returns the parts of the model that saving must not change: data objects, names, inputs, outputs and nodes."""
    graph = model.graph
    data = [(name, value.const_value, value.const_value.name) for name, value in graph.initializers.items()]
    return data, list(graph.inputs), list(graph.outputs), list(graph)


@pytest.mark.parametrize("external", [None, False])
def test_single_file(tmp_path, external):
    model = make_model()
    before = state(model)
    save.save(model, tmp_path / "m.onnx", external_data=external)
    assert os.listdir(tmp_path) == ["m.onnx"]
    check(model, str(tmp_path / "m.onnx"))
    onnx.checker.check_model(onnx.load(tmp_path / "m.onnx"), full_check=True)
    assert state(model) == before


def test_the_streamed_message_equals_the_serialized_message(tmp_path):
    model = make_model()
    save.save(model, tmp_path / "m.onnx")
    whole = ir.serde.serialize_model(model)
    drop_initializer_infos(whole.graph)
    assert onnx.load(tmp_path / "m.onnx") == whole


def test_external_data(tmp_path):
    model = make_model()
    before = state(model)
    save.save(model, str(tmp_path / "m.onnx"), external_data=True)
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "m.onnx.data"]
    check(model, str(tmp_path / "m.onnx"))
    assert state(model) == before
    assert (tmp_path / "m.onnx.data").stat().st_size == 16 * 16 * 4  # tied weights once; the small bias is in the model
    onnx.checker.check_model(str(tmp_path / "m.onnx"))


def test_offsets_are_aligned(tmp_path):
    text = GRAPH.replace("tied", "v")
    model = model_of(text, w=torch.ones(16, 16), b=torch.ones(67)[:16], v=torch.ones(16, 16))
    model.graph.initializers["b"].const_value = weight(torch.ones(67), "b")
    save.save(model, tmp_path / "m.onnx", external_data=True)
    proto = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    places = {t.name: {e.key: e.value for e in t.external_data} for t in proto.graph.initializer}
    assert {p["location"] for p in places.values()} == {"m.onnx.data"}
    assert [int(places[name]["offset"]) for name in ("w", "b", "v")] == [0, 1024, 1024 + 320]


def test_permissions_equal_those_of_an_ordinary_file(tmp_path):
    (tmp_path / "plain").touch()
    save.save(make_model(), tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "m.onnx").chmod(0o640)
    save.save(make_model(), tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").stat().st_mode & 0o777 == 0o640


def test_file_object():
    model = make_model()
    buffer = io.BytesIO()
    save.save(model, buffer)
    check(model, buffer.getvalue())


def test_links_and_devices(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "m.onnx").symlink_to(tmp_path / "store" / "real.onnx")
    model = make_model()
    save.save(model, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").is_symlink()
    check(model, str(tmp_path / "store" / "real.onnx"))
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    save.save(model, tmp_path / "pipe")
    check(model, os.read(reader, 1 << 20))
    os.close(reader)


@pytest.mark.parametrize("external", [None, True])
@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("as_inputs", [True, False])
def test_which_initializers_are_written_and_which_are_inputs(tmp_path, external, include, as_inputs):
    model = make_model()
    model.graph.initializers["w"].metadata_props["kind"] = "PARAMETER"
    before = state(model)
    save.save(
        model,
        tmp_path / "m.onnx",
        include_initializers=include,
        keep_initializers_as_inputs=as_inputs,
        external_data=external,
    )
    graph = onnx.load(tmp_path / "m.onnx").graph
    assert [t.name for t in graph.initializer] == (["w", "b", "tied"] if include else [])
    weights = ["w", "b", "tied"] if as_inputs or not include else []
    assert [i.name for i in graph.input] == ["x", *weights]
    kinds = {i.name: [p.value for p in i.metadata_props] for i in [*graph.initializer, *graph.value_info, *graph.input]}
    assert kinds["w"] == ["PARAMETER"]
    assert {t.name for t in graph.initializer}.isdisjoint(i.name for i in graph.value_info)
    assert len({i.name for i in graph.value_info}) == len(graph.value_info)
    assert (tmp_path / "m.onnx.data").exists() == bool(external and include)
    assert state(model) == before
    data = {name: value.const_value.numpy() for name, value in model.graph.initializers.items()}
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    found = session.run(None, {"x": X} | ({} if include else data))[0]
    np.testing.assert_allclose(found, expected(model, X), rtol=1e-4, atol=1e-4)


def test_weights_above_the_limit_are_external(tmp_path, monkeypatch):
    monkeypatch.setattr(save, "MAX_FILE_BYTES", 1000)
    model = make_model()
    save.save(model, tmp_path / "a.onnx")
    assert sorted(os.listdir(tmp_path)) == ["a.onnx", "a.onnx.data"]
    check(model, str(tmp_path / "a.onnx"))
    with pytest.warns(OnnxExporterWarning, match=r"weights are in b.onnx.data") as caught:
        save.save(model, tmp_path / "b.onnx", external_data=False)
    assert caught[0].filename == __file__
    check(model, str(tmp_path / "b.onnx"))
    with pytest.raises(ArgumentError, match="need a file path"):
        save.save(model, io.BytesIO())


@pytest.mark.parametrize("external", [None, True])
def test_weights_without_data_are_refused(tmp_path, external):
    model = make_model()
    with FakeTensorMode():
        fake = torch.zeros(16, 16)
    model.graph.initializers["w"].const_value = weight(fake, "w")
    with pytest.raises(ArgumentError, match=r"'w' has no data,.*apply_weights"):
        save.save(model, tmp_path / "m.onnx", external_data=external)
    assert os.listdir(tmp_path) == []
    save.save(model, tmp_path / "m.onnx", include_initializers=False, external_data=external)
    assert onnx.load(tmp_path / "m.onnx").graph.input[0].name == "x"


def test_bad_destinations(tmp_path):
    model = make_model()
    with pytest.raises(ArgumentError, match="no such folder"):
        save.save(model, tmp_path / "missing" / "m.onnx")
    with pytest.raises(ArgumentError, match="is a folder"):
        save.save(model, tmp_path)
    with pytest.raises(ArgumentError, match="binary mode"):
        save.save(model, io.StringIO())
    with pytest.raises(ArgumentError, match="binary mode"):
        save.save(model, 7)
    with pytest.raises(ArgumentError, match="need a file path"):
        save.save(model, io.BytesIO(), external_data=True)
    assert os.listdir(tmp_path) == []


def test_a_permission_error_is_one_sentence(tmp_path, monkeypatch):
    def refuse(source, _):
        raise PermissionError(errno.EACCES, "Permission denied", source)  # a hidden file, which the user does not know

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(ArgumentError, match=r"could not be saved to '[^']*m.onnx': Permission denied. \[.*FX1501\]$"):
        save.save(make_model(), str(tmp_path / "m.onnx"))
    assert os.listdir(tmp_path) == []


# Failures while writing


def listing(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("external", [None, True])
def test_a_full_disk_leaves_the_old_files(tmp_path, monkeypatch, external):
    save.save(make_model(seed=1), tmp_path / "m.onnx", external_data=external)
    old = listing(tmp_path)

    def full(self, file):
        file.write(self.tobytes()[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    model = make_model()
    before = state(model)
    monkeypatch.setattr(Weight, "tofile", full)
    with pytest.raises(OnnxExporterError, match="No space left on device"):
        save.save(model, tmp_path / "m.onnx", external_data=external)
    assert listing(tmp_path) == old
    assert state(model) == before


@pytest.mark.parametrize("failing", range(2))
def test_a_failure_between_the_moves_is_undone(tmp_path, monkeypatch, failing):
    # There are two moves: the new data in, the new model in.
    save.save(make_model(seed=1), tmp_path / "m.onnx", external_data=True)
    old = listing(tmp_path)
    real, calls = os.replace, []

    def replace(source, target):
        calls.append(target)
        if len(calls) == failing + 1:
            raise OSError(errno.EIO, "Input/output error")
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(OnnxExporterError, match="Input/output error"):
        save.save(make_model(), tmp_path / "m.onnx", external_data=True)
    assert listing(tmp_path) == old


def test_an_interrupt_leaves_no_files(tmp_path, monkeypatch):
    def interrupt(self, file):
        raise KeyboardInterrupt

    monkeypatch.setattr(Weight, "tofile", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save.save(make_model(), tmp_path / "m.onnx", external_data=True)
    assert os.listdir(tmp_path) == []


def test_a_tensor_of_the_wrong_length_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Weight, "tofile", lambda self, file: file.write(b"1234"))
    with pytest.raises(OnnxExporterError, match="has 4 bytes, but its dtype and shape need 1024"):
        save.save(make_model(), tmp_path / "m.onnx")
    assert os.listdir(tmp_path) == []


# Models that read their weights from files


@pytest.mark.parametrize("external", [None, True])
def test_saving_over_the_files_a_model_reads_from(tmp_path, external):
    reference = make_model()
    path = tmp_path / "m.onnx"
    save.save(reference, path, external_data=True)
    model = ir.load(path)
    values = list(model.graph.initializers.values())
    values[0].const_value, values[2].const_value = values[2].const_value, values[0].const_value
    extra = ir.Value(name="first", const_value=weight(torch.zeros(100), "first"))
    model.graph.initializers.clear()
    for value in (extra, *values):  # a new first weight changes the offsets of all others
        model.graph.register_initializer(value)
    for _ in range(2):
        save.save(model, path, external_data=external)
        check(reference, str(path))
        np.testing.assert_array_equal(expected(model, X), expected(reference, X))
    save.save(model, tmp_path / "other.onnx", external_data=external)
    check(reference, str(tmp_path / "other.onnx"))


def test_a_computed_weight_over_replaced_data(tmp_path):
    path = tmp_path / "m.onnx"
    save.save(make_model(), path, external_data=True)
    model = ir.load(path)
    value = model.graph.initializers["w"]
    value.const_value = computed(lambda t: t + 1, value.const_value, dtype=value.dtype, shape=(16, 16), name="w")
    wanted = value.const_value.numpy().copy()
    save.save(model, path, external_data=True)
    np.testing.assert_array_equal(value.const_value.numpy(), wanted)
    np.testing.assert_array_equal(ir.load(path).graph.initializers["w"].const_value.numpy(), wanted)


def test_every_kind_of_tensor_is_saved(tmp_path):
    text = """<ir_version: 10, opset_import: ["" : 18]>
    g (float[3] x) => (float[3] y, int64[3] n, string[2] t) {
        y = Add(x, a)
        n = Identity(i)
        t = Identity(s)
    }"""
    proto = onnx.helper.make_tensor("i", onnx.TensorProto.INT64, [3], [1, 2, 3])
    tensors = {
        "a": ir.Tensor(np.ones(3, np.float32), name="a"),
        "i": ir.serde.TensorProtoTensor(proto),
        "s": ir.StringTensor(np.array([b"one", b"two"]), name="s"),
    }
    model = model_of(text, **tensors)
    for external in (None, True):
        save.save(model, tmp_path / "m.onnx", external_data=external)
        session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
        y, n, t = session.run(None, {"x": np.zeros(3, np.float32)})
        assert (y.tolist(), n.tolist(), t.tolist()) == ([1, 1, 1], [1, 2, 3], ["one", "two"])


def test_weights_in_subgraphs(tmp_path):
    text = """<ir_version: 10, opset_import: ["" : 18]>
    g (bool c, float[100] x) => (float[100] y) {
        y = If (c) <then_branch = t () => (float[100] a) { a = Add(x, w) }, else_branch = e () => (float[100] b) {
            b = Neg(x) }>
    }"""
    model = ir.serde.deserialize_model(onnx.parser.parse_model(text))
    branch = model.graph[0].attributes["then_branch"].as_graph()
    inner = ir.Value(name="w", const_value=weight(torch.arange(100.0), "w"))
    inner.type, inner.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([100])
    branch[0].replace_input_with(1, inner)
    branch.register_initializer(inner)
    for external in (None, True):
        save.save(model, tmp_path / "m.onnx", external_data=external)
        session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
        found = session.run(None, {"c": np.array(True), "x": np.ones(100, np.float32)})[0]
        np.testing.assert_array_equal(found, np.arange(100) + 1)
    assert (tmp_path / "m.onnx.data").stat().st_size == 400
    save.save(
        model, tmp_path / "m.onnx", include_initializers=False
    )  # removes those of the graph, not those of its branches
    onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    inner.const_value = weight(torch.zeros(100, device="meta"), "w")
    with pytest.raises(ArgumentError, match="'w' has no data"):
        save.save(model, tmp_path / "n.onnx", include_initializers=False)


def test_saving_does_not_copy_weights(tmp_path):
    big = torch.zeros(1024, 4096)  # 16 MB
    text = '<ir_version: 10, opset_import: ["" : 18]> g (float[N, 1024] x) => (float[N, 4096] y) { y = MatMul(x, w) }'
    model = model_of(text, w=big)
    for external in (None, True):
        tracemalloc.start()
        save.save(model, tmp_path / "m.onnx", external_data=external)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2 * 1024**2


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("rank", [2, 3])
def test_weights_of_four_bits_are_saved(external: bool, rank: int, tmp_path: Path) -> None:
    """Tests that the file stores two weights in a byte, and that the model runs and accepts new 8-bit weights."""
    module, x = FourBitLinear().eval(), torch.randn(*(3,) * (rank - 1), 16)
    program = fx_onnx.export(module, (x,), opset_version=21, verify=True)
    assert_close(program(x), module(x), None)
    (name,) = [name for name in program.model.graph.initializers if name.startswith("weight")]
    path = tmp_path / "model.onnx"
    program.save(path, external_data=external)
    onnx.checker.check_model(path, full_check=True)
    onnx.checker.check_model(program.model_proto)
    (stored,) = [each for each in onnx.load(path).graph.initializer if each.name == name]
    assert (stored.data_type, len(stored.raw_data)) == (onnx.TensorProto.INT4, 6 * 16 // 2)
    session = new_session(str(path))
    assert_close(run_session(session, {session.get_inputs()[0].name: x}), module(x), None)
    other = FourBitLinear().eval()
    program.apply_weights(other.state_dict())
    assert_close(program(x), other(x), None)


def test_packed_weights_beside_safetensors(tmp_path: Path) -> None:
    """Tests that the model refers to the file for the scales only; it stores its 4-bit weights itself.

    The file holds these weights in 8 bits.
    """
    module, x = FourBitLinear().eval(), torch.randn(3, 16)
    program = fx_onnx.export(module, (x,), opset_version=21)
    save_file(module.state_dict(), tmp_path / "model.safetensors")
    program.save(tmp_path / "model.onnx", weights_from=tmp_path / "model.safetensors")
    proto = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    places = {each.name: each.data_location == onnx.TensorProto.EXTERNAL for each in proto.graph.initializer}
    assert places["scales"]
    session = new_session(str(tmp_path / "model.onnx"))
    assert_close(run_session(session, {session.get_inputs()[0].name: x}), module(x), None)
