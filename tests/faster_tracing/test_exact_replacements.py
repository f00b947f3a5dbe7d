"""The replacements together: captured programs, files and errors are equal with them and without them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

import fx_onnx
from fx_onnx.faster_tracing import replacement
from fx_onnx.faster_tracing.exact_replacements import REPLACEMENTS, faster_tracing
from fx_onnx.faster_tracing.replacement import OFF, unknown_sources
from tests.faster_tracing.adversarial_modules import FAILURES, MODULES, X
from tests.faster_tracing.program_differences import differences
from tests.torch_versions import needs

COND = pytest.param("cond", marks=needs("compiled control flow"))


@needs("known sources")
def test_the_replacements_apply_to_the_installed_torch() -> None:
    assert [unknown for each in REPLACEMENTS for unknown in unknown_sources(each)] == []


def test_the_replacements_are_few_and_have_reasons() -> None:
    targets = [target for each in REPLACEMENTS for target in each.targets]
    assert len(set(targets)) == len(targets) <= 20
    assert [each.targets for each in REPLACEMENTS if not each.reason.endswith(".") or not each.make.__doc__] == []


def _captured(name: str) -> ExportedProgram:
    module, args, shapes = MODULES[name]
    return torch.export.export(module, args, dynamic_shapes=shapes, strict=False)


@pytest.mark.parametrize("name", [COND if name == "cond" else name for name in MODULES])
def test_captured_programs_are_equal(name: str) -> None:
    _captured(name)  # torch's caches: a first capture of a cond calls more functions than others
    expected = _captured(name)
    with faster_tracing():
        captured = _captured(name)
    assert differences(expected, captured) == []


def test_a_difference_is_found() -> None:
    program, other = (torch.export.export(nn.ReLU(), (torch.ones(size),)) for size in (2, 3))
    assert any("ones" in each or "shape" in each or "Size" in each for each in differences(program, other))


def _without(monkeypatch: pytest.MonkeyPatch, export: Callable[[], Any]) -> Any:
    with monkeypatch.context() as patch:
        patch.setenv(OFF, "0")
        return export()


@pytest.mark.parametrize("name", FAILURES)
def test_errors_are_equal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, args, shapes = FAILURES[name]

    def error() -> tuple[str, str]:
        with pytest.raises(fx_onnx.OnnxExporterError) as found:
            fx_onnx.export(module, args, dynamic_shapes=shapes)
        return str(found.value), str(found.value.__cause__)

    assert error() == _without(monkeypatch, error)


@pytest.mark.parametrize("name", ["twice", "convolutions", COND, "modes", "sizes", "encoder", "script"])
def test_files_are_equal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (nn.Sequential(torch.jit.script(nn.Linear(4, 4)), nn.Tanh()), (X,), ({0: torch.export.Dim.AUTO},))
    module, args, shapes = {**MODULES, "script": script}[name]

    def content() -> bytes:
        program = fx_onnx.export(module, args, dynamic_shapes=shapes, verbose=False)
        content: bytes = program.model_proto.SerializeToString(deterministic=True)
        return content

    assert content() == _without(monkeypatch, content)


@pytest.mark.parametrize("name", ["weights", COND, "encoder"])
def test_another_thread_captures_with_torchs_functions(name: str) -> None:
    _captured(name)
    expected, folder = _captured(name), str(Path(replacement.__file__).parent)
    found: list[Any] = []

    def capture() -> None:
        files: set[str] = set()
        sys.setprofile(lambda frame, *_: files.add(frame.f_code.co_filename))
        try:
            program = _captured(name)
        finally:
            sys.setprofile(None)
        found.append((differences(expected, program), [each for each in files if each.startswith(folder)]))

    with faster_tracing():
        thread = threading.Thread(target=capture)
        thread.start()
        thread.join()
    assert found == [([], [])]


def test_another_thread_works_beside_exports() -> None:
    """Not torch.export, of which torch runs one at a time: what it replaces while it traces, all threads see."""
    graph, done, calls, errors = fx.Graph(), threading.Event(), [0], list[Exception]()
    graph.output(graph.call_function(torch.relu, (graph.placeholder("x"),)))

    def work() -> None:
        while not done.is_set():
            try:
                with FakeTensorMode() as mode:
                    y = torch.empty(2, 3).T.reshape(-1, 2)[1:] @ torch.ones(2, 5)
                assert (tuple(y.shape), y.fake_mode, y.nonzero_memo) == ((2, 5), mode, None)
                assert pytree.tree_map(abs, {"a": [-1, (2,)]}) == {"a": [1, (2,)]}
                assert fx.GraphModule(nn.Module(), graph)(-torch.ones(1)) == 0
                calls[0] += 1
            except Exception as error:
                errors.append(error)

    module, args, shapes = MODULES["sizes"]
    thread = threading.Thread(target=work)
    thread.start()
    try:
        files = {fx_onnx.export(module, args, dynamic_shapes=shapes, verbose=False).model_proto.SerializeToString()}
        files.add(fx_onnx.export(module, args, dynamic_shapes=shapes, verbose=False).model_proto.SerializeToString())
    finally:
        done.set()
        thread.join()
    assert (errors, len(files)) == ([], 1)
    assert calls[0] > 10
