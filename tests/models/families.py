"""Families of the transformers library: one small random network of each model type, with inputs of two sizes.

A config is built with the library's defaults and then once more with every size that has a known name made small.
What a family needs besides stands in its row. Nothing is downloaded.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import nn
from transformers import CONFIG_MAPPING, DynamicCache, PreTrainedConfig

VOCABULARY = 128

# What the sizes of a config are called, and how small they become.
_NAMES = {
    32: "hidden_size d_model n_embd dim embed_dim emb_dim model_dim embedding_size projection_dim conv_dim_size "
    "n_embed",
    64: "intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff n_inner hidden_dim feed_forward_proj_dim "
    "moe_intermediate_size shared_expert_intermediate_size ffn_hidden_size shared_intermediate_size "
    "max_position_embeddings n_positions n_ctx max_source_positions max_target_positions max_sequence_length "
    "mlp_hidden_size dim_feedforward feedforward_dim expert_ffn_hidden_size",
    2: "num_hidden_layers encoder_layers decoder_layers num_layers n_layer n_layers num_encoder_layers "
    "num_key_value_heads "
    "num_decoder_layers num_kv_heads num_experts_per_tok top_k moe_topk num_experts_per_token decoder_num_layers "
    "num_nextn_predict_layers_unused depth",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads num_experts "
    "n_routed_experts num_local_experts moe_num_experts attention_heads decoder_num_heads num_block_attention_heads",
    8: "head_dim d_kv patch_size qk_nope_head_dim v_head_dim qk_rope_head_dim sliding_window attention_window_size",
    16: "kv_lora_rank q_lora_rank num_mel_bins",
    VOCABULARY: "vocab_size text_vocab_size",
}
_SIZES = {name: size for size, text in _NAMES.items() for name in text.split()}
IMAGE = 32


def small_config(default: PreTrainedConfig, overrides: dict[str, Any] | None = None) -> PreTrainedConfig:
    """A config of the same class with small sizes; `overrides` win, those of a nested config under its name."""
    overrides = dict(overrides or {})
    kwargs: dict[str, Any] = {}
    marker = VOCABULARY
    for name, value in vars(default).items():
        if isinstance(value, PreTrainedConfig):
            kwargs[name] = small_config(value, overrides.pop(name, None))
        elif name in _SIZES and type(value) is int:
            kwargs[name] = _SIZES[name]
        elif name == "image_size" and isinstance(value, (int, list, tuple)):
            kwargs[name] = IMAGE if isinstance(value, int) else type(value)([IMAGE] * len(value))
        elif name == "depths" and isinstance(value, (list, tuple)):
            kwargs[name] = [1] * len(value)
        elif name.endswith(("_token_id", "_token_index")) and type(value) is int and value >= VOCABULARY:
            marker -= 1
            kwargs[name] = marker
    return type(default)(**{**kwargs, **overrides})


@dataclass(frozen=True)
class Family:
    """One model type.

    Attributes:
        model_type: transformers' name for it.
        kind: what it is fed: a key of `KINDS`.
        overrides: of its config.
        size: of the images, or the length of the audio.
        sequences: the sequence lengths of the two inputs.
        static: names of dims that stay static, where the model's own code fixes them.
    """

    model_type: str
    kind: str
    overrides: dict[str, Any] = field(default_factory=dict)
    size: int = IMAGE
    sequences: tuple[int, int] = (8, 13)
    static: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Unique in the table."""
        return f"{self.model_type}_cache" if self.kind == "cache" else self.model_type

    def config(self) -> PreTrainedConfig:
        """The small config."""
        return small_config(CONFIG_MAPPING[self.model_type](), self.overrides)

    def build(self) -> nn.Module:
        """The module in eval mode, with the same weights at every call."""
        torch.manual_seed(0)
        config = self.config()
        return getattr(transformers, KINDS[self.kind].auto).from_config(config).eval()

    def inputs(self, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
        """Keyword arguments of one call."""
        torch.manual_seed(1)
        return KINDS[self.kind].inputs(self, module, batch, sequence)

    def examples(self, module: nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
        """The inputs it is exported with, and others of other sizes."""
        return self.inputs(module, 2, self.sequences[0]), self.inputs(module, 3, self.sequences[1])

    def dynamic_shapes(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The dims that are asked to be dynamic, by argument."""
        table = _CACHED if self.kind == "cache" else _AXES
        return {
            name: None
            if isinstance(value, bool)
            else {axis: dim for axis, dim in table.get(name, {0: "batch"}).items() if dim not in self.static}
            for name, value in inputs.items()
        }


_SEQUENCE = {0: "batch", 1: "sequence"}
_AXES: dict[str, dict[int, str]] = {
    "input_ids": _SEQUENCE,
    "token_type_ids": _SEQUENCE,
    "decoder_input_ids": {0: "batch", 1: "target"},
    "input_values": {0: "batch", 1: "samples"},
    "bbox": _SEQUENCE,
    "attention_mask": _SEQUENCE,
}
_CACHED = {
    "input_ids": _SEQUENCE,
    "attention_mask": {0: "batch", 1: "total"},
    "past_key_values": {0: "batch", 2: "past"},
}


def _text(family: Family, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    """Tokens, the last two of the first row padding; layout models get boxes too."""
    mask = torch.ones(batch, sequence, dtype=torch.int64)
    mask[0, -2:] = 0
    inputs: dict[str, Any] = {"input_ids": torch.randint(1, 100, (batch, sequence)), "attention_mask": mask}
    if "bbox" in inspect.signature(module.forward).parameters:
        inputs["bbox"] = torch.sort(torch.randint(0, 100, (batch, sequence, 4)), -1).values
    return inputs


def _decoder(family: Family, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    inputs = _text(family, module, batch, sequence)
    return {**inputs, "use_cache": False} if _takes(module, "use_cache") else inputs


def _seq2seq(family: Family, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    inputs = _decoder(family, module, batch, sequence)
    target = sequence - 2
    return {**inputs, "decoder_input_ids": torch.randint(1, 100, (batch, target))}


def _vision(family: Family, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    channels = getattr(module.config, "num_channels", 3)
    return {"pixel_values": torch.randn(batch, channels, family.size, family.size)}


def _video(family: Family, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    frames = getattr(module.config, "num_frames", 4)
    return {module.main_input_name: torch.randn(batch, frames, 3, family.size, family.size)}


def _speech(family: Family, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    """Samples of sound: 2000 and more of them."""
    return {"input_values": torch.randn(batch, 1600 + 100 * sequence)}


def _spectrogram(family: Family, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    """Frames by mel bins; the number of frames is what the model was made for."""
    config = module.config
    bins = getattr(config, "num_mel_bins", getattr(config, "feature_projection_input_dim", 80))
    return {module.main_input_name: torch.randn(batch, family.size, bins)}


def _contrast(family: Family, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    """Texts and images, as many of each."""
    return {**_text(family, module, batch, sequence), **_vision(family, module, batch, sequence)}


def _cache(family: Family, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    """Three tokens after a past of five, or one after a past of six."""
    past = 5 if sequence == family.sequences[0] else 6
    config = module.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cache = DynamicCache(config=config)
    for layer in range(config.num_hidden_layers):
        cache.update(torch.randn(batch, heads, past, size), torch.randn(batch, heads, past, size), layer)
    new = 3 if past == 5 else 1
    return {
        "input_ids": torch.randint(1, 100, (batch, new)),
        "attention_mask": torch.ones(batch, past + new, dtype=torch.int64),
        "past_key_values": cache,
    }


def _takes(module: nn.Module, name: str) -> bool:
    parameters = inspect.signature(module.forward).parameters
    return name in parameters or any(p.kind == p.VAR_KEYWORD for p in parameters.values())


@dataclass(frozen=True)
class Kind:
    """How a model is made, and fed."""

    auto: str
    inputs: Callable[[Family, nn.Module, int, int], dict[str, Any]]


KINDS = {
    "text": Kind("AutoModel", _text),
    "decoder": Kind("AutoModelForCausalLM", _decoder),
    "seq2seq": Kind("AutoModelForSeq2SeqLM", _seq2seq),
    "vision": Kind("AutoModel", _vision),
    "detection": Kind("AutoModelForObjectDetection", _vision),
    "video": Kind("AutoModel", _video),
    "speech": Kind("AutoModel", _speech),
    "spectrogram": Kind("AutoModel", _spectrogram),
    "contrast": Kind("AutoModel", _contrast),
    "cache": Kind("AutoModelForCausalLM", _cache),
}

# Families whose small config needs nothing beside its kind.
_PLAIN = {
    "text": (
        "albert bert big_bird camembert convbert data2vec-text deberta deberta-v2 distilbert electra ernie "
        "eurobert flaubert fnet ibert jina_embeddings_v3 layoutlm longformer megatron-bert mobilebert "
        "modernbert mpnet mra nomic_bert nystromformer rembert roberta roberta-prelayernorm roc_bert roformer "
        "squeezebert tapas xlm xlm-roberta xlm-roberta-xl yoso canine markuplm splinter visual_bert xlnet dpr "
        "embedding_gemma2_text gte luke"
    ),
    "decoder": (
        "apertus arcee biogpt bitnet bloom cohere cohere2 ctrl cwm doge ernie4_5 exaone4 falcon falcon_h1 "
        "falcon_mamba gemma gemma2 gemma3_text glm glm4 glm4_moe gpt2 gpt_bigcode gpt_neox gpt_neox_japanese "
        "gpt_oss granite granitemoe helium internlm3 jais2 jamba jetmoe lfm2 llama mamba minimax mistral "
        "mixtral modernbert-decoder mpt olmo olmo2 olmo3 olmoe openai-gpt opt persimmon phi phi3 phimoe qwen2 "
        "qwen2_moe qwen3 qwen3_moe qwen3_next recurrent_gemma rwkv seed_oss smollm3 stablelm starcoder2 "
        "vaultgemma xglm diffllama bert-generation flex_olmo nanochat"
    ),
    "seq2seq": (
        "bart bigbird_pegasus blenderbot blenderbot-small fsmt led longt5 m2m_100 marian mbart mt5 mvp "
        "nllb-moe pegasus pegasus_x plbart prophetnet switch_transformers t5 umt5"
    ),
    "vision": (
        "beit bit cvt data2vec-vision deit dinov2 dinov2_with_registers dinov3_vit dinov3_convnext focalnet "
        "glpn hgnet_v2 hiera ijepa mobilenet_v1 mobilenet_v2 mobilevit poolformer pvt pvt_v2 regnet resnet "
        "segformer swiftformer textnet vit vit_msn vitdet siglip_vision_model clip_vision_model "
        "aimv2_vision_model dpt yolos pixio sam_vision_model mlcd_vision_model"
    ),
    "video": "timesformer videomae vivit vjepa2",
    "speech": "data2vec-audio hubert sew sew-d unispeech unispeech-sat wav2vec2 wav2vec2-conformer wavlm",
    "spectrogram": "wav2vec2-bert parakeet_encoder lasr_encoder",
    "contrast": "altclip chinese_clip clip clipseg siglip owlvit owlv2 metaclip_2 aimv2 groupvit flava vilt blip",
    "cache": (
        "llama mistral qwen2 qwen3 gemma gemma2 gpt2 gpt_neox phi opt olmo2 cohere glm granite stablelm "
        "starcoder2 smollm3 mixtral gemma3_text"
    ),
}

# Those whose own names or constraints need a word.
_PARTICULAR = [
    Family("xmod", "text", {"default_language": "en_XX"}),
    Family("codegen", "decoder", {"rotary_dim": 8}),
    Family("gptj", "decoder", {"rotary_dim": 8}),
    Family(
        "deepseek_v3", "decoder", {"num_key_value_heads": 4, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1}
    ),
    Family("ministral", "decoder", {"head_dim": 8}),
    Family("hunyuan_v1_dense", "decoder", {"head_dim": 8}),
    Family("minicpm3", "decoder", {"num_key_value_heads": 4}),
    Family("bamba", "decoder", {"mamba_n_heads": 4, "mamba_d_head": 16}),
    Family("granitemoehybrid", "decoder", {"mamba_n_heads": 4, "mamba_d_head": 16}),
    Family("mamba2", "decoder", {"num_heads": 8}),
    Family("ernie4_5_moe", "decoder", {"moe_k": 2}),
    Family("gpt_neo", "decoder", {"attention_types": [[["global", "local"], 1]]}),
    Family(
        "swin", "vision", {"embed_dim": 24, "depths": [1, 1], "num_heads": [3, 6], "window_size": 4, "patch_size": 4}
    ),
    Family(
        "swinv2", "vision", {"embed_dim": 24, "depths": [1, 1], "num_heads": [3, 6], "window_size": 4, "patch_size": 4}
    ),
    Family(
        "donut-swin",
        "vision",
        {"embed_dim": 24, "depths": [1, 1], "num_heads": [3, 6], "window_size": 4, "patch_size": 4},
    ),
    Family(
        "maskformer-swin",
        "vision",
        {"embed_dim": 24, "depths": [1, 1], "num_heads": [3, 6], "window_size": 4, "patch_size": 4},
    ),
    Family("convnext", "vision", {}, size=64),
    Family("convnextv2", "vision", {}, size=64),
    Family("mobilevitv2", "vision", {}, size=256),
    Family("audio-spectrogram-transformer", "spectrogram", {"max_length": 64}, size=64),
]
FAMILIES = [*(Family(name, kind) for kind, text in _PLAIN.items() for name in text.split()), *_PARTICULAR]
