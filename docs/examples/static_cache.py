"""Generates text in ONNX Runtime with a cache of a fixed size: each step writes its tokens into one buffer in place."""

from collections.abc import Iterator

import numpy as np
import onnxruntime
import torch
from onnxruntime import OrtValue
from transformers import LlamaConfig, LlamaForCausalLM

import fx_onnx

# LlamaForCausalLM.from_pretrained("path or name") loads a trained model instead.
config = LlamaConfig(
    vocab_size=500,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    eos_token_id=None,
)
model = LlamaForCausalLM(config).eval()

arguments = fx_onnx.text_generation_arguments(model, cache="static", max_length=64, padding=False, logits_to_keep=1)
program = fx_onnx.export(model, **arguments, opset_version=24)
program.save("llama.onnx")
print(program)


def generate(session: onnxruntime.InferenceSession, tokens: np.ndarray, count: int) -> Iterator[np.ndarray]:
    """Yields ``count`` tokens (batch, 1) after a prompt (batch, sequence)."""
    binding = session.io_binding()
    length, new_length = (OrtValue.ortvalue_from_numpy(np.array(0)) for _ in range(2))
    for each in session.get_inputs()[1:]:
        buffer = OrtValue.ortvalue_from_numpy(np.zeros((len(tokens), *each.shape[1:]), np.float32))
        past, present = (buffer, buffer) if each.shape else (length, new_length)  # the layers have the same length
        binding.bind_ortvalue_input(each.name, past)
        binding.bind_ortvalue_output(f"{each.name}_out", present)
    for _ in range(count):
        binding.bind_cpu_input("input_ids", tokens)
        binding.bind_output("logits")
        session.run_with_iobinding(binding)
        length.update_inplace(new_length.numpy())
        tokens = binding.get_outputs()[-1].numpy()[:, -1:].argmax(-1)
        yield tokens


prompt = torch.randint(0, 500, (3, 9))
found = np.concatenate(list(generate(onnxruntime.InferenceSession("llama.onnx"), prompt.numpy(), 32)), 1)
expected = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=32, do_sample=False)
assert found.tolist() == expected[:, 9:].tolist(), "transformers generates other tokens"
print(f"32 tokens after each of 3 prompts: {found[0, :8].tolist()}...")
