"""Wrong arguments of every public function: each is refused by an ArgumentError of one sentence, before any work."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx import ArgumentError, ONNXProgram

X = torch.randn(2, 4)


class NotCaptured(nn.Module):
    """A module whose forward must not run."""

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        raise AssertionError("the forward ran")


class Hostile:
    def __repr__(self) -> str:
        raise ValueError("no text")


@pytest.fixture(scope="module")
def program() -> ONNXProgram:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 3)

        def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
            result: Tensor = self.fc(x)
            return result

    return fx_onnx.export(Net().eval(), (X,), dynamic_shapes={"x": {0: "batch"}})


WRONG: tuple[Any, ...] = (
    5, 5.0, "no", b"x", [1], {1: 2}, object(), np.zeros(2), X, "a" * 10000, "\0", "\ud800", Hostile(),
)  # fmt: skip


def wrong_except(*right: type) -> list[Any]:
    return [value for value in WRONG if not isinstance(value, right)]


FLAGS = (
    "verbose",
    "external_data",
    "report",
    "optimize",
    "verify",
    "profile",
    "dump_exported_program",
    "export_params",
    "do_constant_folding",
    "autograd_inlining",
)
EXPORTS: list[tuple[str, Any]] = [
    *((flag, value) for flag in (*FLAGS, "keep_initializers_as_inputs", "dynamo") for value in WRONG),
    *(("kwargs", value) for value in WRONG),
    *(("model", value) for value in WRONG),
    *(
        ("args", value)
        for value in (*wrong_except(Tensor, list, dict), [X, X, X], (X, X, X), (), (X.numpy(),), (object(),))
    ),
    *(("args", (value,)) for value in (X.to_sparse(), X.to_sparse_csr(), X.to_mkldnn())),
    *(("args", (value,)) for value in (torch.quantize_per_tensor(X, 1.0, 0, torch.qint8),)),
    *(("f", value) for value in (*wrong_except(str), "\0", "\ud800", "a" * 300, "", ".", "nowhere/m.onnx")),
    *(("opset_version", value) for value in (*WRONG, 6, 29, 10**40, True)),
    *(("input_names", value) for value in (*WRONG, {"a"}, [""], ["a\0"], ["\ud800"], ["a", "a"], ["a", "b", "c"])),
    *(("output_names", value) for value in (*WRONG, {"a"}, [""], ["a\0"], ["\ud800"])),
    *(("dynamic_shapes", value) for value in WRONG),
    *(("dynamic_shapes", {"x": {0: name}}) for name in ("", "5", "-1", "a+b", "2*a", "a b", "a\0", "\ud800", 1.5)),
    *(("dynamic_shapes", {"x": {axis: "a"}}) for axis in (2, -3, 10**40, "0", None)),
    *(("dynamic_axes", value) for value in (*WRONG, {"x": None}, {"x": 5}, {"x": {0: 5}}, {"x": {0: ""}})),
    *(("dynamic_axes", {"x": {0: name}}) for name in ("5", "-1", "2 * 3", "a\0", "\ud800")),
    *(("dynamic_axes", value) for value in ({"x": {"0": "a"}}, {"x": ["a"]})),
    *(("custom_translation_table", value) for value in (*WRONG, {torch.add: len}, {torch.ops.aten.add: 5})),
    *(("training", value) for value in wrong_except()),
    *(("operator_export_type", value) for value in wrong_except()),
    *(("custom_opsets", value) for value in (*WRONG, {"": 1}, {"ai.onnx": 1}, {"a": "1"}, {"a": 0}, {"a": True})),
    *(("artifacts_dir", value) for value in (*wrong_except(str), "\0", "\ud800", "")),
    *(("export_modules_as_functions", value) for value in (*WRONG, [int], [])),
]


@pytest.mark.parametrize(("parameter", "value"), EXPORTS, ids=lambda value: None)
def test_export(parameter: str, value: Any) -> None:
    options = {"model": NotCaptured().eval(), "args": (X,), parameter: value}
    assert_refused(lambda: fx_onnx.export(**options))


def test_combinations_of_export(tmp_path: Path) -> None:
    module = NotCaptured().eval()
    (tmp_path / "file").touch()
    with (tmp_path / "closed").open("wb") as closed:
        pass
    options: tuple[dict[str, Any], ...] = (
        {"f": io.BytesIO(), "external_data": True}, {"f": closed}, {"f": io.StringIO()},
        {"report": True, "artifacts_dir": tmp_path / "file"}, {"profile": True, "artifacts_dir": tmp_path / "file"},
        {"dynamic_axes": {"x": [0]}, "dynamic_shapes": {"x": {0: "a"}}},
        {"export_modules_as_functions": True, "opset_version": 14},
    )  # fmt: skip
    for each in options:
        assert_refused(lambda each=each: fx_onnx.export(module, (X,), **each))  # type: ignore[misc]


Use = Callable[[ONNXProgram, Any], Any]
USES: list[tuple[Use, list[Any]]] = [
    (lambda p, v: p(v), [*wrong_except(Tensor), X[0], X[:, :3], X.double(), X.to_sparse(), X.to("meta")]),
    (lambda p, v: p(x=v), wrong_except(Tensor)),
    (lambda p, v: p(*v), [(), (X, X, X)]),
    (lambda p, v: p.call_structured(v), wrong_except(Tensor)),
    (lambda p, v: p.call_reference(v), wrong_except(Tensor)),
    (lambda p, v: p.apply_weights(v), wrong_except()),
    (lambda p, v: p.apply_weights({"fc.weight": v}), [*WRONG, torch.zeros(3, 4).to_sparse(), [[1.0] * 4] * 3]),
    (lambda p, v: p.apply_weights({v: X}), [5, "", "\0", "\ud800"]),
    (lambda p, v: p.compute_values(v, (X,)), [*WRONG, [], (), ["nothing"], [""], ["\0"]]),
    (lambda p, v: p.compute_values(["x"], v), wrong_except(Tensor)),
    (lambda p, v: p.compute_values(["x"], (X,), v), list(WRONG)),
    (lambda p, v: p.initialize_inference_session(v), list(WRONG)),
    (lambda p, v: p.rename_axes(v), list(WRONG)),
    (lambda p, v: p.rename_axes({"batch": v}), [*wrong_except(str), "", "5", "a+b", "\0", "\ud800"]),
    (lambda p, v: p.rename_axes({v: "n"}), [5, b"x", "", "\0", "\ud800"]),
    (lambda p, v: p.save(v), [*wrong_except(str), "\0", "\ud800", "a" * 300, "", ".", "nowhere/m.onnx"]),
    (lambda p, v: p.save("m.onnx", include_initializers=v), list(WRONG)),
    (lambda p, v: p.save("m.onnx", keep_initializers_as_inputs=v), list(WRONG)),
    (lambda p, v: p.save("m.onnx", external_data=v), [*WRONG, "weights.bin"]),
    (lambda p, v: p.save("m.onnx", weights_from=v), list(WRONG)),
    (lambda p, v: fx_onnx.verify(v, (X,)), list(WRONG)),
    (lambda p, v: fx_onnx.verify(p, v), wrong_except(Tensor)),
    (lambda p, v: fx_onnx.verify(p, (X,), v), list(WRONG)),
    (lambda p, v: fx_onnx.verify(p, (X,), module=v), list(WRONG)),
    (lambda p, v: fx_onnx.verify(p, (X,), rtol=v), [*wrong_except(int, float), -1.0, float("nan")]),
    (lambda p, v: fx_onnx.verify(p, (X,), atol=v), [*wrong_except(int, float), -1.0, float("nan")]),
    (lambda p, v: fx_onnx.optimize(v), list(WRONG)),
    (lambda p, v: fx_onnx.optimize(p.model, without=v), list(WRONG)),
    (lambda p, v: ONNXProgram(v), list(WRONG)),
    (lambda p, v: ONNXProgram(p.model, v), list(WRONG)),
    (lambda p, v: setattr(ONNXProgram(p.model), "model", v), list(WRONG)),
    (lambda p, v: _with_state(p, v), list(WRONG)),
]


def _with_state(program: ONNXProgram, state: Any) -> None:
    other = ONNXProgram(program.model)
    other.state = state
    other(X)


@pytest.mark.parametrize(("use", "values"), USES)
def test_uses_of_a_program(
    use: Use, values: list[Any], program: ONNXProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for value in values:
        assert_refused(lambda value=value: use(program, value))  # type: ignore[misc]
    assert list(tmp_path.iterdir()) == []
    assert program(X)[0].shape == (2, 3), "the program works after all refusals"


def entry(**changes: Any) -> dict[str, Any]:
    return {"fc.weight": {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48], **changes}}


HEADERS: list[Any] = [
    b'{"a":' + b"[" * 200_000, b'{"a":' * 100_000, b"\xff\xfe{}", b'{"a":' + b"1" * 5000 + b"}", [1], "x", 5, None,
    {"fc.weight": [1]}, {"fc.weight": "x"}, {"fc.weight": {}}, entry(data_offsets=["a", "b"]), entry(data_offsets=None),
    entry(data_offsets=[0, 48, 9]), entry(data_offsets=[0, 10**40]), entry(data_offsets=[48, 0]), entry(shape="34"),
    entry(shape=[-3, -4]), entry(shape=[10**30, 4]), entry(shape=[[3], 4]), entry(dtype=["F32"]), entry(dtype=5),
]  # fmt: skip


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: repr(header)[:40])
def test_hostile_safetensors_headers(header: Any, program: ONNXProgram, tmp_path: Path) -> None:
    data = header if isinstance(header, bytes) else json.dumps(header).encode()
    (tmp_path / "w.safetensors").write_bytes(struct.pack("<Q", len(data)) + data + bytes(48))
    assert_refused(lambda: program.save(tmp_path / "m.onnx", weights_from=tmp_path / "w.safetensors"))


@pytest.mark.parametrize(
    "text", [b'{"weight_map":' + b"[" * 200_000, b"[]", b'{"weight_map":[1]}', b'{"weight_map":5}']
)
def test_hostile_indices(text: bytes, program: ONNXProgram, tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_bytes(text)
    assert_refused(lambda: program.save(tmp_path / "m.onnx", weights_from=index))


def test_weights_may_be_arrays() -> None:
    module = nn.Linear(4, 3).eval()
    program = fx_onnx.export(module, (X,))
    weights = {"weight": np.ones((3, 4), np.float32), "bias": np.zeros(3, np.float32)}
    program.apply_weights(weights)
    torch.testing.assert_close(program(X)[0], X.sum(1, keepdim=True).expand(2, 3))
    with pytest.raises(ArgumentError, match=r"'weight' is DOUBLE\[3, 4\]"):
        program.apply_weights({"weight": np.ones((3, 4))})


def test_a_model_of_onnx_ir_is_accepted() -> None:
    graph = ir.Graph((), (), nodes=(), opset_imports={"": 20}, name="empty")
    assert len(ONNXProgram(ir.Model(graph, ir_version=10)).model.graph) == 0


def assert_refused(use: Callable[[], Any]) -> None:
    with pytest.raises(ArgumentError) as raised:
        use()
    message = str(raised.value)
    assert "\n" not in message
    assert len(message.partition(" [fx-onnx explain")[0]) < 1000
