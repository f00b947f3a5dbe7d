"""Compares the programs of recurrent and hybrid decoders with transformers, for prompts beyond every chunk.

A program reads a prompt, then one token and five tokens from the state. transformers is called in the same steps with
its own cache, and once with the whole text. Run: ``python -m benchmarks.recurrences [model types]``.
"""

from __future__ import annotations

import copy
import sys
import time
import warnings
from typing import Any

import torch
import transformers

import fx_onnx
from tests.models.small_configs import small_config

_MAMBA2 = {"mamba_n_heads": 4, "mamba_d_head": 16}
TYPES: dict[str, dict[str, Any]] = {
    **{name: {} for name in ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next", "olmo_hybrid", "falcon_h1")},
    **{name: {} for name in ("nemotron_h", "zamba2", "mamba", "falcon_mamba", "minimax", "rwkv")},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": {"num_key_value_heads": 4},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "mamba2": {"num_heads": 8},
    "bamba": {**_MAMBA2, "attn_layer_indices": [1]},
    "granitemoehybrid": {**_MAMBA2, "layer_types": ["linear_attention", "full_attention"]},
}
LENGTHS = (1, 7, 63, 64, 65, 129, 300, 1000, 2000)
WITHOUT_MASK = ("mamba", "falcon_mamba", "rwkv")
"""The types whose code takes no mask of the past and the new tokens."""
TIE = 1e-3
"""A larger difference of transformers from itself shows that two experts have nearly equal weights; see ``main``."""


def build(model_type: str) -> torch.nn.Module:
    """Returns a small model whose weights have the deviation 1/√inputs, so that its state matters."""
    config = small_config(transformers.CONFIG_MAPPING[model_type](), dict(TYPES[model_type]))
    config.max_position_embeddings = config.context_length = 4096
    torch.manual_seed(0)
    model: torch.nn.Module = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(std=weight[0].numel() ** -0.5)
    return model


def main() -> None:
    """Prints a line for each model type.

    For each prompt, it has the largest difference of all steps from transformers in the same steps, then that from
    transformers on the whole text, and in brackets that of transformers' steps from the whole text. All are relative
    to the largest logit. Then come the differences of the program and, in brackets, of transformers from float64. If
    transformers differs from itself by more than ``TIE``, other tokens are drawn, at most
    four times.
    """
    warnings.simplefilter("ignore")
    for model_type in sys.argv[1:] or TYPES:
        try:
            print(model_type, *_compare(model_type), sep=" | ", flush=True)
        except Exception as error:  # the sweep goes on with the next type
            print(model_type, f"{type(error).__name__}: {str(error)[:300]}", flush=True)


def _compare(model_type: str) -> list[str]:
    """Returns the time and the size of an export, and the differences for each prompt."""
    model = build(model_type)
    start = time.process_time()
    has_mask = model_type not in WITHOUT_MASK
    arguments = fx_onnx.text_generation_arguments(model, padding=has_mask)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = fx_onnx.export(model, **arguments)
    found = [f"export {time.process_time() - start:.1f} s", f"{sum(1 for _ in program.model.graph.all_nodes())} nodes"]
    found += sorted({str(each.message)[-160:] for each in caught if "FX" in str(each.message)})
    steps = Steps(model, program, arguments)
    for name, batch, padding in (("1", 1, 0), ("2", 2, 0), ("2, padded", 2, 3)):
        lengths = [each for each in LENGTHS if each > padding] if has_mask or not padding else []
        found += [f"batch {name}: {length}: {steps.differences(batch, length, padding)}" for length in lengths]
    return [*found, f"from float64: {steps.from_double()}", f"zeroed state: {steps.without_state():.0e}"]


class Steps:
    """Runs a program and its model in the same steps: a prompt, one token and five tokens."""

    def __init__(self, model: Any, program: fx_onnx.ONNXProgram, arguments: dict[str, Any]) -> None:
        self.model, self.program = model, program
        self.tokens = [name for name in ("attention_mask", "position_ids") if name in arguments["kwargs"]]
        self.cache = next(each for each in ("cache_params", "state", "past_key_values") if each in arguments["kwargs"])

    @torch.no_grad()
    def differences(self, batch: int, length: int, padding: int) -> str:
        """Returns the differences of a prompt; ``padding`` is the number of tokens before the first text of a batch."""
        for seed in range(4):
            torch.manual_seed(length + 10_000 * seed)
            ids = torch.randint(3, 99, (batch, length + 6))
            mask = torch.ones_like(ids)
            mask[:1, :padding] = 0
            logits = self.of_program(ids, mask, length)
            whole = self.model(input_ids=ids, **self._given(mask, 0, ids.shape[1])).logits
            steps = self.of_model(ids, mask, length)
            if steps.shape != whole.shape:  # RWKV, whose code mixes the texts of a batch for one token
                return f"- {_difference(logits, whole, mask):.0e} (-)"
            own = _difference(steps, whole, mask)
            if own < TIE:
                break
        return f"{_difference(logits, steps, mask):.0e} {_difference(logits, whole, mask):.0e} ({own:.0e})"

    @torch.no_grad()
    def from_double(self) -> str:
        """Returns the differences of the program and of transformers from float64, for two prompts of 1,000 tokens."""
        double = copy.deepcopy(self.model).double()
        double.set_experts_implementation("eager")
        torch.manual_seed(0)
        ids = torch.randint(3, 99, (2, 1006))
        mask = torch.ones_like(ids)
        given = self._given(mask, 0, ids.shape[1])
        truth, whole = (model(input_ids=ids, **given).logits for model in (double, self.model))
        program = self.of_program(ids, mask, 1000)
        return f"{_difference(program, truth, mask):.0e} ({_difference(whole, truth, mask):.0e})"

    @torch.no_grad()
    def without_state(self) -> float:
        """Returns the difference that zeros instead of the states of layers without attention make."""
        torch.manual_seed(0)
        ids = torch.randint(3, 99, (1, 71))
        first, other = (self.of_program(ids, torch.ones_like(ids), 65, zeroed) for zeroed in (False, True))
        return float((first - other).abs().max() / first.abs().max())

    def _given(self, mask: torch.Tensor, seen: int, total: int) -> dict[str, torch.Tensor]:
        values = {"attention_mask": mask[:, :total], "position_ids": _positions(mask)[:, seen:total]}
        return {name: values[name].contiguous() for name in self.tokens}

    def of_program(self, ids: torch.Tensor, mask: torch.Tensor, length: int, zeroed: bool = False) -> torch.Tensor:
        """Returns the logits of all steps of the program."""
        sizes = {"batch": len(ids), "past": 0}
        inputs = list(self.program.model.graph.inputs)[1 + len(self.tokens) :]
        state = [torch.zeros([sizes.get(str(dim), dim) for dim in each.shape]).to(_dtype(each)) for each in inputs]
        if self.cache == "state":
            state[4] -= 1e30  # RWKV's state before the first token
        found, seen = [], 0
        for step in ids.split([length, 1, 5], 1):
            total = seen + step.shape[1]
            if zeroed and seen:
                pairs = zip(inputs, state, strict=True)
                state = [each if "past" in str(value.shape) else 0 * each for value, each in pairs]
            logits, *state = self.program(step, *self._given(mask, seen, total).values(), *state)
            state = state[: len(inputs)]
            found.append(logits)
            seen = total
        return torch.cat(found, 1)

    def of_model(self, ids: torch.Tensor, mask: torch.Tensor, length: int) -> torch.Tensor:
        """Returns the logits of all steps of the model with its cache."""
        cache: Any = {} if self.cache == "state" else {self.cache: transformers.DynamicCache(config=self.model.config)}
        if self.model.config.model_type == "minimax":
            cache = {}
        found, seen = [], 0
        for step in ids.split([length, 1, 5], 1):
            total = seen + step.shape[1]
            result = self.model(input_ids=step, use_cache=True, **self._given(mask, seen, total), **cache)
            cache = {self.cache: copy.deepcopy(getattr(result, self.cache))}
            found.append(result.logits)
            seen = total
        return torch.cat(found, 1)


def _positions(mask: torch.Tensor) -> torch.Tensor:
    return (mask.cumsum(1) - 1).clamp(min=0)


def _difference(got: torch.Tensor, want: torch.Tensor, mask: torch.Tensor) -> float:
    """Returns the largest difference of the logits of tokens that are no padding, relative to the largest logit."""
    kept = mask.bool()
    return float((got - want)[kept].abs().max() / want[kept].abs().max())


def _dtype(value: Any) -> torch.dtype:
    return torch.int64 if value.dtype.name == "INT64" else torch.float32


if __name__ == "__main__":
    main()
