"""Generates text with a Llama of transformers in ONNX Runtime alone: one program prefills and decodes, with a cache."""

from collections.abc import Iterator

import numpy as np
import onnxruntime
import torch
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

arguments = fx_onnx.text_generation_arguments(model, padding=False, logits_to_keep=1)
program = fx_onnx.export(model, **arguments)
program.save("llama.onnx")
print(program)


def generate(session: onnxruntime.InferenceSession, tokens: np.ndarray, count: int) -> Iterator[np.ndarray]:
    """Yields ``count`` tokens (batch, 1) after a prompt (batch, sequence). The cache is bound, not copied."""
    names = [each.name for each in session.get_inputs()[1:]]
    past = [onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((len(tokens), 2, 0, 16), np.float32)) for _ in names]
    for _ in range(count):
        binding = session.io_binding()
        binding.bind_cpu_input("input_ids", tokens)
        for name, value in zip(names, past, strict=True):
            binding.bind_ortvalue_input(name, value)
        for output in session.get_outputs():
            binding.bind_output(output.name)
        session.run_with_iobinding(binding)
        logits, *past = binding.get_outputs()
        tokens = logits.numpy()[:, -1:].argmax(-1)
        yield tokens


prompt = torch.randint(0, 500, (3, 9))
found = np.concatenate(list(generate(onnxruntime.InferenceSession("llama.onnx"), prompt.numpy(), 32)), 1)
expected = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=32, do_sample=False)
assert found.tolist() == expected[:, 9:].tolist(), "transformers generates other tokens"
print(f"32 tokens after each of 3 prompts: {found[0, :8].tolist()}...")
