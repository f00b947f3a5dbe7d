"""The examples that need no torch compute what PyTorch computes."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from fx_onnx.applications.export_pretrained import export_pretrained
from tests.sources import ROOT

FOLDER = ROOT / "docs" / "examples" / "applications"
_WORDS = ["[PAD]", "[UNK]", "a", "cat", "two", "dogs", "sleep"]
_TEXTS = ["a cat", "two dogs sleep", "a bird"]


def _source(folder: Path, kind: str) -> tuple[Any, dict[str, torch.Tensor]]:
    """Writes a BERT and a tokenizer. Returns the model, and its inputs for the texts."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(**sizes, vocab_size=len(_WORDS))
    model = getattr(transformers, kind).from_config(config).eval()
    model.save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(_WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    fast.save_pretrained(folder)
    return model, dict(fast(_TEXTS, padding=True, return_tensors="pt"))


def test_optimum(tmp_path: Path) -> None:
    model, given = _source(tmp_path / "source", "AutoModelForSequenceClassification")
    export_pretrained(tmp_path / "source", tmp_path / "out", verify=False)
    with torch.no_grad():
        want = model(**given).logits.softmax(-1).numpy()
    script = str(FOLDER / "onnxruntime_optimum.py")
    np.testing.assert_allclose(runpy.run_path(script)["classify"](tmp_path / "out", _TEXTS), want, atol=1e-5)
    without_torch = (
        f"import runpy, sys; sys.modules['torch'] = None; sys.argv[1:] = {[str(tmp_path / 'out'), *_TEXTS]!r}"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{without_torch}; runpy.run_path({script!r}, run_name='__main__')"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.count("LABEL_") == len(_TEXTS)


def test_sentences(tmp_path: Path) -> None:
    model, given = _source(tmp_path / "source", "AutoModel")
    (tmp_path / "source" / "modules.json").write_text(json.dumps([]))
    export_pretrained(
        tmp_path / "source", tmp_path / "out", task="sentence-similarity", layout="sentence-transformers", verify=False
    )
    with torch.no_grad():
        states, mask = model(**given).last_hidden_state, given["attention_mask"][..., None]
    want = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)
    embed = runpy.run_path(str(FOLDER / "onnxruntime_sentences.py"))["embed"]
    np.testing.assert_allclose(embed(tmp_path / "out", _TEXTS), want, atol=1e-5)


@pytest.mark.parametrize("script", sorted(FOLDER.iterdir()), ids=lambda path: path.stem)
def test_examples_are_listed_and_short(script: Path) -> None:
    assert script.name in (ROOT / "docs" / "applications.md").read_text("utf-8")
    assert script.read_text("utf-8").count("\n") <= 50 and "import torch" not in script.read_text("utf-8")
