"""Pictures of the HTML report of five networks in a headless Chromium of 1400×900.

    python -m benchmarks.report_pictures [folder]

Writes the pictures of docs/report.md; the folder is docs/ by default. Needs Chromium and chromedriver.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import transformers

import fx_onnx
from fx_onnx import ONNXProgram
from tests.browser import browser, missing
from tests.torchvision_cpu import torchvision

DOCS = Path(__file__).parents[1] / "docs"
SMALL = {"vocab_size": 500, "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 12}


def llama() -> ONNXProgram:
    """A Llama of 12 layers that takes and returns a key-value cache."""
    config = transformers.LlamaConfig(**SMALL, intermediate_size=128, num_key_value_heads=2)
    model = transformers.LlamaForCausalLM(config).eval()
    return fx_onnx.export(model, **fx_onnx.text_generation_arguments(model), verify=True)


def bert() -> ONNXProgram:
    """A BERT of 12 layers."""
    model = transformers.BertModel(transformers.BertConfig(**SMALL, intermediate_size=128)).eval()
    names = ("input_ids", "attention_mask", "token_type_ids")
    kwargs = {name: torch.ones(2, 8, dtype=torch.int64) for name in names}
    shapes = {name: {0: "batch", 1: "sequence"} for name in names}
    return fx_onnx.export(model, (), kwargs=kwargs, dynamic_shapes=shapes, verify=True)


def whisper() -> ONNXProgram:
    """The encoder and the decoder of a Whisper."""
    config = transformers.WhisperConfig(
        vocab_size=500, num_mel_bins=16, d_model=64, encoder_layers=6, decoder_layers=6, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=256, decoder_ffn_dim=256, max_source_positions=50, use_cache=False,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3, suppress_tokens=None,
        begin_suppress_tokens=None,
    )  # fmt: skip
    kwargs = {"input_features": torch.randn(2, 16, 100), "decoder_input_ids": torch.randint(0, 500, (2, 6))}
    shapes = {"input_features": {0: "batch"}, "decoder_input_ids": {0: "batch", 1: "sequence"}}
    model = transformers.WhisperForConditionalGeneration(config).eval()
    return fx_onnx.export(model, (), kwargs=kwargs, dynamic_shapes=shapes, verify=True)


def resnet50() -> ONNXProgram:
    """torchvision's ResNet-50."""
    shapes = ({0: "batch", 2: "height", 3: "width"},)
    model = torchvision.models.resnet50().eval()
    return fx_onnx.export(model, (torch.randn(2, 3, 64, 64),), dynamic_shapes=shapes, verify=True)


def yolo() -> ONNXProgram:
    """The YOLO of the examples, with non-maximum suppression."""
    with contextlib.redirect_stdout(None):
        model = runpy.run_path(str(DOCS / "examples" / "yolo.py"), run_name="yolo")["model"]
    shapes, names = {"image": {2: "height", 3: "width"}}, ["boxes", "scores", "labels"]
    return fx_onnx.export(model, (torch.rand(1, 3, 96, 128),), dynamic_shapes=shapes, output_names=names, verify=True)


PICTURES: dict[str, Callable[[], ONNXProgram]] = {
    "report.png": llama,
    "report_bert.png": bert,
    "report_resnet50.png": resnet50,
    "report_whisper.png": whisper,
    "report_yolo.png": yolo,
}


def main(folder: Path) -> None:
    """Writes the pictures."""
    with browser() as window, tempfile.TemporaryDirectory() as reports:
        for name, make in PICTURES.items():
            torch.manual_seed(0)
            program, page = make(), Path(reports) / f"{Path(name).stem}.html"
            program.save_html(page)
            window.resize(1400, 900)
            window.open(page)
            assert window.messages() == []
            window.screenshot(folder / name, width=1400, height=900)
            print(folder / name, flush=True)


if __name__ == "__main__":
    if missing():
        raise SystemExit(missing())
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS)
