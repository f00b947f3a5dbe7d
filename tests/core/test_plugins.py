"""Plug-ins: the example package, installed into a folder of its own, and what goes wrong with others."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
import torch

import fx_onnx
from fx_onnx.targets.known_targets import find_target
from tests.sources import ROOT

Install = Callable[..., None]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder into which pip built and installed docs/examples/plugin, without network."""
    pytest.importorskip("setuptools")
    source, folder = (tmp_path_factory.mktemp(name) for name in ("source", "installed"))
    shutil.copytree(ROOT / "docs" / "examples" / "plugin", source, dirs_exist_ok=True)
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Returns what makes a package of one module, with entry points, that this process can import."""

    def write(package: str, code: str, **entries: str) -> None:
        folder = tmp_path / package
        (folder / f"{package}-1.0.dist-info").mkdir(parents=True)
        (folder / f"{package}.py").write_text(code, encoding="utf-8")
        texts = [f"[fx_onnx.{group}]\n{name} = {package}:value\n" for group, name in entries.items()]
        (folder / f"{package}-1.0.dist-info" / "entry_points.txt").write_text("\n".join(texts), encoding="utf-8")
        metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
        (folder / f"{package}-1.0.dist-info" / "METADATA").write_text(metadata, encoding="utf-8")
        monkeypatch.syspath_prepend(folder)

    return write


class HalfSquare(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.ops.example_plugin.half_square(x)
        return y * torch.sigmoid(1.702 * y)


def test_the_example_package(example: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.syspath_prepend(example)
    import_module("fx_onnx_example_plugin")
    x = torch.randn(2, 3)
    with caplog.at_level(logging.INFO, "fx_onnx"):
        program = fx_onnx.export(HalfSquare(), (x,), rules=["example"])
    assert [node.op_type for node in program.model.graph] == ["Mul", "Mul", "QuickGelu"]
    torch.testing.assert_close(program(x)[0], HalfSquare()(x))
    program = fx_onnx.export(HalfSquare(), (x,), target="example-runtime")
    assert [node.op_type for node in program.model.graph] == ["Mul", "Mul", "QuickGelu"]
    assert program.model.graph.opset_imports[""] == 19
    program = fx_onnx.export(
        HalfSquare(), (x,), custom_translation_table={torch.ops.example_plugin.half_square: lambda op, x: op.Abs(x)}
    )
    assert next(iter(program.model.graph)).op_type == "Abs"
    with pytest.raises(fx_onnx.ArgumentError, match="'exemple'; did you mean 'example'"):
        fx_onnx.export(HalfSquare(), (x,), rules=["exemple"])


RELU = "def value():\n    return {'aten::relu': lambda op, x: op.Abs(x)}\n"


def exported() -> list[str]:
    program = fx_onnx.export(torch.nn.ReLU(), (torch.randn(2),))
    return [node.op_type for node in program.model.graph]


def test_a_plug_in_has_precedence_over_the_package(install: Install) -> None:
    install("plugin_a", RELU, translations="mine")
    assert exported() == ["Abs"]


def test_two_plug_ins_that_claim_one_operator(install: Install) -> None:
    install("plugin_b", RELU, translations="mine")
    install("plugin_c", RELU, translations="other")
    with pytest.raises(fx_onnx.OnnxExporterError, match=r"'mine' of plugin_b 1.0 and 'other' of plugin_c 1.0 both tr"):
        exported()


def test_two_plug_ins_of_one_name(install: Install) -> None:
    install("plugin_d", "value = 1", targets="fast")
    install("plugin_e", "value = 1", targets="fast")
    with pytest.raises(fx_onnx.OnnxExporterError, match=r"both have a plug-in 'fast' in fx_onnx.targets.*FX1604"):
        find_target("fast")


@pytest.mark.parametrize(
    ("package", "code", "message"),
    [
        ("plugin_f", "import nothing_at_all", "'mine' of plugin_f 1.0 cannot be loaded: ModuleNotFoundError: No mod"),
        ("plugin_g", "def value(): raise OSError('no disk')", "plugin_g 1.0 cannot be loaded: OSError: no disk; rep"),
        ("plugin_h", "value = 'relu'", "plugin_h 1.0 is 'relu', but an entry of fx_onnx.translations is a dict like"),
        ("plugin_i", "value = {'relu': print}", "plugin_i 1.0 is not valid: A key of custom_translation_table must"),
        ("plugin_j", "value = {'aten::relu': 1}", "plugin_j 1.0 is not valid: The translation of aten.relu"),
    ],
)
def test_a_broken_plug_in_is_one_sentence(install: Install, package: str, code: str, message: str) -> None:
    install(package, code, translations="mine")
    with pytest.raises(fx_onnx.OnnxExporterError) as caught:
        exported()
    assert message in str(caught.value)


def test_the_operators_of_absent_libraries_are_left_out(install: Install) -> None:
    install("plugin_k", "value = {'no_such_library::relu': lambda op, x: op.Abs(x)}", translations="mine")
    assert exported() == ["Relu"]


def test_targets_and_rules_that_are_none(install: Install) -> None:
    record = "from fx_onnx.targets.target import Target\nvalue = Target('tract', '1')"
    install("plugin_l", record, targets="tract")
    with pytest.raises(fx_onnx.OnnxExporterError, match=r"plugin_l 1\.0 has a target .tract., which is one of"):
        find_target("tract")
    install("plugin_m", "value = [3]", rules="mine")
    with pytest.raises(fx_onnx.OnnxExporterError, match=r"'mine' of plugin_m 1\.0 is not valid: 3 in rules is not"):
        fx_onnx.export(torch.nn.ReLU(), (torch.randn(2),), rules=["mine"])
