"""The tiny models that make sounds, and what their parts give step by step, for ``benchmarks.applications_js``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from fx_onnx.applications.parts import Part
from fx_onnx.torch_internals.torch_private import pytree

STEPS, CODES, BOOKS, SAMPLES = 20, 32, 4, 8
"""The number of steps of MusicGen, codes, codebooks, and samples for each frame of codes."""
RATIO, SPEECH_STEPS = 4, 18
"""The largest ratio of frames and tokens that SpeechT5 is called with, and its number of steps for 9 tokens."""
_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
_BANDS = 12


def music_config() -> Any:
    """Returns the config of a tiny MusicGen, whose texts and sounds have other sizes."""
    codec = {"num_filters": 4, "hidden_size": 8, "codebook_dim": 8, "num_lstm_layers": 1, "upsampling_ratios": [4, 2]}
    return transformers.MusicgenConfig(
        text_encoder=transformers.T5Config(d_model=64, d_kv=8, d_ff=32, num_layers=1, num_heads=2, vocab_size=100),
        audio_encoder=transformers.EncodecConfig(
            **codec, codebook_size=CODES, sampling_rate=800, target_bandwidths=[2.0]
        ),
        decoder=transformers.MusicgenDecoderConfig(
            **_SIZES, ffn_dim=64, vocab_size=CODES, num_codebooks=BOOKS, pad_token_id=CODES, bos_token_id=None
        ),
    )


def speech_config() -> Any:
    """Returns the config of a tiny SpeechT5 without the layers that draw random numbers."""
    layers = {f"{part}_{name}": size for part in ("encoder", "decoder") for name, size in _LAYERS.items()}
    before = {"num_mel_bins": _BANDS, "speech_decoder_prenet_layers": 0, "speech_decoder_prenet_units": _BANDS}
    after = {"speech_decoder_postnet_units": 8, "speech_decoder_postnet_layers": 2, "speaker_embedding_dim": 6}
    return transformers.SpeechT5Config(**layers, **before, **after, vocab_size=100, hidden_size=32)


_LAYERS = {"layers": 2, "attention_heads": 2, "ffn_dim": 64}


def save_vocoder(folder: Path) -> Any:
    """Writes a vocoder to the folder of its model, and returns it."""
    torch.manual_seed(2)
    rates = {"upsample_initial_channel": 8, "upsample_rates": [2, 2], "upsample_kernel_sizes": [4, 4]}
    blocks = {"resblock_kernel_sizes": [3], "resblock_dilation_sizes": [[1, 3]]}
    vocoder = transformers.SpeechT5HifiGan(
        transformers.SpeechT5HifiGanConfig(model_in_dim=_BANDS, **rates, **blocks)
    ).eval()
    with torch.no_grad():
        for parameter in vocoder.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    vocoder.save_pretrained(folder / "vocoder")
    return vocoder


def prepare_music(model: Any) -> None:
    """Gives the codec random codes, which are buffers, and the generation its tokens."""
    for name, buffer in model.audio_encoder.named_buffers():
        if name.endswith("embed"):
            buffer.normal_()
    tokens = dict.fromkeys(("pad_token_id", "bos_token_id", "decoder_start_token_id"), CODES)
    model.generation_config = transformers.GenerationConfig(**tokens, max_length=60, guidance_scale=3.0)


def music(modules: Mapping[str, Any], part: Part, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the tokens of all rows, the logits of each step, and the sound, without guidance."""
    states = modules["text_encoder"](**given)["last_hidden_state"]
    past = _Past(part, len(states))
    tokens, steps = torch.full((BOOKS * len(states), 1), CODES), list[Tensor]()
    books = torch.arange(len(tokens))[:, None] % BOOKS
    fixed = {"encoder_hidden_states": states, "encoder_attention_mask": given["attention_mask"]}
    for step in range(STEPS):
        new = torch.where(books >= step, CODES, tokens[:, -1:])  # the rows are delayed
        logits, *present = modules["decoder_model_merged"](input_ids=new, past_key_values=past.tree, **fixed)
        past.update(present)
        steps.append(logits[:, -1])
        tokens = torch.cat([tokens, logits[:, -1].argmax(-1, keepdim=True)], 1)
    rows = [row[place % BOOKS + 1 :][: STEPS - BOOKS + 1] for place, row in enumerate(tokens)]
    codes = torch.stack(rows).unflatten(0, (-1, BOOKS))[None]
    sound = modules["encodec_decode"](audio_codes=codes)["audio_values"]
    return {"tokens": tokens, "logits": torch.stack(steps, 1), "sound": sound}


def speech(modules: Mapping[str, Any], part: Part, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the sound of ``SPEECH_STEPS`` steps."""
    states, mask = modules["encoder_model"](input_ids=given["input_ids"]).values()
    past = _Past(part, 1)
    sequence, spectrum = torch.zeros(1, 1, _BANDS), list[Tensor]()
    fixed = {"encoder_hidden_states": states, "encoder_attention_mask": mask}
    fixed["speaker_embeddings"] = given["speaker_embeddings"]
    for _ in range(SPEECH_STEPS):
        _, sequence, frames, *present = modules["decoder_model_merged"](
            output_sequence=sequence, past_key_values=past.tree, **fixed
        )
        past.update(present)
        spectrum.append(frames)
    found: Tensor = modules["decoder_postnet_and_vocoder"](spectrogram=torch.cat(spectrum))["waveform"]
    return found


def sound_of(model: Any, given: Mapping[str, Tensor], source: Path) -> Tensor:
    """Returns what the model's own function makes, but for the last frames of MusicGen, which depend on its length."""
    if not hasattr(model, "generate_speech"):
        return model.generate(**given, max_new_tokens=STEPS, do_sample=False)[..., : (1 - BOOKS) * SAMPLES]
    vocoder = transformers.SpeechT5HifiGan.from_pretrained(source / "vocoder").eval()
    return model.generate_speech(**given, vocoder=vocoder, threshold=9, maxlenratio=RATIO)[None]


class _Past:
    """The past of a decoder, which is empty at first. The states of the encoder are never in it."""

    def __init__(self, part: Part, batch: int) -> None:
        tensors, self.spec = pytree.tree_flatten(part.kwargs["past_key_values"])
        self.tensors = [each.new_zeros(batch, each.shape[1], 0, each.shape[3]) for each in tensors]
        self.names = [name for name in part.outputs if name.startswith("present.")]

    @property
    def tree(self) -> Any:
        """The argument of the decoder."""
        return pytree.tree_unflatten(self.tensors, self.spec)

    def update(self, present: list[Tensor]) -> None:
        """Takes the new cache."""
        rows = zip(self.names, self.tensors, present, strict=True)
        self.tensors = [old if ".encoder." in name else new for name, old, new in rows]
