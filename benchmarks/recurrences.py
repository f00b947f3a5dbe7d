"""Compares the programs of recurrent and hybrid decoders with transformers, for prompts beyond every chunk.

A program reads a prompt, then one token and five tokens from the state. transformers is called in the same steps with
its own cache. Run: ``python -m benchmarks.recurrences [model types]``.
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
    **{name: {} for name in ("nemotron_h", "zamba2", "mamba", "falcon_mamba")},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": {"num_key_value_heads": 4},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "mamba2": {"num_heads": 8},
    "bamba": {**_MAMBA2, "attn_layer_indices": [1]},
    "granitemoehybrid": {**_MAMBA2, "layer_types": ["linear_attention", "full_attention"]},
}
LENGTHS = (1, 7, 63, 64, 65, 129, 300, 1000)


def build(model_type: str) -> torch.nn.Module:
    """Returns a small model whose weights have the deviation 1/√inputs, so that its state matters."""
    config = small_config(transformers.CONFIG_MAPPING[model_type](), dict(TYPES[model_type]))
    config.max_position_embeddings = 4096
    torch.manual_seed(0)
    model: torch.nn.Module = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(std=weight[0].numel() ** -0.5)
    return model


def main() -> None:
    """Prints a line for each model type."""
    warnings.simplefilter("ignore")
    for model_type in sys.argv[1:] or TYPES:
        try:
            print(model_type, *_compare(model_type))
        except Exception as error:  # the sweep goes on with the next type
            print(model_type, f"{type(error).__name__}: {str(error)[:300]}")


def _compare(model_type: str) -> list[str]:
    """Returns the time and the size of an export, and the largest difference from transformers for each length."""
    model = build(model_type)
    start = time.process_time()
    arguments = fx_onnx.text_generation_arguments(model, padding=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = fx_onnx.export(model, **arguments)
    found = [f"export {time.process_time() - start:.1f} s", f"{sum(1 for _ in program.model.graph.all_nodes())} nodes"]
    found += sorted({str(each.message)[-160:] for each in caught if "FX" in str(each.message)})
    for batch in (1, 2):
        for length in LENGTHS:
            found.append(f"{length}: {_difference(model, program, arguments, batch, length):.1e}")
    return found


@torch.no_grad()
def _difference(model: Any, program: Any, arguments: Any, batch: int, length: int) -> float:
    """Returns the largest difference of the logits of all steps, relative to the largest logit.

    Mamba 1 ignores its state when it takes several tokens. So the logits count as right that are those of the steps, or
    those of the whole text.
    """
    torch.manual_seed(length)
    ids = torch.randint(3, 99, (batch, length + 6))
    name = "cache_params" if "cache_params" in arguments["kwargs"] else "past_key_values"
    cache = transformers.DynamicCache(config=model.config)
    count = len(arguments["kwargs"]) - 1
    sizes = {"batch": batch, "past": 0}
    state = [
        torch.zeros([sizes.get(str(dim), dim) for dim in value.shape]).to(_dtype(value))
        for value in list(program.model.graph.inputs)[count:]
    ]
    got, wanted, seen = [], [], 0
    for step in ids.split([length, 1, 5], 1):
        positions = [] if count == 1 else [torch.arange(seen, seen + step.shape[1]).expand(batch, -1).contiguous()]
        given = {"position_ids": positions[0]} if positions else {}
        result = model(input_ids=step, use_cache=True, **given, **{name: cache})
        cache = copy.deepcopy(getattr(result, name))
        logits, *state = program(step, *positions, *state)
        got.append(logits)
        wanted.append(result.logits)
        seen += step.shape[1]
    logits = torch.cat(got, 1)
    of_steps, whole = torch.cat(wanted, 1), model(input_ids=ids).logits
    return min(float((logits - want).abs().max() / want.abs().max()) for want in (of_steps, whole))


def _dtype(value: Any) -> torch.dtype:
    return torch.int64 if value.dtype.name == "INT64" else torch.float32


if __name__ == "__main__":
    main()
