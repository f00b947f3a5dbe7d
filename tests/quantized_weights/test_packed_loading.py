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


def gguf_file(
    file: Path, architecture: str, numbers: dict[str, Any], tensors: dict[str, Tensor], kinds: list[str]
) -> None:
    """Writes a GGUF file whose matrices have these types in turn, and whose tokenizer has two tokens and bytes."""
    import gguf

    writer = gguf.GGUFWriter(file, architecture)
    for name, number in {"layer_norm_rms_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2, **numbers}.items():
        getattr(writer, f"add_{name}")(number)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([b"<unk>", b"<s>", b"</s>", *(f"<0x{code:02X}>".encode() for code in range(29))])
    writer.add_token_scores([0.0] * 32)
    writer.add_token_types([2, 3, 3, *[6] * 29])
    types = [gguf.GGMLQuantizationType[kind] for kind in kinds]
    for number, (name, tensor) in enumerate(tensors.items()):
        if tensor.dim() == 1 or "shortconv.conv" in name:
            writer.add_tensor(f"{name}.weight", tensor.numpy())
            continue
        kind = types[number % len(types)]
        writer.add_tensor(f"{name}.weight", packed(tensor, kind), raw_dtype=kind)
    for step in ("write_header_to_file", "write_kv_data_to_file", "write_tensors_to_file", "close"):
        getattr(writer, step)()


def packed(tensor: Tensor, kind: Any) -> Any:
    """Returns a matrix as blocks of a type; of Q4_K and Q6_K, which the package does not write, random blocks."""
    import gguf

    if kind.name not in ("Q4_K", "Q6_K"):
        return gguf.quants.quantize(tensor.numpy(), kind)
    size, starts = gguf.GGML_QUANT_SIZES[kind][1], {"Q4_K": (0, 2), "Q6_K": (208,)}[kind.name]
    blocks = torch.randint(0, 256, (len(tensor), tensor.shape[1] // 256, size), dtype=torch.uint8)
    for start in starts:
        blocks[..., start : start + 2] = (torch.rand(*blocks.shape[:2], 1) * 1e-4).half().view(torch.uint8)
    return blocks.flatten(1).numpy()


def test_a_gguf_file_that_transformers_dequantizes(tmp_path: Path) -> None:
    """Tests a Llama, of which transformers keeps nothing packed: the export tells it."""
    pytest.importorskip("gguf", reason="gguf reads the file for transformers")
    file, size = tmp_path / "model.gguf", 64
    numbers = {
        "context_length": 32, "embedding_length": size, "block_count": 1, "feed_forward_length": size, "head_count": 4,
        "head_count_kv": 4, "rope_dimension_count": 16, "vocab_size": 32, "unk_token_id": 0,
    }  # fmt: skip
    matrices = ("token_embd", "output", *(f"blk.0.{part}" for part in PARTS))
    tensors = {name: torch.randn(32 if name in ("token_embd", "output") else size, size) for name in matrices}
    norms = {name: torch.ones(size) for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm")}
    gguf_file(file, "llama", numbers, tensors | norms, ["Q8_0"])
    with pytest.warns(UserWarning, match=r"The weights of model\.gguf become floats"):
        (written,) = fx_onnx.export_pretrained(file, tmp_path / "onnx", task="text-generation", verify=True)
    assert (tmp_path / "onnx" / written.name).is_file()


PARTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


@pytest.mark.parametrize("kinds", [["Q4_0"], ["Q4_K", "Q6_K"], ["Q8_0"]])
def test_a_gguf_file_whose_weights_stay_packed(tmp_path: Path, kinds: list[str]) -> None:
    """Tests an LFM2 with a layer of each kind against the weights as transformers dequantizes them."""
    pytest.importorskip("gguf", reason="gguf reads the file for transformers")
    size, keys = 256, 128
    numbers = {
        "context_length": 32, "embedding_length": size, "block_count": 2, "feed_forward_length": size, "head_count": 4,
        "head_count_kv": [0, 2], "vocab_size": 32, "rope_freq_base": 1e4, "shortconv_l_cache": 3, "unk_token_id": 0,
    }  # fmt: skip
    shapes = {"token_embd": (32, size), "token_embd_norm": (size,)}
    for layer in ("blk.0", "blk.1"):
        shapes |= {f"{layer}.{name}": (size,) for name in ("attn_norm", "ffn_norm")}
        shapes |= {f"{layer}.{name}": (size, size) for name in ("ffn_gate", "ffn_up", "ffn_down")}
    shapes |= {f"blk.0.shortconv.{name}": sizes for name, sizes in (("in_proj", (3 * size, size)), ("conv", (size, 3)))}
    shapes |= {"blk.0.shortconv.out_proj": (size, size), "blk.1.attn_q": (size, size), "blk.1.attn_k": (keys, size)}
    shapes |= {"blk.1.attn_v": (keys, size), "blk.1.attn_output": (size, size)}
    shapes |= {f"blk.1.attn_{name}_norm": (64,) for name in "qk"}
    tensors = {
        name: torch.rand(sizes) if len(sizes) == 1 else torch.randn(sizes) / 16 for name, sizes in shapes.items()
    }
    gguf_file(tmp_path / "model.gguf", "lfm2", numbers, tensors, kinds)

    def loaded() -> Any:
        return transformers.AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="model.gguf", dtype=torch.float32)

    model, plain = load_packed(loaded).eval(), loaded().eval()
    assert model.model.layers[0].feed_forward.w1.weight.dtype == torch.uint8
    assert plain.model.layers[0].feed_forward.w1.weight.dtype == torch.float32
    for target in (None, "onnxruntime"):
        options = {"kwargs": {"use_cache": False}, "opset_version": 21, "target": target, "verbose": False}
        program = fx_onnx.export(model, (TOKENS,), **options)
        assert_close(program(TOKENS)[0], plain(TOKENS).logits, 1e-4)
    assert "MatMulNBits" in {node.op_type for node in program.model.graph}


def test_a_model_that_is_not_quantized_stays_as_it_is() -> None:
    model = torch.nn.Linear(2, 2)
    assert load_packed(lambda: (model, {})) == (model, {}) and type(model) is torch.nn.Linear
