"""The command as a user calls it: options, output, files and exit codes."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
import transformers
import typer

from fx_onnx.cli.app import app, main
from fx_onnx.targets.known_targets import NAMES
from tests.models.decoders import decoder, tokenizer

MODELS = """
import torch

def build():
    return torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())

def wrong():
    class Wrong(torch.nn.Module):
        def forward(self, x):
            return (x + int(self.training), x) if x.sum() > 0 else x
    return Wrong()

class Two(torch.nn.Module):
    def forward(self, x, y, flag: bool = False):
        return x + y if flag else x - y

def two():
    return Two(), (torch.ones(2), torch.ones(2))

class Nested(torch.nn.Module):
    def forward(self, batch, n, *, scale):
        return batch["a"] * scale + n, batch["b"][0] * scale

def nested():
    return Nested(), ({"a": torch.ones(2), "b": [torch.ones(3)]}, 2), {"scale": torch.ones(1)}
"""


COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("captured") / "model.pt2"
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)), path)
    return path


@pytest.fixture(autouse=True)
def folder(captured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "models.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "models", raising=False)
    shutil.copy(captured, tmp_path)
    return tmp_path


def run(command: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Runs the command in this process and returns its exit code."""
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    with pytest.raises(SystemExit) as exit_:
        main()
    code = exit_.value.code
    return code if isinstance(code, int) else 0


@pytest.mark.parametrize(
    ("options", "inputs"),
    [
        ("dynamic.pt2 --dynamic input:0=rows", ["input: float[rows]"]),
        ("models:two --dynamic x:0=n --dynamic y:0=n", ["x: float[n]", "y: float[n]"]),
        ("nested.pt2 --dynamic batch_b_0:0=n", ["batch_a: float[2]", "batch_b_0: float[n]", "scale: float[1]"]),
        ("models:nested --dynamic batch_b_0:0=n", ["batch_a: float[2]", "batch_b_0: float[n]", "scale: float[1]"]),
    ],
)
def test_dynamic_dims_of_a_source_with_inputs(
    options: str, inputs: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dim = torch.export.Dim("n")
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(2),), dynamic_shapes=({0: dim},))
    torch.export.save(program, "dynamic.pt2")
    namespace: dict[str, Any] = {}
    exec(MODELS, namespace)
    module, args, kwargs = namespace["nested"]()
    shapes = {"batch": {"a": None, "b": [{0: dim}]}, "n": None, "scale": None}
    torch.export.save(torch.export.export(module, args, kwargs, dynamic_shapes=shapes), "nested.pt2")
    assert run(f"fx-onnx export {options} -o m.onnx --json", monkeypatch) == 0
    assert json.loads(capsys.readouterr().out)["inputs"] == inputs


def test_export(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    command = "fx-onnx export models:build --input x=float32[2,8] --dynamic x:0=n -o m.onnx --opset 18 --verify --json"
    assert run(command, monkeypatch) == 0
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert facts["inputs"] == ["x: float[n, 8]"]
    assert facts["opset"] == {"": 18}
    assert facts["operators"] == {"Gemm": 1, "Relu": 1}
    assert facts["seconds"].keys() >= {"capture", "verify", "save"}
    assert facts["warnings"] == []
    assert onnx.load("m.onnx").opset_import[0].version == 18


def test_verify_prints_the_comparison(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "fx-onnx export models:build --input x=float32[2,8] -o m.onnx"
    for option, is_compared in (("", False), (" --verify", True), (" --verify --quiet", False)):
        assert run(command + option, monkeypatch) == 0
        printed = capsys.readouterr().out
        assert ("The ONNX program agrees with the PyTorch module (1 output)." in printed) == is_compared


def test_names_may_be_parameters(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    command = "fx-onnx export models:Two --input y=float32[2] --input x=float32[2] --input flag=True -o m.onnx --json"
    assert run(command, monkeypatch) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["inputs"] == ["y: float[2]", "x: float[2]"]
    assert facts["operators"] == {"Add": 1}


def test_a_torchscript_file(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    torch.jit.save(torch.jit.script(torch.nn.ReLU()), folder / "m.pt")
    assert run("fx-onnx export m.pt --input input=float32[2] --dynamic input:0=n -o m.onnx --json", monkeypatch) == 0
    assert json.loads(capsys.readouterr().out)["inputs"] == ["input: float[n]"]


def test_the_output_is_short_and_quiet_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("fx-onnx export models:two -o m.onnx", monkeypatch) == 0
    assert capsys.readouterr().out.startswith("m.onnx: ONNXProgram(opset")
    monkeypatch.setattr("fx_onnx.program.progress_bar.is_interactive", lambda: True)
    monkeypatch.setattr("fx_onnx.program.progress_bar._DELAY_SECONDS", 1e-9)
    assert run("fx-onnx export model.pt2 --target openvino -o m.onnx -q", monkeypatch) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("fx-onnx export models:build -o m.onnx", 2, "The arguments do not fit forward"),
        ("fx-onnx export models:two --input x=float32[2] -o m.onnx", 2, "The source has its own inputs"),
        (
            "fx-onnx export models:Two --input x=float32[2] --input z=float32[2] -o m.onnx",
            2,
            "no input 'z'; its inputs",
        ),
        (
            "fx-onnx export models:Two --input x=float32[2] --input yy=float32[2] -o m.onnx",
            2,
            "no input 'yy'; its inputs are x, y, flag; did you mean 'y'?",
        ),
        ("fx-onnx export models:build --input x=float32[2,8] -o nowhere/m.onnx", 2, "nowhere"),
        ("fx-onnx export models:build --input x=float32[2,8] -o m.onnx --opset 99", 2, "99"),
        ("fx-onnx export models:wrong --input x=float32[2] -o m.onnx", 1, "fx-onnx: "),
        ("fx-onnx export models:two -o m.onnx --target toaster", 2, "toaster"),
        ("fx-onnx export models:build", 2, "--output"),
        (
            "fx-onnx export hf:bert-base-uncased -o m.onnx",
            2,
            "There is no folder bert-base-uncased, and nothing is downloaded; write the model to a folder with "
            "`save_pretrained`",
        ),
        ("fx-onnx check none.onnx", 2, "There is no file none.onnx"),
        ("fx-onnx check .", 2, ". is a folder, not an ONNX file."),
        ("fx-onnx sing", 2, "sing"),
    ],
)
def test_mistakes(
    command: str, code: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, monkeypatch) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert not Path("m.onnx").exists()


def test_check_show_and_diff(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        assert run(f"fx-onnx export models:build --input x=float32[2,8] -o {name}.onnx -q", monkeypatch) == 0
    assert run("fx-onnx check a.onnx", monkeypatch) == 0
    assert "valid" in capsys.readouterr().out
    assert run("fx-onnx show a.onnx", monkeypatch) == 0
    assert re.search(r"1 Gemm\n +1 Relu\n$", capsys.readouterr().out)
    assert run("fx-onnx diff a.onnx a.onnx", monkeypatch) == 0
    assert "The models have equal operators" in capsys.readouterr().out
    assert run("fx-onnx diff a.onnx b.onnx --json", monkeypatch) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["weights"] == ["0.bias: other values", "0.weight: other values"]


def test_check_for_a_runtime(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The runtime's support is printed, and a node without a kernel is a problem; the target is looked up first."""
    text = "g (float[3] x) => (float[K] y, int64[K] i) <int64[1] k = {2}> { y, i = TopK(x, k) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}'), "sorted.onnx")
    assert run("fx-onnx check sorted.onnx --runtime openvino", monkeypatch) == 0
    assert "openvino: 100.0% of 1 nodes have a kernel" in capsys.readouterr().out
    assert run("fx-onnx check sorted.onnx --runtime webgpu --json", monkeypatch) == 1
    assert "TopK" in json.loads(capsys.readouterr().out)["support"]
    assert run("fx-onnx check none.onnx --runtime nothing", monkeypatch) == 2
    assert run("fx-onnx check sorted.onnx --runtime webgpu --input y=float32[2]", monkeypatch) == 2
    assert "The model has no input 'y'" in capsys.readouterr().err
    assert run("fx-onnx check sorted.onnx --input x=float32[2]", monkeypatch) == 2
    assert "--input needs --runtime" in capsys.readouterr().err


def test_a_broken_model_fails_the_check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx.helper.make_model(onnx.helper.make_graph([onnx.helper.make_node("No", [], ["y"])], "g", [], []))
    onnx.save(model, "m.onnx")
    assert run("fx-onnx check m.onnx -q", monkeypatch) == 1


def test_versions(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("fx-onnx versions --json", monkeypatch) == 0
    assert json.loads(capsys.readouterr().out)["torch"] == importlib.metadata.version("torch")


def test_the_module_runs() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "fx_onnx.cli", "--help"], capture_output=True, text=True, check=True, timeout=120
    )
    assert all(name in result.stdout for name in ("export", "check", "show", "diff", "versions"))


def test_the_examples_of_the_help_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.LlamaConfig(vocab_size=9, num_key_value_heads=1, **sizes)
    transformers.LlamaForCausalLM(config).save_pretrained(folder / "path" / "to" / "folder")
    examples = re.findall(r"^fx-onnx .*$", "\n".join(each.epilog or "" for each in COMMANDS.values()), re.M)
    assert len(examples) >= 6
    call = "torch.onnx.export(torch.nn.ReLU().eval(), (torch.ones(2),), sys.argv[1])"
    (folder / "export_model.py").write_text(f"import sys, torch\n{call}\n")
    ordered = sorted(examples, key=lambda example: " check " in example)
    for example in (*ordered[:-1], examples[0], ordered[-1]):  # the model of the first has the input of the last
        assert run(example, monkeypatch) == 0, example
        for copy in ("before.onnx", "after.onnx"):
            shutil.copy("model.onnx", copy)


def test_every_command_has_help() -> None:
    for name, each in COMMANDS.items():
        assert each.help, name
        assert all(parameter.help for parameter in each.params if parameter.name not in ("help",)), name


def test_a_folder_for_genai(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--genai is short for --layout genai --output, and takes the same options."""
    decoder("llama", layers=1).save_pretrained(folder / "hub")
    tokenizer().save_pretrained(folder / "hub")
    options = "--target onnxruntime --no-external-data --report --metadata none --no-optimize eliminate_identities"
    for place in ("--genai a", "--layout genai -o b"):
        assert run(f"fx-onnx export hf:hub {options} -q {place}", monkeypatch) == 0
    files = [{path.name: path.read_bytes() for path in (folder / name).iterdir()} for name in "ab"]
    assert files[0] == files[1] and {"tokenizer.json", "model.onnx"} < {*files[0]} and "model.onnx.data" not in files[0]
    content = json.loads(files[0]["genai_config.json"])
    assert content["model"]["eos_token_id"] == 2 and content["model"]["context_length"] == 256
    assert not any(node.metadata_props for node in onnx.load_from_string(files[0]["model.onnx"]).graph.node)
    assert len([*folder.glob("onnx_export_*_success.html")]) == 2


@pytest.mark.parametrize("options", ["", "--genai out -o out.onnx", "--genai out --layout optimum"])
def test_one_destination_is_needed(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(f"fx-onnx export models:two {options}", monkeypatch) == 2


def test_passes_and_metadata_are_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "swish.py").write_text(
        "import torch\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x * torch.sigmoid(x)\n"
    )
    export = "fx-onnx export swish:Net --input x=float32[2] --opset 24 -q -o m.onnx"
    for options, expected in (
        ("", ["Swish"]),
        (" --no-optimize fuse_swish --no-optimize merge_casts", ["Sigmoid", "Mul"]),
        (" --no-optimize all", ["Sigmoid", "Mul"]),
        (" --metadata none", ["Swish"]),
    ):
        assert run(export + options, monkeypatch) == 0
        graph = onnx.load("m.onnx").graph
        assert [node.op_type for node in graph.node] == expected
        assert bool(graph.node[0].metadata_props) == ("none" not in options)
    assert run(f"{export} --no-optimize fuse_swihs", monkeypatch) == 2
    assert "did you mean 'fuse_swish'" in capsys.readouterr().err
    assert run(f"{export} --metadata some", monkeypatch) == 2


def test_show_writes_the_report(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("fx-onnx export models:build --input x=float32[2,8] --report -q -o m.onnx", monkeypatch) == 0
    assert sorted(path.suffix for path in folder.glob("onnx_export_*_success.*")) == [".html", ".md"]
    assert run("fx-onnx show m.onnx --html", monkeypatch) == 0
    assert capsys.readouterr().out.endswith("report: m.html\n")
    text = (folder / "m.html").read_text(encoding="utf-8")
    assert "The model was read from a file." in text
    assert "aten.linear.default" in text


def test_a_failure_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("fx-onnx export models:wrong --input x=float32[2] -o m.onnx --json --training", monkeypatch) == 1
    output = capsys.readouterr()
    found = json.loads(output.out)
    assert found["error"]["id"] == "FX1102" and found["error"]["place"].endswith("models.py:10")
    assert output.err == f"fx-onnx: {found['error']['message']} [fx-onnx explain FX1102]\n"
    assert [text[-8:] for text in found["warnings"]] == ["[FX1011]"]
    assert run("fx-onnx check none.onnx --json", monkeypatch) == 2
    assert json.loads(capsys.readouterr().out)["error"]["id"] == "FX1510"


WITHOUT_TORCH = {
    "--help": 0,
    "--version": 0,
    "export --help": 0,
    "sing": 2,
    "export": 2,
    "export models:build": 2,
    "export models:build -o m.onnx --target toaster": 2,
    "export models:build -o m.onnx --input x=flat": 2,
    "export nowhere.pt2 -o m.onnx": 2,
    "export nowhere:build -o m.onnx": 2,
    "export hf:nowhere -o m.onnx": 2,
    "check none.onnx": 2,
    "export hf:folder -o out --layout optimun": 2,
    "export hf:folder -o out --layout optimum --precision q3": 2,
    "export models:build -o out --precision q4": 2,
    "versions": 0,
}


def test_help_and_usage_errors_import_no_torch() -> None:
    """One process runs the commands, so the first one that imports a library is the first that differs."""
    text = f"""
import shlex, sys
from fx_onnx.cli.app import main
for command in {[*WITHOUT_TORCH]!r}:
    sys.argv = ["fx-onnx", *shlex.split(command)]
    try:
        main()
    except SystemExit as exit_:
        loaded = {{"torch", "onnx", "onnx_ir", "transformers"}} & set(sys.modules)
        print("exit", exit_.code or 0, *loaded, command, file=sys.stderr)
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", text], cwd=root, capture_output=True, text=True, check=True)
    found = [line for line in done.stderr.splitlines() if line.startswith("exit ")]
    assert found == [f"exit {code} {command}" for command, code in WITHOUT_TORCH.items()], done.stderr


def test_the_help_has_whole_sentences_and_the_values_of_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("fx-onnx --help", monkeypatch) == 0
    assert re.findall(r"\w\.\.\.", capsys.readouterr().out) == []
    assert run("fx-onnx export --help", monkeypatch) == 0
    text = "".join(capsys.readouterr().out.split())
    assert all(name in text for name in NAMES)
    assert run("fx-onnx --version", monkeypatch) == 0
    assert re.fullmatch(r"fx_onnx \d+\.\d+\S*\n", capsys.readouterr().out)


def test_the_path_of_the_report_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for source, code in (("models:build --input x=float32[2,8]", 0), ("models:wrong --input x=float32[2]", 1)):
        assert run(f"fx-onnx export {source} -o m.onnx --report", monkeypatch) == code
        (line,) = re.findall(r"^report: (\S+\.html)$", capsys.readouterr().err, re.M)
        assert Path(line).is_file()
    run("fx-onnx export models:build --input x=float32[2,8] -o m.onnx --report --json", monkeypatch)
    assert Path(json.loads(capsys.readouterr().out)["report"]).is_file()
