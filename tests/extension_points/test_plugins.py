"""Plug-ins: the example package, installed into an environment of its own, and what goes wrong with others."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import onnx
import onnxruntime
import pytest
import torch

import fx_onnx
from fx_onnx.extension_points.rooms import is_installed
from fx_onnx.targets.known_targets import find_target
from tests.sources import ROOT

Install = Callable[..., None]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns an environment that imports what this one does, with docs/examples/plugin, without network."""
    pytest.importorskip("setuptools")
    source, folder = (tmp_path_factory.mktemp(name) for name in ("source", "environment"))
    shutil.copytree(ROOT / "docs" / "examples" / "plugin", source, dirs_exist_ok=True)
    venv.create(folder, with_pip=False)
    _packages(folder).joinpath("others.pth").write_text("\n".join([str(ROOT), *filter(os.path.isdir, sys.path)]))
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "--python", _python(folder), "install", *options, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def _packages(environment: Path) -> Path:
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(environment)}))


def _python(environment: Path) -> str:
    scripts = Path(sysconfig.get_path("scripts", "venv", {"base": str(environment)}))
    return str(scripts / f"python{sysconfig.get_config_var('EXE')}")


@pytest.fixture
def example(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets this process import the example package too."""
    monkeypatch.syspath_prepend(_packages(environment))


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


@pytest.mark.skipif(not is_installed("cli"), reason="the command is a room")
def test_the_example_package_in_its_environment(environment: Path, tmp_path: Path) -> None:
    """A file that knows nothing of the plug-in is exported by the command."""
    (tmp_path / "network.py").write_text(
        "import torch\n\n\nclass Network(torch.nn.Module):\n"
        "    def forward(self, x):\n        return x * torch.sigmoid(1.702 * x)\n"
    )
    command = [_python(environment), "-m", "fx_onnx.cli", "export", "network:Network", "--input", "x=float32[2]"]
    command += ["--target", "example-runtime", "-o", "model.onnx"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    model = onnx.load(tmp_path / "model.onnx")
    assert [node.op_type for node in model.graph.node] == ["QuickGelu"]
    assert {each.domain: each.version for each in model.opset_import}[""] == 19


@pytest.mark.usefixtures("example")
def test_a_task_and_a_layout(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model = transformers.BertModel(transformers.BertConfig(**sizes, vocab_size=9)).eval()
    options = {"task": "example-pooling", "layout": "example-app"}
    (file,) = fx_onnx.export_pretrained(model, tmp_path / "folder", **options)
    session = onnxruntime.InferenceSession(tmp_path / "folder" / "network.onnx")
    assert file.name == "network.onnx"
    assert [each.name for each in session.get_outputs()] == ["pooler_output"]
    with pytest.raises(fx_onnx.ArgumentError, match=r"'exemple-app' .*; did you mean 'example-app'"):
        fx_onnx.export_pretrained(model, tmp_path / "folder", layout="exemple-app")
    with pytest.raises(fx_onnx.ArgumentError, match="'int8' is not one of fp32, fp16"):
        fx_onnx.export_pretrained(model, tmp_path / "folder", precision="int8", **options)


@pytest.mark.usefixtures("example")
def test_the_example_package_in_a_process_that_runs(caplog: pytest.LogCaptureFixture) -> None:
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
    record = "import fx_onnx\nvalue = fx_onnx.Target('tract', '1')"
    install("plugin_l", record, targets="tract")
    with pytest.raises(fx_onnx.OnnxExporterError, match=r"plugin_l 1\.0 has a plug-in 'tract' in fx_onnx.targets"):
        find_target("tract")
    install("plugin_m", "value = [3]", rules="mine")
    with pytest.raises(fx_onnx.OnnxExporterError, match=r"'mine' of plugin_m 1\.0 is not valid: 3 in rules is not"):
        fx_onnx.export(torch.nn.ReLU(), (torch.randn(2),), rules=["mine"])


@pytest.mark.parametrize(
    ("package", "group", "name", "code", "message"),
    [
        ("plugin_n", "tasks", "mine", "value = []", "is a tuple of records of fx_onnx.Task"),
        ("plugin_o", "tasks", "fill-mask", "value = ()", "'fill-mask' in fx_onnx.tasks, which is a name of fx_onnx"),
        ("plugin_p", "layouts", "mine", "value = {}", "is a record of fx_onnx.Layout"),
        (
            "plugin_q", "layouts", "mine",
            "import fx_onnx\nvalue = fx_onnx.Layout({}, {'fp99': ''})",
            "cannot be loaded: ValueError: 'fp99' in suffixes is not one of the precisions fp32",
        ),
    ],
)  # fmt: skip
def test_broken_tasks_and_layouts(
    install: Install, package: str, group: str, name: str, code: str, message: str, tmp_path: Path
) -> None:
    install(package, code, **{group: name})
    pytest.importorskip("transformers")
    model = SimpleNamespace(config=None, forward=None, eval=lambda: None)
    with pytest.raises(fx_onnx.OnnxExporterError) as caught:
        fx_onnx.export_pretrained(model, tmp_path / "out", **{group.removesuffix("s"): name})
    assert message in str(caught.value)
