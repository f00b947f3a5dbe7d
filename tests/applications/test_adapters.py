"""Adapters of peft: read without peft, changed between two runs of one session, and refused if they do more."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

from fx_onnx.applications.adapters import adapted, read_adapter, write_adapter
from fx_onnx.applications.export_pretrained import export_pretrained
from fx_onnx.applications.parts import decoder
from fx_onnx.messages.errors import ArgumentError
from tests.sources import ROOT

_EXAMPLE = ROOT / "docs" / "examples" / "applications" / "onnxruntime_adapters.py"
_LAYERS = {"attn.c_attn": (16, 48), "mlp.c_proj": (64, 16)}


def _adapter(folder: Path, rank: int, layers: dict[str, tuple[int, int]], **config: Any) -> Path:
    """Writes what peft writes."""
    torch.manual_seed(rank)
    weights = {}
    for name, (inputs, outputs) in layers.items():
        weights[f"base_model.model.transformer.h.0.{name}.lora_A.weight"] = torch.randn(rank, inputs)
        weights[f"base_model.model.transformer.h.0.{name}.lora_B.weight"] = torch.randn(outputs, rank)
    folder.mkdir()
    save_file(weights, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"r": rank, "lora_alpha": 2, **config}))
    return folder


def _source(folder: Path) -> Any:
    torch.manual_seed(0)
    ids = {"bos_token_id": 1, "eos_token_id": 2}
    model = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=50, n_positions=16, **ids)).eval()
    model.save_pretrained(folder)
    return model


def test_one_session_runs_all_adapters(tmp_path: Path) -> None:
    """Without an adapter, and with adapters of other ranks and layers, the logits are those of the merged weights."""
    model = _source(tmp_path / "source")
    adapters = {
        "two": _adapter(tmp_path / "two", 2, _LAYERS),
        "three": _adapter(tmp_path / "three", 3, {"mlp.c_proj": (64, 16)}, use_rslora=True),
    }
    export_pretrained(tmp_path / "source", tmp_path / "out", adapters=adapters)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns of optional inputs
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx", options)
    assert len(session.get_overridable_initializers()) == 4 and not any("lora" in x.name for x in session.get_inputs())
    ids = torch.arange(10).reshape(2, 5)
    past = np.zeros((2, 2, 0, 8), np.float32)
    feeds = {"input_ids": ids.numpy(), "attention_mask": np.ones((2, 5), np.int64)}
    feeds |= {"position_ids": np.arange(5)[None].repeat(2, 0), "past_key_values.0.key": past}
    feeds["past_key_values.0.value"] = past
    results = []
    for name in (None, "two", "three"):
        want = model if name is None else _merge(tmp_path / "source", read_adapter(name, adapters[name]).pairs)
        run = onnxruntime.RunOptions()
        if name is not None:
            adapter = onnxruntime.LoraAdapter()
            adapter.Load(str(tmp_path / "out" / "adapters" / name / "model.onnx_adapter"))
            run.add_active_adapter(adapter)
        results.append(session.run(["logits"], feeds, run)[0])
        with torch.no_grad():
            np.testing.assert_allclose(results[-1], want(ids).logits, atol=1e-5)
    decoder = runpy.run_path(str(_EXAMPLE))["Decoder"](tmp_path / "out")
    files = [None, *(tmp_path / "out" / "adapters" / name / "model.onnx_adapter" for name in adapters)]
    assert [decoder.next_token([0, 1, 2, 3, 4], file) for file in files] == [each[0, -1].argmax() for each in results]
    assert np.abs(results[1] - results[0]).max() > 0.1 and np.abs(results[2] - results[0]).max() > 0.1


def _merge(folder: Path, pairs: Any) -> Any:
    model: Any = GPT2LMHeadModel.from_pretrained(folder).eval()
    for name, (first, second) in pairs.items():
        model.get_submodule(name).weight.data += first @ second  # a Conv1D, whose weight is transposed
    return model


@pytest.mark.parametrize(
    ("config", "scale"),
    [
        ({}, 1.0),
        ({"use_rslora": True}, 2**0.5),
        ({"alpha_pattern": {"c_attn": 6}}, 3.0),
        ({"rank_pattern": {"h.0.attn.c_attn": 4}}, 0.5),
        ({"rank_pattern": {"attn": 4}}, 1.0),
    ],
)
def test_scale(config: dict[str, Any], scale: float, tmp_path: Path) -> None:
    """The factor is that of peft, for all layers or those that a pattern names."""
    folder = _adapter(tmp_path / "a", 2, {"attn.c_attn": (16, 48)}, **config)
    ((first, second),) = read_adapter("a", folder).pairs.values()
    torch.manual_seed(2)
    torch.testing.assert_close(first, torch.randn(2, 16).t())
    torch.testing.assert_close(second, scale * torch.randn(48, 2).t())


def test_refusals(tmp_path: Path) -> None:
    """A sentence names what is not a product of a Linear layer, another model's layer, and a folder without files."""
    _source(tmp_path / "source")
    other = _adapter(tmp_path / "other", 2, {"attn.c_none": (16, 48)})
    sizes = _adapter(tmp_path / "sizes", 2, {"attn.c_attn": (8, 48)})
    dora = _adapter(tmp_path / "dora", 2, {})
    save_file({"base_model.model.x.lora_magnitude_vector": torch.ones(4)}, dora / "adapter_model.safetensors")
    for folder, text in {
        other: "changes the layer transformer.h.0.attn.c_none of 16 inputs and 48 outputs, which GPT2LMHeadModel lacks",
        sizes: "of 8 inputs and 48 outputs, which GPT2LMHeadModel lacks",
        dora: "has the weight base_model.model.x.lora_magnitude_vector, which is no lora_A or lora_B",
        tmp_path / "source": "cannot be read from .*; `save_pretrained` of peft writes one",
    }.items():
        with pytest.raises(ArgumentError, match=text):
            export_pretrained(tmp_path / "source", tmp_path / "out", adapters={"x": folder})
    with pytest.raises(ArgumentError, match="no name of a folder"):
        export_pretrained(tmp_path / "source", tmp_path / "out", adapters={"../x": other})
    assert not (tmp_path / "out").exists()


def test_a_file_that_cannot_be_written_is_an_error_of_the_disk(tmp_path: Path) -> None:
    """ONNX Runtime tells the line of its code only."""
    adapter = read_adapter("two", _adapter(tmp_path / "two", 2, _LAYERS))
    model = _source(tmp_path / "source")
    with adapted(model, [adapter]) as extend:
        part = extend(decoder(model, ("logits",), {})[0])
        (tmp_path / "x.onnx_adapter").mkdir()
        with pytest.raises(OSError, match=r"ONNX Runtime cannot write x\.onnx_adapter"):
            write_adapter(adapter, part, tmp_path / "x.onnx_adapter")


def test_peft(tmp_path: Path) -> None:
    """peft computes the same results."""
    peft = pytest.importorskip("peft", reason="peft is not installed", exc_type=ImportError)
    _source(tmp_path / "source")
    config = {"r": 4, "target_modules": ["c_attn", "c_fc"], "rank_pattern": {"c_fc": 2}, "fan_in_fan_out": True}
    base = GPT2LMHeadModel.from_pretrained(tmp_path / "source")
    model = peft.get_peft_model(base, peft.LoraConfig(**config, init_lora_weights=False)).eval()
    model.save_pretrained(tmp_path / "a")
    ids = torch.arange(10).reshape(2, 5)
    merged = _merge(tmp_path / "source", read_adapter("a", tmp_path / "a").pairs)
    with torch.no_grad():
        torch.testing.assert_close(merged(ids).logits, model(ids).logits)
