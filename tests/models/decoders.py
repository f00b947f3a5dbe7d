"""Small decoders of transformers with random weights, and a tokenizer that is trained on a few lines."""

from dataclasses import replace
from typing import Any

import pytest
import torch

# It may be installed, but need newer packages than the oldest that fx_onnx allows.
pytest.importorskip("transformers", reason="transformers is in the extra 'test'", exc_type=ImportError)

import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

LINES = ["The quick brown fox jumps over the lazy dog.", "Pack my box with five dozen liquor jugs."]
VOCABULARY = 320
BOS, END, PADDING = 1, 2, 0


def decoder(model_type: str, layers: int = 2, **overrides: Any) -> Any:
    """Returns a decoder in eval mode; its greedy texts do not repeat one token, and contain no END at random.

    It has more layers where the config has more kinds of layers.
    """
    from tests.models.families import FAMILIES, Family

    family = next((each for each in FAMILIES if each.model_type == model_type), Family(model_type, "decoder"))
    config = replace(family, layers=layers).config()
    sizes = {"vocab_size": VOCABULARY, "max_position_embeddings": 256}
    values = {"bos_token_id": BOS, "eos_token_id": END, "pad_token_id": PADDING, **sizes, **overrides}
    for name, value in values.items():
        setattr(config, name, value)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    model.generation_config = transformers.GenerationConfig(
        bos_token_id=BOS, eos_token_id=END, pad_token_id=PADDING, max_length=256
    )
    return model


def tokenizer() -> transformers.PreTrainedTokenizerFast:
    """Returns a byte-level BPE tokenizer with padding, begin and end as the tokens 0, 1 and 2."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    trained.train_from_iterator(LINES, trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=trained, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
