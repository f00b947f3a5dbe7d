"""A sample of the table of model families, with one layer of each kind; `benchmarks/families.py` runs the whole table.

The families with a cache keep two layers, whose keys and values are inputs of their own.
"""

import copy
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import fx_onnx
from tests.compare import assert_close
from tests.models.families import FAMILIES, Family
from tests.models.onnx_exporter import PATCHED, PLAIN, exported

DOCUMENT = Path(__file__).parents[2] / "docs" / "families.md"
SAMPLE = {
    *("albert", "roberta", "deberta-v2", "bloom", "phi", "qwen3", "mixtral", "bart", "segformer", "bit", "detr"),
    *("wav2vec2", "whisper", "siglip", "vipllava", "llama_cache", "gemma2_cache", "lfm2", "mamba2", "olmo_hybrid"),
}


def _shallow(family: Family) -> Family:
    return family if family.kind == "cache" else replace(family, layers=1)


@pytest.mark.parametrize("family", [_shallow(f) for f in FAMILIES if f.name in SAMPLE], ids=lambda family: family.name)
def test_family(family: Family) -> None:
    """Exports the model with inputs of one size and compares it with eager at two sizes."""
    module = family.build()
    examples = family.examples(module)
    shapes = family.dynamic_shapes(examples[0])
    program = fx_onnx.export(module, (), kwargs=copy.deepcopy(examples[0]), dynamic_shapes=shapes)
    for inputs in examples:
        got = program.call_structured(**copy.deepcopy(inputs))
        with torch.no_grad():
            assert_close(got, module(**inputs))


def test_table() -> None:
    """Tests that names are unique, that the sample is in the table, and that few rows are blocked or static."""
    names = [family.name for family in FAMILIES]
    assert sum(not family.blocked and not family.static for family in FAMILIES) > 0.9 * len(FAMILIES)
    assert len(names) == len(set(names))
    assert set(names) >= SAMPLE


@pytest.mark.parametrize(("mode", "name"), [(PATCHED, "qwen2_moe"), (PLAIN, "gpt2")])
def test_exporter_of_transformers(mode: str, name: str) -> None:
    """Tests transformers' exporter with fx_onnx instead of torch.onnx, with and without its patches."""
    family = _shallow(next(family for family in FAMILIES if family.name == name))
    module = family.build()
    examples = family.examples(module)
    program = exported(family, module, examples[0], mode)
    for inputs in examples:
        with torch.no_grad():
            assert_close(program(**copy.deepcopy(inputs)), module(**inputs))


def test_document() -> None:
    """Tests that docs/families.md lists the table; `python -m benchmarks.families` rewrites it."""
    listed = set(re.findall(r"[\w.-]+", DOCUMENT.read_text(encoding="utf-8")))
    assert {family.model_type for family in FAMILIES} <= listed
