"""Networks of the transformers library, small and with random weights: nothing is downloaded.

`use_cache=False` keeps the key and value caches, which are not tensors, out of the outputs.
"""

import pytest
from torch import nn

# It may be installed, but need newer packages than the oldest that fx_onnx allows.
pytest.importorskip("transformers", reason="transformers is in the extra 'test'", exc_type=ImportError)

import transformers
from transformers.models.whisper.modeling_whisper import WhisperEncoder

VOCABULARY = 128
_SIZES = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_DECODER = {**_SIZES, "intermediate_size": 64, "max_position_embeddings": 64, "use_cache": False}


def bert(attention: str = "sdpa") -> nn.Module:
    """Returns BERT with its pooler."""
    return transformers.BertModel(
        transformers.BertConfig(
            **_SIZES, intermediate_size=64, max_position_embeddings=64, attn_implementation=attention
        )
    )


def distilbert() -> nn.Module:
    """Returns DistilBERT with its masked language head, which shares the weight of the embedding."""
    return transformers.DistilBertForMaskedLM(
        transformers.DistilBertConfig(
            vocab_size=VOCABULARY, dim=32, n_layers=1, n_heads=4, hidden_dim=64, max_position_embeddings=64
        )
    )


def gpt2() -> nn.Module:
    """Returns GPT-2 with its language head: Conv1D weights and tied embeddings."""
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=VOCABULARY,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=64,
            use_cache=False,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def llama() -> nn.Module:
    """Returns Llama with two query heads for each key head."""
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**_DECODER, num_key_value_heads=2))


def mistral() -> nn.Module:
    """Returns Mistral with a sliding window that is shorter than the inputs."""
    return transformers.MistralForCausalLM(
        transformers.MistralConfig(**_DECODER, num_key_value_heads=2, sliding_window=4)
    )


def gemma2() -> nn.Module:
    """Returns Gemma 2: capped logits, a layer with sliding attention and a layer with full attention."""
    return transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(
            **_DECODER, num_key_value_heads=2, head_dim=8, query_pre_attn_scalar=8, sliding_window=4
        )
    )


def t5() -> nn.Module:
    """Returns T5, encoder and decoder: buckets of relative positions, no biases."""
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, use_cache=False
        )
    )


def whisper_encoder() -> nn.Module:
    """Returns Whisper's encoder of log-mel spectrograms (batch, 16 bins, 2 * 24 frames)."""
    return WhisperEncoder(
        transformers.WhisperConfig(
            num_mel_bins=16,
            d_model=32,
            encoder_layers=2,
            encoder_attention_heads=4,
            encoder_ffn_dim=64,
            max_source_positions=24,
        )
    )


def clip() -> nn.Module:
    """Returns CLIP: a text tower, an image tower, and the similarity of each text to each image."""
    tower = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    return transformers.CLIPModel(
        transformers.CLIPConfig(
            text_config={
                **tower,
                "vocab_size": VOCABULARY,
                "max_position_embeddings": 32,
                "bos_token_id": 0,
                "eos_token_id": VOCABULARY - 1,
            },
            vision_config={**tower, "image_size": 32, "patch_size": 8},
            projection_dim=16,
        )
    )


def vit() -> nn.Module:
    """Returns ViT with an image classification head."""
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=32,
            patch_size=8,
            num_labels=5,
        )
    )
