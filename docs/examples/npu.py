"""Generates text as an NPU does: one program for a prompt of 16 tokens, and one for a token, with static shapes."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

import fx_onnx
from fx_onnx.applications.shared_weights import share_weights

PROMPT, ROOM = 16, 64


def export(model: PreTrainedModel, folder: Path) -> list[Path]:
    """Writes prompt.onnx and token.onnx, which share their weights."""
    files = [folder / "prompt.onnx", folder / "token.onnx"]
    for file, count in zip(files, (PROMPT, 1), strict=True):
        inputs = fx_onnx.text_generation_arguments(model, cache="static", max_length=ROOM, padding=False)["kwargs"]
        for layer in inputs["past_key_values"].layers:
            layer.keys, layer.values = layer.keys[:1].clone(), layer.values[:1].clone()  # a batch of 1
        ids = torch.zeros(1, count, dtype=torch.int64)
        program = fx_onnx.export(model, kwargs=inputs | {"input_ids": ids}, target="qnn", verbose=False)
        program.save(file, external_data=True)
    share_weights(files)
    return files


def generate(sessions: list[onnxruntime.InferenceSession], prompt: list[int], count: int) -> Iterator[int]:
    """Yields ``count`` tokens after a prompt of at most 16. What pads the prompt is overwritten by the tokens."""
    prefill, decode = sessions
    _, *given = (value.name for value in prefill.get_inputs())
    shapes = {value.name: value.shape for value in prefill.get_inputs()}
    state = {name: np.zeros(shapes[name], np.float32 if shapes[name] else np.int64) for name in given}
    ids = np.array([prompt + [0] * (PROMPT - len(prompt))])
    for step in range(count):
        session = decode if step else prefill
        logits, *new = session.run(["logits", *(f"{name}_out" for name in given)], {"input_ids": ids, **state})
        seen = np.array(len(prompt) + step)
        state = {name: value if value.shape else seen for name, value in zip(given, new, strict=True)}
        token = int(logits[0, 0 if step else len(prompt) - 1].argmax())
        ids = np.array([[token]])
        yield token


if __name__ == "__main__":
    config = LlamaConfig(
        vocab_size=500, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, eos_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    prompt = torch.randint(0, 500, (1, 9))
    expected = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=20, do_sample=False)
    sessions = [onnxruntime.InferenceSession(file) for file in export(model, Path())]  # on the CPU
    found = list(generate(sessions, prompt[0].tolist(), 20))
    assert found == expected[0, 9:].tolist(), "transformers generates other tokens"
    print(f"20 tokens: {found[:8]}...")
