"""Tests of the files that are copied or written beside the graphs."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import transformers

from fx_onnx.applications.folder_files import complete_tokenizer, copy_files, replaced
from fx_onnx.applications.layouts import LAYOUTS
from fx_onnx.applications.source import Source
from fx_onnx.applications.tasks import TASKS
from fx_onnx.messages.errors import ArgumentError, OnnxExporterError, OnnxExporterWarning
from fx_onnx.messages.message_ids import MessageId

_ROW = TASKS["fill-mask"][0]


def test_files_of_transformers_5_are_made_readable_for_older_clients(tmp_path: Path) -> None:
    source, folder = tmp_path / "source", tmp_path / "out"
    (source / ".cache").mkdir(parents=True)
    processor = {"processor_class": "P", "feature_extractor": {"feature_size": 8}}
    files: dict[str, Any] = {
        "processor_config.json": processor,
        "tokenizer_config.json": {"tokenizer_class": "TokenizersBackend", "extra_special_tokens": ["p"]},
        "config.json": {},
    }
    for name, content in files.items():
        (source / name).write_text(json.dumps(content))
    (source / "model.safetensors").write_text("weights")
    copy_files(Source(None, "fill-mask", _ROW, source, ()), folder)
    found = {path.name: json.loads(path.read_text()) for path in folder.iterdir()}
    assert found == {
        **files,
        "preprocessor_config.json": {"feature_size": 8, "processor_class": "P"},
        "tokenizer_config.json": {
            "additional_special_tokens": ["p"], "tokenizer_class": "PreTrainedTokenizerFast"
        },
    }  # fmt: skip


def test_a_loaded_model_writes_its_files(tmp_path: Path) -> None:
    config = transformers.GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=9)
    saved: list[Path] = []
    processor = SimpleNamespace(save_pretrained=saved.append)
    copy_files(Source(transformers.GPT2LMHeadModel(config), "text-generation", _ROW, None, (processor,)), tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["GPT2LMHeadModel"]
    assert (tmp_path / "generation_config.json").is_file() and saved == [tmp_path]


def _slow(folder: Path) -> Any:
    (folder / "vocab.json").write_text('{"<pad>": 0, "<unk>": 1, "|": 2, "A": 3, "O": 4}')
    return transformers.Wav2Vec2CTCTokenizer(folder / "vocab.json")


def test_a_tokenizer_in_older_files_gets_tokenizer_json(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat"]))
    tokenizer = transformers.BertTokenizer.from_pretrained(tmp_path)
    complete_tokenizer(
        Source(None, "", _ROW, tmp_path, (tokenizer,)), tmp_path, LAYOUTS["transformers.js"], takes_tokens=True
    )
    read = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    assert read("a photo of a cat").input_ids == tokenizer("a photo of a cat").input_ids == [2, 5, 1, 1, 5, 6, 3]


@pytest.mark.parametrize(
    ("layout", "make", "reason"),
    [
        ("transformers.js", lambda folder: (_slow(folder),), "transformers cannot convert Wav2Vec2CTCTokenizer"),
        ("genai", lambda folder: (), "the source has none"),
        ("optimum", lambda folder: (), "The folder has no tokenizer, because the source has none"),
        ("optimum", lambda folder: (_slow(folder),), None),
    ],
)
def test_a_tokenizer_that_the_application_lacks_is_told(
    layout: str, make: Any, reason: str | None, tmp_path: Path, recwarn: Any
) -> None:
    complete_tokenizer(Source(None, "", _ROW, tmp_path, make(tmp_path)), tmp_path, LAYOUTS[layout], takes_tokens=True)
    found = [str(warning.message) for warning in recwarn if warning.category is OnnxExporterWarning]
    assert [reason is not None and reason in text for text in found] == [True] * (reason is not None)
    assert not (tmp_path / "tokenizer.json").exists()


def test_a_model_of_images_needs_no_tokenizer(tmp_path: Path, recwarn: Any) -> None:
    complete_tokenizer(Source(None, "", _ROW, tmp_path, ()), tmp_path, LAYOUTS["transformers.js"], takes_tokens=False)
    assert not recwarn


def test_a_pipeline_names_the_fast_class_of_a_tokenizer_and_has_two_halves(tmp_path: Path) -> None:
    source, folder = tmp_path / "source", tmp_path / "out"
    index = {
        "_class_name": "P",
        "safety_checker": [None, None],
        **{name: ["transformers", "CLIPTokenizer"] for name in ("tokenizer", "tokenizer_2")},
    }
    for name in ("tokenizer/tokenizer.json", "tokenizer_2/tokenizer.json", "tokenizer_2/vocab.json", "vae/config.json"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("{}")
    for name in ("tokenizer", "tokenizer_2"):
        (source / name / "tokenizer_config.json").write_text('{"tokenizer_class": "CLIPTokenizer"}')
    (source / "model_index.json").write_text(json.dumps(index))
    copy_files(Source(None, "diffusion", _ROW, source, ()), folder)
    assert json.loads((folder / "model_index.json").read_text()) == {
        **index, "tokenizer": ["transformers", "CLIPTokenizerFast"]
    }  # fmt: skip
    assert all((folder / name / "config.json").is_file() for name in ("vae_encoder", "vae_decoder"))


def test_a_loaded_pipeline_writes_its_files(tmp_path: Path) -> None:
    """A model of diffusers has save_config, a model of transformers has a config, other parts have save_pretrained."""
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=9))
    saved: list[Path] = []
    unet = SimpleNamespace(forward=print, save_config=saved.append)
    parts = {"unet": unet, "text_encoder": model, "scheduler": SimpleNamespace(save_pretrained=saved.append)}
    pipeline = SimpleNamespace(components={**parts, "safety_checker": None}, save_config=saved.append)
    copy_files(Source(pipeline, "diffusion", _ROW, None, ()), tmp_path)
    assert saved == [tmp_path, tmp_path / "unet", tmp_path / "scheduler"]
    assert [path.name for path in tmp_path.rglob("*")] == ["text_encoder", "config.json"]


def test_an_interrupted_export_leaves_the_old_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("old")
    full = OnnxExporterError("x/.out.123/new/model.onnx", id=MessageId.FILE)
    full.__cause__ = OSError(28, "No space left")
    for error, raised, text in (
        (KeyboardInterrupt(), KeyboardInterrupt, ""),
        (OSError(28, "No space left"), ArgumentError, "out cannot be written: No space left; nothing has changed"),
        (full, ArgumentError, "out cannot be written: No space left; nothing has changed"),
        (OnnxExporterError("another", id=MessageId.FILE), OnnxExporterError, "another"),
    ):
        with pytest.raises(raised, match=text), replaced(tmp_path / "out") as new:
            (new / "half").write_text("half")
            raise error
        assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["out", "out/old"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(13, "Permission denied")])
def test_an_error_while_the_folder_is_replaced_leaves_the_old_one(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("old")
    rename = Path.rename

    def fail(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise error
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises((KeyboardInterrupt, ArgumentError)), replaced(tmp_path / "out"):
        pass
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["out", "out/old"]
