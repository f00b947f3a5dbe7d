"""Small versions of transformers configs: every size with a known name is reduced, also in nested configs."""

from typing import Any

from transformers import PreTrainedConfig

VOCABULARY = 128
IMAGE = 32

# Small value → the names of the sizes of a config that get this value.
_WIDTHS = {
    32: "hidden_size d_model n_embd dim embed_dim emb_dim model_dim embedding_size projection_dim conv_dim_size "
    "n_embed out_hidden_size encoder_hidden_size text_hidden_size word_embed_proj_dim vision_hidden_size "
    "encoder_hidden_dim fpn_hidden_size projection_size audio_hidden_size",
    64: "intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff n_inner hidden_dim feed_forward_proj_dim "
    "moe_intermediate_size shared_expert_intermediate_size ffn_hidden_size shared_intermediate_size "
    "max_position_embeddings n_positions n_ctx max_source_positions max_target_positions max_sequence_length "
    "mlp_hidden_size dim_feedforward feedforward_dim expert_ffn_hidden_size mlp_dim dim_ff encoder_intermediate_size",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads "
    "attention_heads decoder_num_heads num_block_attention_heads num_decoder_attention_heads",
    8: "head_dim d_kv patch_size qk_nope_head_dim v_head_dim qk_rope_head_dim attention_window_size",
    16: "kv_lora_rank q_lora_rank num_mel_bins",
    2: "num_key_value_heads num_kv_heads",
}
_LAYERS = [
    "num_hidden_layers", "encoder_layers", "decoder_layers", "num_layers", "n_layer", "n_layers",
    "num_encoder_layers", "num_decoder_layers", "decoder_num_layers", "depth", "layers", "resampler_depth",
    "decoder_num_hidden_layers",
]  # fmt: skip
# The same for the sizes that do not change the width of a layer.
_COUNTS = {
    2: "num_experts_per_tok top_k moe_topk num_experts_per_token",
    4: "num_experts n_routed_experts num_local_experts moe_num_experts",
    8: "sliding_window",
    VOCABULARY: "vocab_size text_vocab_size",
}

_ROLES = {"is_decoder", "add_cross_attention"}
"""The attributes that a model sets in the config of its decoder."""


def _by_name(table: dict[int, str]) -> dict[str, int]:
    return {name: size for size, text in table.items() for name in text.split()}


_SMALL_WIDTHS, _SMALL_COUNTS = _by_name(_WIDTHS), _by_name(_COUNTS)


def small_config(
    default: PreTrainedConfig, overrides: dict[str, Any] | None = None, keep_width: bool = False, layers: int = 2
) -> PreTrainedConfig:
    """Returns a config of the same class with small sizes.

    Args:
        default: a config with the library's defaults.
        overrides: values by name, which win over the small ones; a dict for a nested config.
        keep_width: reduce only the numbers of layers and experts and the vocabulary, because some families have widths
            that depend on each other.
        layers: the number of layers of each tower; more where the config has more kinds of layers.
    """
    overrides = dict(overrides or {})
    kwargs: dict[str, Any] = {}
    marker = VOCABULARY
    depth = next((value for name in _LAYERS if type(value := getattr(default, name, None)) is int), None)
    for name, value in vars(default).items():
        if isinstance(value, PreTrainedConfig):
            nested = overrides.pop(name, None)
            is_given = isinstance(nested, PreTrainedConfig)
            kwargs[name] = nested if is_given else small_config(value, nested, keep_width, layers)
        elif (size := _size(name, value, keep_width, layers)) is not None:
            kwargs[name] = size
        elif name in _ROLES:
            kwargs[name] = value
        elif isinstance(value, (list, tuple)) and value and len(value) == depth and _all(value, str):
            kinds = list(dict.fromkeys(value))
            kwargs[name] = kinds + kinds[-1:] * (layers - len(kinds))  # one layer of each kind
            kwargs.update({key: len(kwargs[name]) for key in _LAYERS if type(getattr(default, key, None)) is int})
        elif name.endswith(("_token_id", "_token_index")) and type(value) is int and value >= VOCABULARY:
            marker -= 1
            kwargs[name] = marker
    return type(default)(**{**kwargs, **overrides})


def _size(name: str, value: Any, keep_width: bool, layers: int) -> Any:
    if type(value) is int and name in _LAYERS:
        return min(value, layers) if keep_width else layers
    if type(value) is int and name in _SMALL_COUNTS:
        return min(value, _SMALL_COUNTS[name]) if keep_width else _SMALL_COUNTS[name]
    if name == "depths" and isinstance(value, (list, tuple)):
        return [1] * len(value)
    if name.endswith("_indexes") and isinstance(value, (list, tuple)) and _all(value, int):
        return type(value)(dict.fromkeys(min(index, layers - 1) for index in value))  # an index of the remaining layers
    if keep_width:
        return None
    if type(value) is int and name in _SMALL_WIDTHS:
        return _SMALL_WIDTHS[name]
    if name == "image_size" and isinstance(value, (int, list, tuple)):
        return IMAGE if isinstance(value, int) else type(value)([IMAGE] * len(value))
    return None


def _all(values: Any, kind: type) -> bool:
    return all(type(value) is kind for value in values)
