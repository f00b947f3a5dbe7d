"""A model with a cache runs at most once during a capture."""

from typing import Any

import pytest

import fx_onnx
from tests.capture.test_capture_hidden_runs import Job, check
from tests.models.decoders import decoder


@pytest.mark.parametrize(
    ("name", "options"), [("llama", {}), ("llama", {"cache": "static", "max_length": 16}), ("gpt2", {})]
)
def test_models_with_a_cache(name: str, options: dict[str, Any]) -> None:
    module = decoder(name, layers=1)
    check(Job(module, **fx_onnx.text_generation_arguments(module, **options)))
