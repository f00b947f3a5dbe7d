"""Compares 64 greedy tokens in onnxruntime-genai with those of transformers' ``generate``.

    pip install onnxruntime-genai
    python -m benchmarks.genai [--families llama qwen3] [--tokens 64] [--target onnxruntime-genai]

Each family is a small model with random weights. It generates for one prompt, and for a batch of two prompts of
different lengths, which onnxruntime-genai pads on the right and transformers on the left. The prompts of a recurrent
model have equal lengths. A cell has the number of equal tokens, and of all tokens of transformers up to the end of the
text.

    python -m benchmarks.genai --families mamba2 qwen3_5_text lfm2

With a cache of integers, a cell compares with transformers' own tokens too, and the last one is the distance.

    python -m benchmarks.genai --tokens 20 --target onnxruntime-genai --cache int8
"""

import argparse
import json
import logging
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime_genai
import torch
import transformers

import fx_onnx
from benchmarks.recurrences import TYPES, WITHOUT_MASK, build
from tests.models.decoders import BOS, END, PADDING, decoder

FAMILIES = [
    *("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi", "phi3", "olmo2", "granite"),
    *("starcoder2", "smollm3", "gpt_neox", "opt", "falcon", "mixtral", "qwen3_moe", "olmoe", "gpt_oss"),
    *("apertus", "arcee", "biogpt", "bloom", "codegen", "cohere", "cohere2", "ernie4_5", "ernie4_5_moe", "exaone4"),
    *("gemma4_text", "glm", "glm4", "glm4_moe", "gpt2", "gpt_bigcode", "helium", "hunyuan_v1_dense", "hy_v3"),
    *("internlm3", "llama4_text", "minimax_m2", "ministral", "ministral3", "mpt", "nanochat", "olmo3", "persimmon"),
    *("qwen2_moe", "seed_oss", "stablelm"),
]
SINGLE = [[*range(20, 33)]]
BATCH = [[*range(20, 33)], [*range(50, 57)]]
EQUAL_BATCH = [[*range(20, 33)], [*range(50, 63)]]


def generated(folder: Path, prompts: list[list[int]], count: int) -> list[list[int]]:
    """Returns what onnxruntime-genai generates after each prompt."""
    longest = max(map(len, prompts))
    model = onnxruntime_genai.Model(str(folder))
    parameters = onnxruntime_genai.GeneratorParams(model)
    parameters.set_search_options(max_length=longest + count, batch_size=len(prompts), do_sample=False)
    generator = onnxruntime_genai.Generator(model, parameters)
    rows = np.array([[*prompt, *[PADDING] * (longest - len(prompt))] for prompt in prompts], dtype=np.int32)
    generator.append_tokens(rows if len(prompts) > 1 else rows[0])
    while not generator.is_done():
        generator.generate_next_token()
    return [[int(token) for token in generator.get_sequence(row)][longest:] for row in range(len(prompts))]


def expected(model: Any, prompts: list[list[int]], count: int) -> list[list[int]]:
    """Returns what transformers generates after each prompt, up to the end of the text."""
    longest = max(map(len, prompts))
    rows = torch.tensor([[*[PADDING] * (longest - len(prompt)), *prompt] for prompt in prompts])
    with torch.no_grad():
        texts = model.generate(rows, attention_mask=(rows != PADDING).long(), max_new_tokens=count, do_sample=False)
    return [_until_the_end(text[longest:].tolist(), model.config.eos_token_id) for text in texts]


def _until_the_end(tokens: list[int], end: int) -> list[int]:
    return tokens[: tokens.index(end)] if end in tokens else tokens


def equal(found: list[list[int]], wanted: list[list[int]]) -> str:
    """Returns how many tokens of each text are equal from its start on."""
    counts = []
    for ours, theirs in zip(found, wanted, strict=True):
        pairs = zip(ours, theirs, strict=False)
        first = next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(theirs)))
        counts.append(f"{first} of {len(theirs)}")
    return ", ".join(counts)


def recurrent(family: str) -> Any:
    """Returns a recurrent model whose texts do not end, because the logit of the end is 0."""
    model: Any = build(family)
    tokens = {"bos_token_id": BOS, "eos_token_id": END, "pad_token_id": PADDING}
    for name, value in tokens.items():
        setattr(model.config, name, value)
    model.generation_config = transformers.GenerationConfig(**tokens, max_length=256)
    with torch.no_grad():
        model.get_output_embeddings().weight[END] = 0
    return model


def row(family: str, count: int, target: str | None, cache: str | None) -> str:
    """Exports one model and compares its texts."""
    is_recurrent = family in TYPES
    model = recurrent(family) if is_recurrent else decoder(family)
    options = {"padding": family not in WITHOUT_MASK} if is_recurrent else {"full_cache": True}
    arguments = fx_onnx.text_generation_arguments(model, **options)
    program = fx_onnx.export(model, **arguments, target=target, verbose=False)
    distance = []
    if cache is not None:
        texts = [{"input_ids": tokens} for tokens in torch.randint(3, 300, (32, 1, 32))]
        result = fx_onnx.quantize(program, texts, precision=f"{cache}-cache", largest_distance=10)
        program, distance = result.program, [f"{result.distance:.1e}"]
    with tempfile.TemporaryDirectory() as folder:
        program.save_genai(folder, config=model.config, generation_config=model.generation_config)
        content = json.loads((Path(folder) / "genai_config.json").read_text(encoding="utf-8"))
        cells = ["one buffer" if content["search"]["past_present_share_buffer"] else "two buffers"]
        cells += [
            equal(generated(Path(folder), prompts, count), expected(model, prompts, count))
            for prompts in (SINGLE, EQUAL_BATCH if is_recurrent else BATCH)
        ]
    return f"| {family} | {' | '.join(cells + distance)} |"


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", default=FAMILIES)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--target", help="onnxruntime-genai for one buffer of past and present")
    parser.add_argument("--cache", choices=("int8", "int4"), help="the dtype of keys and values")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    print("| family | cache | one prompt | two prompts |", "|---|---|---|---|", sep="\n")
    for family in options.families:
        print(row(family, options.tokens, options.target, options.cache), flush=True)


if __name__ == "__main__":
    main()
