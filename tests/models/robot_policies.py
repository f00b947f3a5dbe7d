"""Small policies of lerobot that integrate a velocity, with random weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest import mock

import transformers

KINDS = ("pi0", "pi05", "smolvla")
_SIZES = {"chunk_size": 8, "n_action_steps": 8, "max_state_dim": 8, "max_action_dim": 8, "tokenizer_max_length": 6}
_GEMMA = {"width": 32, "depth": 2, "mlp_dim": 32, "num_heads": 2, "num_kv_heads": 1, "head_dim": 16}
_WORDS = 200


def build(kind: str) -> Any:
    """Returns a policy with one image of 64 x 64. Its own configs have no sizes as small, so they are replaced."""
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.policies.factory import get_policy_class, make_policy_config

    features = {
        "observation.state": PolicyFeature(type=FeatureType.STATE, shape=(6,)),
        "observation.images.top": PolicyFeature(type=FeatureType.VISUAL, shape=(3, 64, 64)),
    }
    output = {"action": PolicyFeature(type=FeatureType.ACTION, shape=(4,))}
    if kind == "smolvla":
        own: dict[str, Any] = {"resize_imgs_with_padding": (32, 32), "num_vlm_layers": 2, "self_attn_every_n_layers": 2}
    else:
        own = {"image_resolution": (28, 28), "paligemma_variant": "gemma_300m"}
    options = {"input_features": features, "output_features": output, "device": "cpu", **_SIZES, **own}
    with _small_smolvla() if kind == "smolvla" else _small_pi(kind):
        return get_policy_class(kind)(make_policy_config(kind, **options)).eval()


@contextmanager
def _small_pi(kind: str) -> Iterator[None]:
    module = import_module(f"lerobot.policies.{kind}.modeling_{kind}")
    paligemma, expert = module.PaliGemmaForConditionalGenerationWithPiGemma, module.PiGemmaForCausalLM

    def small_paligemma(config: Any) -> Any:
        vision = config.vision_config
        vision.hidden_size = vision.intermediate_size = vision.projection_dim = config.projection_dim = 32
        vision.num_hidden_layers, vision.num_attention_heads = 1, 2
        config.text_config.vocab_size, config.image_token_index = _WORDS, _WORDS - 1
        return paligemma(config=config)

    def small_expert(config: Any) -> Any:
        config.vocab_size = _WORDS
        return expert(config=config)

    new = {
        "get_gemma_config": lambda _: module.GemmaConfig(**_GEMMA),
        paligemma.__name__: small_paligemma,
        expert.__name__: small_expert,
    }
    with ExitStack() as stack:
        for name, value in new.items():
            stack.enter_context(mock.patch.object(module, name, value))
        yield


@contextmanager
def _small_smolvla() -> Iterator[None]:
    module = import_module("lerobot.policies.smolvla.smolvlm_with_expert")
    text = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 16}
    text |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": _WORDS, "pad_token_id": 0}
    vision = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision |= {"image_size": 32, "patch_size": 8}
    config = transformers.SmolVLMConfig(text_config=text, vision_config=vision, scale_factor=2, pad_token_id=0)
    processor = SimpleNamespace(tokenizer=SimpleNamespace(fake_image_token_id=3, global_image_token_id=4))
    loaders = {"AutoConfig": config, "AutoProcessor": processor}
    with ExitStack() as stack:
        for name, value in loaders.items():
            loader = SimpleNamespace(from_pretrained=lambda _, value=value: value)
            stack.enter_context(mock.patch.object(module, name, loader))
        yield
