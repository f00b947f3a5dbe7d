"""A sample of the table of families; `benchmarks/families.py` runs all of it."""

import copy

import pytest
import torch

import fx_onnx
from tests.compare import assert_close
from tests.models.families import FAMILIES, Family

SAMPLE = {
    *("albert", "roberta", "deberta-v2", "bloom", "phi", "qwen3", "bart", "segformer", "wav2vec2", "siglip"),
    *("llama_cache", "gemma2_cache"),
}


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.name in SAMPLE], ids=lambda family: family.name)
def test_family(family: Family) -> None:
    """Exported at one size, right at two."""
    module = family.build()
    examples = family.examples(module)
    shapes = family.dynamic_shapes(examples[0])
    program = fx_onnx.export(module, (), kwargs=copy.deepcopy(examples[0]), dynamic_shapes=shapes)
    for inputs in examples:
        got = program.call_structured(**copy.deepcopy(inputs))
        with torch.no_grad():
            assert_close(got, module(**inputs))


def test_table() -> None:
    """Names are unique, and every one of the sample is in the table."""
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names))
    assert set(names) >= SAMPLE
