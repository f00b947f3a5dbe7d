"""Compares 20 greedy tokens after images and sounds in onnxruntime-genai with those of transformers' ``generate``.

    pip install onnxruntime-genai
    python -m benchmarks.applications_genai [--families gemma3 qwen2_5_vl] [--precision fp16]

Each family is a small model with random weights. A cell has the number of equal tokens, and how far the logits after
the prompt are apart, relative to the largest. The reference of a precision other than fp32 is the model in float32.
"""

import argparse
import logging
import tempfile
import warnings
import wave
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime_genai
import torch
from PIL import Image

import fx_onnx
from tests.models.image_readers import IMAGE, READERS, SOUND, build, tokenizer

TOKENS = 20


def images(folder: Path, sizes: tuple[tuple[int, int], ...]) -> list[str]:
    """Writes images of random pixels, and returns their files."""
    files = [folder / f"{number}.png" for number in range(len(sizes))]
    for number, (file, size) in enumerate(zip(files, sizes, strict=True)):
        pixels = np.random.default_rng(number).integers(0, 255, (*size, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(file)
    return [*map(str, files)]


def sound(folder: Path) -> str:
    """Writes half a second of noise, and returns its file."""
    with wave.open(str(folder / "sound.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes((np.random.default_rng(0).normal(0, 0.1, 8000) * 32767).astype(np.int16).tobytes())
    return str(folder / "sound.wav")


def cell(name: str, folder: Path, model: Any, sizes: tuple[tuple[int, int], ...], *, hears: bool = False) -> str:
    """Returns how the texts after images of these sizes compare, and after a sound if the model ``hears`` one."""
    reader, program = READERS[name], onnxruntime_genai.Model(str(folder))
    files = images(folder, sizes)
    opened = onnxruntime_genai.Images.open(*files) if files else None
    text = "ab " + f"{reader.mark}c" * len(sizes) + reader.sound * hears + "de"
    audios = onnxruntime_genai.Audios.open(sound(folder)) if hears else None
    inputs = program.create_multimodal_processor()(text, images=opened, audios=audios)
    ids = torch.from_numpy(inputs["input_ids"].as_numpy()).long()
    length = ids.shape[1]
    parameters = onnxruntime_genai.GeneratorParams(program)
    parameters.set_search_options(max_length=length + TOKENS, do_sample=False)
    generator = onnxruntime_genai.Generator(program, parameters)
    generator.set_inputs(inputs)
    logits = generator.get_logits()[0, -1]
    while not generator.is_done():
        generator.generate_next_token()
    given: dict[str, Any] = {}
    if files:
        made = reader.processor()(images=[Image.open(file) for file in files], return_tensors="pt")
        given = {key: value for key, value in made.items() if not key.startswith("num_")}
    if hears:  # the features that onnxruntime-genai computes
        features = torch.from_numpy(inputs["audio_embeds"].as_numpy())
        given |= {"input_features": features, "input_features_mask": torch.ones(features.shape[:2], dtype=torch.bool)}
    if reader.types:
        given[reader.types] = (ids == IMAGE) + 3 * (ids == SOUND).long()
    given |= {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with torch.no_grad():
        expected = model(**given).logits[0, -1].numpy()
        text = model.generate(**given, max_new_tokens=TOKENS, do_sample=False)[0, length:].tolist()
    pairs = zip(generator.get_sequence(0)[length:], text, strict=False)
    equal = next((place for place, (ours, theirs) in enumerate(pairs) if ours != theirs), len(text))
    distance = np.abs(logits - expected).max() / np.abs(expected).max()
    return f"{equal} of {len(text)} ({distance:.0e})"


def row(name: str, precision: str) -> str:
    """Exports one model and compares its texts after no image, one, two in both orders, a sound, and both."""
    torch.manual_seed(0)
    model, sizes = build(name), READERS[name].sizes
    with tempfile.TemporaryDirectory() as temporary:
        source, folder = Path(temporary, "source"), Path(temporary, "out")
        model.save_pretrained(source)
        tokenizer(name).save_pretrained(source)
        options = {"task": "image-text-to-text", "layout": "genai", "precision": precision}
        fx_onnx.export_pretrained(source, folder, processor=READERS[name].processor(), **options)
        cells = [cell(name, folder, model, given) for given in ((), sizes[:1], sizes, sizes[::-1])]
        if READERS[name].sound:
            cells += [cell(name, folder, model, given, hears=True) for given in ((), sizes[:1])]
        cells += [""] * (6 - len(cells))
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=READERS, default=list(READERS))
    parser.add_argument("--precision", default="fp32")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    print(
        "| family | no image | one | two | two, exchanged | a sound | a sound, an image |", f"|{'---|' * 7}", sep="\n"
    )
    for name in options.families:
        try:
            print(row(name, options.precision), flush=True)
        except Exception as error:
            print(f"| {name} | {type(error).__name__}: {' '.join(str(error).split())[:300]} | | | | | |", flush=True)


if __name__ == "__main__":
    main()
