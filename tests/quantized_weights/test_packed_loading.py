"""Checkpoints of 8-bit and 4-bit floats, loaded on a CPU as they are packed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fx_onnx
from fx_onnx.quantized_weights.packed_loading import load_packed
from tests.compare import assert_close

transformers = pytest.importorskip("transformers", reason="transformers is in the extra 'test'")

TOKENS = torch.tensor([[1, 2, 3, 4]])


def write(folder: Path, model: Any, tensors: dict[str, Tensor], quantization: dict[str, Any]) -> Path:
    from safetensors.torch import save_file

    folder.mkdir()
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors", {"format": "pt"}
    )
    config = model.config.to_dict() | {"architectures": [type(model).__name__], "quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def llama(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    """Writes a Llama in FP8 with blocks that do not divide its weights; returns the weights in float32 too."""
    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=48, intermediate_size=40, num_hidden_layers=1, num_attention_heads=4
    )
    model = transformers.LlamaForCausalLM(config)
    packed, plain = {}, dict[str, Tensor]()
    for name, tensor in model.state_dict().items():
        packed[name] = plain[name] = tensor
        if name.endswith("proj.weight"):
            rows, columns = tensor.shape
            packed[name], scale = (tensor * 8).to(torch.float8_e4m3fn), torch.rand(-(-rows // 32), -(-columns // 32))
            packed[f"{name}_scale_inv"] = scale
            full = scale.repeat_interleave(32, 0)[:rows].repeat_interleave(32, 1)[:, :columns]
            plain[name] = packed[name].float() * full
    method = {"quant_method": "fp8", "weight_block_size": [32, 32], "modules_to_not_convert": ["lm_head"]}
    return write(folder, model, packed, method), plain


def load(folder: Path) -> Any:
    return load_packed(lambda: transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)).eval()


def test_fp8_in_blocks(tmp_path: Path) -> None:
    folder, plain = llama(tmp_path / "model")
    model = load(folder)
    assert model.model.layers[0].mlp.up_proj.weight.dtype == torch.float8_e4m3fn
    expected = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**model.config.to_dict(), "dtype": None}))
    expected.load_state_dict(plain)
    assert_close(model(TOKENS).logits, expected.eval()(TOKENS).logits, 1e-5)
    (file,) = fx_onnx.export_pretrained(folder, tmp_path / "onnx", task="text-generation", verify=True)
    assert (tmp_path / "onnx" / file.name).is_file()
    with pytest.raises(fx_onnx.OnnxExporterError, match=r"precision int8 does not fit .* packed by its checkpoint"):
        fx_onnx.export_pretrained(folder, tmp_path / "int8", task="text-generation", precision="int8")


def test_mxfp4_of_gpt_oss(tmp_path: Path) -> None:
    config = transformers.GptOssConfig(
        vocab_size=32, hidden_size=64, intermediate_size=32, num_hidden_layers=1, num_attention_heads=4, head_dim=16,
        num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2,
    )  # fmt: skip
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    plain, packed = transformers.GptOssForCausalLM(config).eval(), dict[str, Tensor]()
    for name, tensor in plain.state_dict().items():
        if name.endswith(("gate_up_proj", "down_proj")):
            experts, inputs, outputs = tensor.shape
            packed[f"{name}_blocks"] = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8)
            packed[f"{name}_scales"] = torch.randint(115, 122, (experts, outputs, inputs // 32), dtype=torch.uint8)
            both = packed[f"{name}_blocks"], packed[f"{name}_scales"]
            tensor.copy_(convert_moe_packed_tensors(*both, dtype=torch.float32))
        else:
            packed[name] = tensor
    model = load(write(tmp_path / "model", plain, packed, {"quant_method": "mxfp4"}))
    assert_close(model(TOKENS).logits, plain(TOKENS).logits, 1e-5)
    program = fx_onnx.export(model, (TOKENS,), kwargs={"use_cache": False}, opset_version=21, verbose=False)
    assert_close(program(TOKENS)[0], plain(TOKENS).logits, 1e-4)
    weights = {value.dtype.name for value in program.model.graph.initializers.values() if value.const_value.size > 4096}
    assert weights == {"UINT4"}


def test_a_gguf_file_that_transformers_dequantizes(tmp_path: Path) -> None:
    """Tests a Llama, of which transformers keeps nothing packed: the export tells it."""
    gguf = pytest.importorskip("gguf", reason="gguf reads the file for transformers")
    file, size, kind = tmp_path / "model.gguf", 64, gguf.GGMLQuantizationType.Q8_0
    writer = gguf.GGUFWriter(file, "llama")
    numbers = {
        "context_length": 32, "embedding_length": size, "block_count": 1, "feed_forward_length": size, "head_count": 4,
        "head_count_kv": 4, "layer_norm_rms_eps": 1e-5, "rope_dimension_count": 16, "vocab_size": 32,
        "bos_token_id": 1, "eos_token_id": 2, "unk_token_id": 0,
    }  # fmt: skip
    for name, number in numbers.items():
        getattr(writer, f"add_{name}")(number)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([b"<unk>", b"<s>", b"</s>", *(f"<0x{code:02X}>".encode() for code in range(29))])
    writer.add_token_scores([0.0] * 32)
    writer.add_token_types([2, 3, 3, *[6] * 29])
    for name in ("token_embd", "output", *(f"blk.0.{part}" for part in PARTS)):
        values = torch.randn(32 if name in ("token_embd", "output") else size, size).numpy()
        writer.add_tensor(f"{name}.weight", gguf.quants.quantize(values, kind), raw_dtype=kind)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", torch.ones(size).numpy())
    for step in ("write_header_to_file", "write_kv_data_to_file", "write_tensors_to_file", "close"):
        getattr(writer, step)()
    with pytest.warns(UserWarning, match=r"The weights of model\.gguf become floats"):
        (written,) = fx_onnx.export_pretrained(file, tmp_path / "onnx", task="text-generation", verify=True)
    assert (tmp_path / "onnx" / written.name).is_file()


PARTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def test_a_model_that_is_not_quantized_stays_as_it_is() -> None:
    model = torch.nn.Linear(2, 2)
    assert load_packed(lambda: (model, {})) == (model, {}) and type(model) is torch.nn.Linear
