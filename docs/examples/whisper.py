"""Transcribes with a Whisper of transformers in ONNX: an encoder, and a decoder with both of its caches."""

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache, WhisperConfig, WhisperForConditionalGeneration

import fx_onnx

torch.manual_seed(0)
layers = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
sizes = {"num_mel_bins": 16, "max_source_positions": 50, "d_model": 64, "vocab_size": 500, "pad_token_id": 0}
config = WhisperConfig(**layers, **sizes, bos_token_id=1, eos_token_id=1, decoder_start_token_id=2)
# WhisperForConditionalGeneration.from_pretrained("path or name") loads a trained model instead.
model = WhisperForConditionalGeneration(config).eval()


class Encoder(torch.nn.Module):
    """Turns sounds (batch, mel bins, frames) into a cache (batch, heads, frames / 2, size) for cross-attention."""

    def __init__(self) -> None:
        super().__init__()
        self.whisper = model.model

    def forward(self, input_features: Tensor) -> Any:
        states = self.whisper.encoder(input_features).last_hidden_state
        cache, start = EncoderDecoderCache(DynamicCache(), DynamicCache()), torch.zeros(len(states), 1).long()
        self.whisper.decoder(input_ids=start, encoder_hidden_states=states, past_key_values=cache)
        return cache.cross_attention_cache  # the optimizer removes the rest of the decoder


class Decoder(torch.nn.Module):
    """Turns ids (batch, sequence) and both caches into logits (batch, vocabulary) and the new cache of the text."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder, self.head = model.model.decoder, model.proj_out

    def forward(self, ids: Tensor, text: DynamicCache, sound: DynamicCache) -> tuple[Tensor, DynamicCache]:
        unused = torch.zeros(len(ids), 1, config.d_model)  # the states of the encoder are in the cache already
        states = self.decoder(ids, encoder_hidden_states=unused, past_key_values=EncoderDecoderCache(text, sound))
        return self.head(states.last_hidden_state[:, -1]), text


sound = torch.randn(2, 16, 100)
encoder = fx_onnx.export(Encoder().eval(), (sound,), dynamic_shapes=({0: "batch"},))
ids = torch.tensor([[2, 3, 4]] * 2)
caches = model(input_features=sound, decoder_input_ids=ids).past_key_values  # the example of the caches
example = (ids, caches.self_attention_cache, caches.cross_attention_cache)
dims = ({0: "batch", 1: "sequence"}, {0: "batch", 2: "past"}, {0: "batch"})
decoder = fx_onnx.export(Decoder().eval(), example, dynamic_shapes=dims)
heard, past, found = encoder(sound), [torch.zeros(2, 4, 0, 16)] * 4, [ids]
for _ in range(16):
    logits, *past = decoder(found[-1], *past, *heard)
    found.append(logits.argmax(-1, keepdim=True))
text = torch.cat(found[1:], 1)
expected = model.generate(sound, decoder_input_ids=ids, max_new_tokens=16, do_sample=False)  # without the prompt
assert text.tolist() == expected.tolist(), "transformers generates other tokens"
print(encoder, decoder, f"16 tokens of 2 sounds: {text[0].tolist()}", sep="\n")
