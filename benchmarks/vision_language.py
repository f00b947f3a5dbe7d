"""Exports models that read images or sounds and generate text with a cache, and compares them with transformers.

    python -m benchmarks.vision_language [--families llava qwen2_vl paligemma whisper moonshine]

The models are small and have random weights. A family that reads images is three programs: images to features, tokens
and features to embeddings, and embeddings and cache to logits and cache. A family that reads sounds is two: a sound to
a cache for cross-attention, and tokens and both caches to logits and cache. The same programs run at two sizes: another
batch, and other lengths of text and sound. A cell has the largest difference from the model of transformers with its
own cache, which gets the images or sounds themselves, as a part of the largest logit.
"""

import argparse
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache
from transformers.vision_utils import get_vision_position_ids

import fx_onnx
import tests  # noqa: F401  lets torchvision load beside a CPU build of torch

IMAGE = 90
"""The id of the token whose place a part of an image takes."""

TEXT = {"vocab_size": 100, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
TEXT |= {"num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0}
VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
VISION |= {"image_size": 32, "patch_size": 8}
Steps = Iterator[tuple[Tensor, Tensor]]
"""For the prompt and for each token after it: the logits of the programs, and those of transformers."""

STEPS = 3
"""The number of tokens after the prompt, one at a time."""


class Features(nn.Module):
    """Turns images into one row for each image token."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return self.model.get_image_features(pixel_values=images).pooler_output.flatten(0, 1)


class LlavaFeatures(nn.Module):
    """Turns images into one row for each image token.

    ``LlavaModel.get_image_features`` makes a Python list of the images, which fixes their number.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.tower, self.projector = model.model.vision_tower, model.model.multi_modal_projector
        self.layer = model.config.vision_feature_layer

    def forward(self, images: Tensor) -> Tensor:
        states = self.tower(images, output_hidden_states=True).hidden_states[self.layer]
        return self.projector(states[:, 1:]).flatten(0, 1)


class QwenFeatures(nn.Module):
    """Turns the patches of one image of any size, and the place of each patch, into one row for each image token.

    The model loops over the images, so several images are several calls.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.visual = model.model.visual

    def forward(self, patches: Tensor, places: Tensor) -> Tensor:
        whole = torch.tensor([0, len(patches)])
        return self.visual(patches, None, position_ids=places, cu_seqlens=whole).pooler_output


class Embeddings(nn.Module):
    """Turns tokens (batch, sequence) into embeddings, with the features in the places of the image tokens."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.tokens = model.get_input_embeddings()

    def forward(self, ids: Tensor, features: Tensor) -> Tensor:
        return self.tokens(ids).masked_scatter((ids == IMAGE)[..., None], features)


class Decoder(nn.Module):
    """Turns embeddings (batch, sequence, size) and a cache into logits and the new cache."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.text, self.head = model.model.language_model, model.lm_head

    def forward(self, embeddings: Tensor, mask: Tensor, positions: Tensor, past: DynamicCache) -> Any:
        given = {"attention_mask": mask, "position_ids": positions, "past_key_values": past}
        states = self.text(inputs_embeds=embeddings, use_cache=True, **given).last_hidden_state
        return self.head(states), past


class Sound(nn.Module):
    """Turns sounds into the keys and values of cross-attention."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model.model

    def forward(self, sound: Tensor) -> DynamicCache:
        states = self.model.encoder(sound).last_hidden_state
        cache, start = EncoderDecoderCache(DynamicCache(), DynamicCache()), torch.zeros(len(states), 1).long()
        self.model.decoder(input_ids=start, encoder_hidden_states=states, past_key_values=cache, use_cache=True)
        return cache.cross_attention_cache  # the optimizer removes the rest of the decoder


class Transcript(nn.Module):
    """Turns tokens (batch, sequence) and both caches into logits and the new cache of the text."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.decoder, self.head, self.size = model.model.decoder, model.proj_out, model.config.hidden_size

    def forward(self, ids: Tensor, text: DynamicCache, sound: DynamicCache) -> tuple[Tensor, DynamicCache]:
        unused = torch.zeros(len(ids), 1, self.size)  # the states of the encoder are in the cache already
        caches = EncoderDecoderCache(text, sound)
        states = self.decoder(ids, encoder_hidden_states=unused, past_key_values=caches, use_cache=True)
        return self.head(states.last_hidden_state), text


def llava() -> Any:
    """Returns a small LLaVA."""
    text, vision = transformers.LlamaConfig(**TEXT), transformers.CLIPVisionConfig(**VISION)
    config = transformers.LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=IMAGE, image_seq_length=16
    )
    return transformers.LlavaForConditionalGeneration(config)


def paligemma() -> Any:
    """Returns a small PaliGemma."""
    text = transformers.GemmaConfig(**TEXT, head_dim=8)
    vision = transformers.SiglipVisionConfig(**VISION, vision_use_head=False)
    config = transformers.PaliGemmaConfig(
        vision_config=vision, text_config=text, image_token_index=IMAGE, projection_dim=32
    )
    return transformers.PaliGemmaForConditionalGeneration(config)


def qwen2_vl() -> Any:
    """Returns a small Qwen2-VL."""
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
    sizes = {"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 4, "mlp_ratio": 2, "patch_size": 8}
    special = {"image_token_id": IMAGE, "vision_start_token_id": 91, "vision_end_token_id": 92, "video_token_id": 93}
    config = transformers.Qwen2VLConfig(text_config={**TEXT, "rope_parameters": rope}, vision_config=sizes, **special)
    return transformers.Qwen2VLForConditionalGeneration(config)


def whisper() -> Any:
    """Returns a small Whisper."""
    layers = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    sizes = {"num_mel_bins": 16, "max_source_positions": 50, "d_model": 32, "vocab_size": 100, "pad_token_id": 0}
    config = transformers.WhisperConfig(**layers, **sizes, bos_token_id=1, eos_token_id=1, decoder_start_token_id=2)
    return transformers.WhisperForConditionalGeneration(config)


def moonshine() -> Any:
    """Returns a small Moonshine."""
    heads = dict.fromkeys(("encoder_num_attention_heads", "decoder_num_attention_heads"), 4)
    layers = dict.fromkeys(("encoder_num_hidden_layers", "decoder_num_hidden_layers"), 2)
    sizes = {"vocab_size": 100, "hidden_size": 32, "intermediate_size": 64, "pad_token_id": 0}
    return transformers.MoonshineForConditionalGeneration(transformers.MoonshineConfig(**sizes, **heads, **layers))


# ---------------------------------------------------------------- images


def images(model: Any, count: int, rows: int = 4) -> dict[str, Tensor]:
    """Returns ``count`` images in the form that the model reads: 32 x 32, or of Qwen2-VL (8 * rows) x 32."""
    if model.config.model_type == "qwen2_vl":  # patches of two frames of 8 x 8
        grid = torch.tensor([[1, rows, 4]] * count)
        return {"pixel_values": torch.randn(4 * rows * count, 3 * 2 * 64), "image_grid_thw": grid}
    return {"pixel_values": torch.randn(count, 3, 32, 32)}


def prompt(model: Any, batch: int, length: int, rows: int = 4) -> Tensor:
    """Returns texts with one image at the start, whose last ``length`` tokens are words."""
    count = rows if model.config.model_type == "qwen2_vl" else 16
    start = torch.full((batch, 1), 91)
    return torch.cat([start, torch.full((batch, count), IMAGE), torch.randint(1, 80, (batch, length))], 1)


def mask_and_positions(model: Any, ids: Tensor, past: int, grid: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns the mask and the positions of the tokens after the first ``past`` ones of ``ids``."""
    mask = torch.ones_like(ids)
    positions = torch.arange(ids.shape[1]).expand(ids.shape)
    if grid is not None:
        given = {"mm_token_type_ids": (ids == IMAGE).int(), "image_grid_thw": grid}
        positions = model.model.get_rope_index(ids, attention_mask=mask, **given)[0]
    if model.config.model_type == "paligemma":  # the prompt sees all of itself; positions start at 1
        return torch.ones(len(ids), 1, ids.shape[1] - past, ids.shape[1], dtype=torch.bool), positions[:, past:] + 1
    return mask, positions[..., past:]


def features_of(model: Any) -> Callable[[dict[str, Tensor]], Tensor]:
    """Exports the program of the images, and returns a function that calls it for given images."""
    given = images(model, 2)["pixel_values"]
    kind = model.config.model_type
    if kind != "qwen2_vl":
        module = LlavaFeatures(model) if kind == "llava" else Features(model)
        program = fx_onnx.export(module.eval(), (given,), dynamic_shapes=({0: "images"},), verbose=False)
        return lambda given: program(given["pixel_values"])[0]
    places = get_vision_position_ids(torch.tensor([[1, 8, 4]]), 2)
    dims = ({0: "patches"}, {0: "patches"})
    single = fx_onnx.export(QwenFeatures(model).eval(), (given, places), dynamic_shapes=dims, verbose=False)

    def call(given: dict[str, Tensor]) -> Tensor:
        grid = given["image_grid_thw"]
        parts = given["pixel_values"].split(grid.prod(-1).tolist())
        places = [get_vision_position_ids(each[None], 2) for each in grid]
        return torch.cat([single(*each)[0] for each in zip(parts, places, strict=True)])

    return call


def of_images(model: Any) -> Callable[[int, int], Steps]:
    """Exports a model that reads images.

    Returns:
        A function of batch and length that yields the logits of the programs and of transformers, step by step.
    """
    features = features_of(model)
    given, ids = images(model, 2), prompt(model, 2, 5)
    rows, grid = features(given), given.get("image_grid_thw")
    text = ({0: "batch", 1: "sequence"}, {0: "rows"})
    embeddings = fx_onnx.export(Embeddings(model).eval(), (ids, rows), dynamic_shapes=text, verbose=False)
    past = DynamicCache()
    Decoder(model)(Embeddings(model)(ids, rows), *mask_and_positions(model, ids, 0, grid), past)
    longer = torch.cat([ids, ids[:, -2:]], 1)
    mask, positions = mask_and_positions(model, longer, ids.shape[1], grid)
    seen = {0: "batch", mask.ndim - 1: "total"} | ({2: "sequence"} if mask.ndim == 4 else {})
    places = {positions.ndim - 2: "batch", positions.ndim - 1: "sequence"}
    decoder = fx_onnx.export(
        Decoder(model).eval(),
        (model.get_input_embeddings()(longer[:, -2:]), mask, positions, past),
        dynamic_shapes=({0: "batch", 1: "sequence"}, seen, places, {0: "batch", 2: "past"}),
        verbose=False,
    )

    def steps(batch: int, length: int) -> Steps:
        given, ids = images(model, batch, length + 1), prompt(model, batch, length, length + 1)
        grid, rows = given.get("image_grid_thw"), features(given)
        extra: dict[str, Tensor] = {}
        if model.config.model_type == "paligemma":
            extra["token_type_ids"] = torch.zeros_like(ids)
        if grid is not None:
            extra["mm_token_type_ids"] = (ids == IMAGE).int()
        cache = DynamicCache(config=model.config.get_text_config())
        want = model(input_ids=ids, past_key_values=cache, use_cache=True, **given, **extra).logits
        state = [torch.zeros(batch, 2, 0, 8)] * 4
        for step in range(1 + STEPS):
            past = ids.shape[1] - 1 if step else 0
            [embedded] = embeddings(ids[:, past:], rows)  # without image tokens the rows are not read
            logits, *state = decoder(embedded, *mask_and_positions(model, ids, past, grid), *state)
            yield logits, want
            ids = torch.cat([ids, want[:, -1:].argmax(-1).clamp(max=80)], 1)
            want = model(input_ids=ids[:, -1:], past_key_values=cache, use_cache=True).logits

    return steps


# ---------------------------------------------------------------- sounds


def sounds(model: Any, count: int, length: int) -> Tensor:
    """Returns ``count`` sounds. Those of Whisper have 100 frames, because the model fixes their number."""
    if model.config.model_type == "whisper":
        return torch.randn(count, 16, 100)
    return torch.randn(count, 1000 * length)


def of_sounds(model: Any) -> Callable[[int, int], Steps]:
    """Exports a model that reads sounds; see ``of_images``."""
    sound, ids = sounds(model, 2, 5), torch.randint(2, 80, (2, 3))
    name = model.main_input_name
    dims = {0: "batch"} if model.config.model_type == "whisper" else {0: "batch", 1: "samples"}
    encoder = fx_onnx.export(Sound(model).eval(), (sound,), dynamic_shapes=(dims,), verbose=False)
    caches = model(**{name: sound}, decoder_input_ids=ids).past_key_values
    heard = {0: "batch"} if model.config.model_type == "whisper" else {0: "batch", 2: "heard"}
    decoder = fx_onnx.export(
        Transcript(model).eval(),
        (ids, caches.self_attention_cache, caches.cross_attention_cache),
        dynamic_shapes=({0: "batch", 1: "sequence"}, {0: "batch", 2: "past"}, heard),
        verbose=False,
    )

    def steps(batch: int, length: int) -> Steps:
        sound, ids = sounds(model, batch, length), torch.randint(2, 80, (batch, length))
        first = model(**{name: sound}, decoder_input_ids=ids, use_cache=True)
        want, cache, heard = first.logits, first.past_key_values, encoder(sound)
        states = model.model.encoder(sound)
        state = [torch.zeros(batch, 4, 0, 8)] * 4
        for _ in range(1 + STEPS):
            logits, *state = decoder(ids, *state, *heard)
            yield logits, want
            ids = want[:, -1:].argmax(-1).clamp(2, 80)
            want = model(encoder_outputs=states, decoder_input_ids=ids, past_key_values=cache, use_cache=True).logits

    return steps


MODELS: dict[str, tuple[Callable[[], Any], Callable[[Any], Callable[[int, int], Steps]]]] = {
    **{each.__name__: (each, of_images) for each in (llava, qwen2_vl, paligemma)},
    **{each.__name__: (each, of_sounds) for each in (whisper, moonshine)},
}
"""Name → the model, and the function that exports it."""


def row(name: str) -> str:
    """Returns the row of one family."""
    torch.manual_seed(0)
    build, export = MODELS[name]
    model = build().eval()
    for weight in model.parameters():
        if weight.ndim > 1:
            nn.init.normal_(weight, std=0.1)  # larger than the default, so that a difference shows
    steps = export(model)
    cells = [name]
    for batch, length in ((2, 5), (3, 9)):
        found = [float((got - want).abs().max() / want.abs().max()) for got, want in steps(batch, length)]
        cells += [f"{found[0]:.0e}", f"{max(found[1:]):.0e}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=MODELS, default=list(MODELS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    print("| family | prefill, batch 2 | decode | prefill, batch 3 | decode |", "|" + "---|" * 5, sep="\n")
    with torch.no_grad():
        for name in options.families:
            try:
                print(row(name), flush=True)
            except Exception as error:
                print(f"| {name} | {type(error).__name__}: {' '.join(str(error).split())[:300]} | | | |", flush=True)


if __name__ == "__main__":
    main()
