"""The target onnxruntime-genai."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

import fx_onnx
from tests.compare import assert_close
from tests.models.decoders import decoder
from tests.one_capture import OneCapture

CAPACITY = 16
TEXTS = [[7, 8, 9, 10, 11], [12, 13]]


def exported(model: Any, **options: Any) -> fx_onnx.ONNXProgram:
    return fx_onnx.export(model, **fx_onnx.text_generation_arguments(model, full_cache=True), verbose=False, **options)


@pytest.fixture(scope="module")
def llama() -> OneCapture:
    """A Llama of one layer, for the tests that differ in the options of the export only."""
    model = decoder("llama", layers=1)
    return OneCapture(model, **fx_onnx.text_generation_arguments(model, full_cache=True), verbose=False)


class InPlace:
    """Runs a decoder whose past and present are one buffer for each layer."""

    def __init__(self, path: Path, texts: int) -> None:
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        inputs = [each for each in self.session.get_inputs() if each.name.startswith("past_key_values")]
        self.cache = {
            each.name: onnxruntime.OrtValue.ortvalue_from_numpy(
                np.full((texts, each.shape[1], CAPACITY, each.shape[3]), 9.0, np.float32)
            )
            for each in inputs
        }

    def __call__(self, tokens: Sequence[Sequence[int]], mask: Sequence[Sequence[int]], place: Sequence[Any]) -> Any:
        """Returns the logits of the new tokens."""
        binding = self.session.io_binding()
        for name, rows in (("input_ids", tokens), ("attention_mask", mask), ("position_ids", place)):
            binding.bind_cpu_input(name, np.array(rows, dtype=np.int64))
        for name, value in self.cache.items():
            binding.bind_ortvalue_input(name, value)
            binding.bind_ortvalue_output(f"{name}_out", value)
        binding.bind_output("logits")
        self.session.run_with_iobinding(binding)
        return next(value.numpy() for value in binding.get_outputs() if len(value.shape()) == 3)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3_text", "phi3", "falcon", "gpt_oss"])
def test_a_batch_of_texts_of_different_lengths(family: str, tmp_path: Path) -> None:
    """A prefill and single tokens in one buffer give the logits of each text alone, also with sliding windows."""
    model = decoder(family, layers=2 if family == "llama" else 1, sliding_window=3)
    program = exported(model, target="onnxruntime-genai")
    program.save(tmp_path / "model.onnx")
    operators = [node.op_type for node in program.model.graph]
    assert operators.count("GroupQueryAttention") == model.config.num_hidden_layers and "Attention" not in operators
    assert not any(each.id == "FX1509" for each in program.findings)  # the caller gives this cache
    run, texts = InPlace(tmp_path / "model.onnx", 2), [list(text) for text in TEXTS]
    tokens, mask = [TEXTS[0], [*TEXTS[1], 0, 0, 0]], [[1] * 5, [1, 1, 0, 0, 0]]
    place: list[Any] = [[*range(5)]] * 2
    for step in range(3):
        found = run(tokens, mask, place)
        for row, text in enumerate(texts):
            with torch.no_grad():
                want = model(torch.tensor([text])).logits[0, -1]
            last = len(text) - 1 if step == 0 else 0
            assert_close(torch.from_numpy(found[row, last]), want, 1e-4)
            text.append(20 + row + step)
        tokens, mask = [text[-1:] for text in texts], [[*row, 1] for row in mask]
        place = [[len(text) - 1] for text in texts]


def test_verification_makes_calls_that_the_kernel_takes(llama: OneCapture) -> None:
    """The example has two texts, several tokens and a past, which the kernel refuses."""
    program = llama.export(target="onnxruntime-genai", verify=True)
    found = program.verify()
    assert found.ok and [len(each.outputs) for each in found.sizes] == [3, 3]
    assert ["past=0" in each.sizes for each in found.sizes] == [True, False]
    assert "batch=1," in found.sizes[1].sizes or "sequence=1," in found.sizes[1].sizes
    (note,) = found.skipped
    assert note.startswith("The sizes batch=2, sequence=6, total=11, past=5 are not compared")
    assert note.endswith("batch=1, sequence=6, total=11, past=5 are compared instead.")


def test_the_folder_shares_one_buffer(tmp_path: Path) -> None:
    model = decoder("qwen3", layers=1)
    exported(model, target="onnxruntime-genai").save_genai(tmp_path, config=model.config)
    content = json.loads((tmp_path / "genai_config.json").read_text(encoding="utf-8"))
    assert content["search"]["past_present_share_buffer"]


def test_weights_of_4_bits() -> None:
    """The logits equal those of the same weights, dequantized in eager, and no weight is stored dequantized."""
    torchao = pytest.importorskip("torchao.quantization", reason="torchao is in the extra 'test'")
    model = decoder("llama", tie_word_embeddings=False)
    per_group = torchao.PerGroup(32)
    torchao.quantize_(model, torchao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=per_group))
    program = exported(model, target="onnxruntime-genai", verify=True)
    assert Counter(node.op_type for node in program.model.graph if node.domain) == {
        "GroupQueryAttention": 2,
        "SkipSimplifiedLayerNormalization": 4,
        "MatMulNBits": 2 * 4 + 1,  # queries, keys and values are one product, and so are the gate and the other one
    }
    large = {name for name, value in program.model.graph.initializers.items() if len(value.shape or ()) > 1}
    assert all(name.endswith(("_nbits", "_scales", "_zeros", "embed_tokens.weight")) for name in large), large


def test_the_fast_target() -> None:
    """It has GroupQueryAttention too, and products that round their operand to 8 bits."""
    torchao = pytest.importorskip("torchao.quantization", reason="torchao is in the extra 'test'")
    model = decoder("llama", layers=1, tie_word_embeddings=False)
    torchao.quantize_(model, torchao.Int8WeightOnlyConfig())
    program = exported(model, target="onnxruntime-genai-accuracy-level-4")
    products = [node for node in program.model.graph if node.op_type == "MatMulNBits"]
    assert {node.attributes["accuracy_level"].as_int() for node in products} == {4}
    operators = {node.op_type for node in program.model.graph if node.domain}
    assert operators == {"GroupQueryAttention", "MatMulNBits", "SkipSimplifiedLayerNormalization"}


@pytest.mark.parametrize(
    ("family", "options", "name"),
    [
        ("llama", {"cache": "static", "max_length": 16}, "past_key_values.0.cumulative_length"),
        ("gemma2", {}, "past_key_values.0.cumulative_length"),  # a layer with a window
        ("glm_moe_dsa", {}, "past_key_values.0.indexer_keys"),
        ("mamba", {"padding": False}, None),
    ],
)
def test_a_cache_that_the_caller_cannot_give_is_a_warning(
    family: str, options: dict[str, Any], name: str | None
) -> None:
    """save_genai refuses the program; the export says so first."""
    model = decoder(family, layers=2 if family == "glm_moe_dsa" else 1)  # which has two kinds of layers
    arguments = fx_onnx.text_generation_arguments(model, **options)
    program = fx_onnx.export(model, **arguments, target="onnxruntime-genai", verbose=False)
    found = [each.text for each in program.findings if each.id == "FX1509"]
    if name is None:
        assert not found
    else:
        does = "gives no value to" if name.endswith("cumulative_length") else "does not describe"
        assert [f"because it {does} the input {name!r}; " in text for text in found] == [True]


def test_a_caller_without_a_mask_keeps_attention() -> None:
    """The number of tokens would be known from the size of the buffer only."""
    model = decoder("llama", layers=1)
    arguments = fx_onnx.text_generation_arguments(model, padding=False)
    program = fx_onnx.export(model, **arguments, target="onnxruntime-genai", verbose=False)
    operators = {node.op_type for node in program.model.graph}
    assert "Attention" in operators and "GroupQueryAttention" not in operators


def test_an_export_without_a_target_has_standard_operators_only(llama: OneCapture) -> None:
    program = llama.export(opset_version=23)
    assert {node.domain for node in program.model.graph} == {""}
    support = llama.export(target="onnxruntime-genai").supports("onnxruntime-genai")
    assert support, support.missing
