"""Model families of the transformers library: one small random network of each type, with inputs of two sizes.

A config is built with the library's defaults, and then again with small values for every known name of a size. A row
lists what the family needs in addition. Nothing is downloaded.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import nn
from transformers import CONFIG_MAPPING, PreTrainedConfig, ResNetConfig

from tests.models.family_inputs import IMAGE, KINDS, dynamic_shapes
from tests.models.small_configs import small_config


@dataclass(frozen=True)
class Family:
    """One model type.

    Attributes:
        model_type: its name in transformers.
        kind: its kind of inputs, a key of `KINDS`.
        overrides: values of its config.
        size: the size of the images, or the length of the audio.
        sequences: the sequence lengths of the two inputs.
        static: names of dims that stay static, because the model's own code specializes them.
        auto: the class that builds it, if it is not the class of its kind.
        keep_width: reduce only the numbers of layers and experts and the vocabulary.
        image_tokens: the number of tokens for an image.
        layers: the number of layers of each tower; more where the config has more kinds of layers.
        blocked: why torch.export cannot capture the model, so that no exporter can.
    """

    model_type: str
    kind: str
    overrides: dict[str, Any] = field(default_factory=dict)
    size: int = IMAGE
    sequences: tuple[int, int] = (8, 13)
    static: frozenset[str] = frozenset()
    auto: str = ""
    keep_width: bool = False
    image_tokens: int = 4
    layers: int = 2
    blocked: str = ""

    @property
    def name(self) -> str:
        """The unique name in the table."""
        return f"{self.model_type}_cache" if self.kind == "cache" else self.model_type

    def config(self) -> PreTrainedConfig:
        """Returns the small config."""
        return small_config(CONFIG_MAPPING[self.model_type](), self.overrides, self.keep_width, self.layers)

    def build(self) -> nn.Module:
        """Returns the module in eval mode, with the same weights at every call.

        No weight is zero, because then experts would tie.
        """
        torch.manual_seed(0)
        module: nn.Module = getattr(transformers, self.auto or KINDS[self.kind].auto).from_config(self.config()).eval()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter += 0.02 * torch.randn_like(parameter)
        return module

    def inputs(self, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
        """Returns the keyword arguments of a call."""
        torch.manual_seed(1)
        return KINDS[self.kind].inputs(self, module, batch, sequence)

    def examples(self, module: nn.Module) -> list[dict[str, Any]]:
        """Returns the inputs for the export and inputs of other sizes; with a cache also two steps of decoding.

        A recurrent model also takes sequences beyond every chunk of its recurrence.
        """
        batch = 2 if "batch" in self.static else 3
        sequence = self.sequences["sequence" not in self.static]
        sizes = [(2, self.sequences[0]), (batch, sequence), *([(1, 7), (2, 20)] if self.kind == "cache" else [])]
        sizes += [(2, length) for length in (65, 129, 300)] if self.model_type in RECURRENT else []
        return [self.inputs(module, *each) for each in sizes]

    def dynamic_shapes(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Returns the requested dynamic dims, by argument."""
        return dynamic_shapes(self.kind, inputs, self.static)


RECURRENT = frozenset(
    [
        "bamba",
        "falcon_h1",
        "falcon_mamba",
        "granitemoehybrid",
        "jamba",
        "kimi_linear",
        "lfm2",
        "mamba",
        "mamba2",
        "minimax",
        "nemotron_h",
        "olmo_hybrid",
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_next",
        "rwkv",
        "zamba2",
    ]
)

# Families that need only a kind.
_PLAIN = {
    "text": (
        "albert bert big_bird camembert convbert data2vec-text deberta deberta-v2 distilbert electra ernie eurobert "
        "flaubert fnet ibert jina_embeddings_v3 layoutlm megatron-bert mobilebert modernbert mpnet mra nomic_bert "
        "nystromformer rembert roberta roberta-prelayernorm roc_bert roformer squeezebert tapas xlm xlm-roberta "
        "xlm-roberta-xl yoso markuplm splinter visual_bert xlnet dpr embedding_gemma2_text gte luke clip_text_model "
        "ultrabert"
    ),
    "decoder": (
        "apertus arcee biogpt bitnet bloom cohere cohere2 ctrl cwm doge ernie4_5 exaone4 falcon falcon_h1 gemma "
        "gemma2 gemma3_text glm glm4 glm4_moe gpt2 gpt_bigcode gpt_neox gpt_neox_japanese gpt_oss granite "
        "granitemoe helium internlm3 jais2 jetmoe lfm2 llama minimax mistral mixtral modernbert-decoder mpt olmo "
        "olmo2 olmo3 olmoe openai-gpt opt persimmon phi phi3 phimoe qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next "
        "seed_oss smollm3 stablelm starcoder2 vaultgemma xglm diffllama bert-generation flex_olmo nanochat afmoe "
        "aria_text cohere2_moe deepseek_v4 emu3 exaone_moe flint gpt-sw3 granite_swa granitemoe_swa "
        "granitemoeshared hy_v3 hyperclovax iquestcoder kolibri1 laguna llama4_text mellum mimo_v2_flash minimax_m2 "
        "ministral3 nemotron_h olmo_hybrid qwen3_5_text qwen3_5_moe_text solar_open trocr zamba2 mamba falcon_mamba "
        "jamba rwkv"
    ),
    "seq2seq": (
        "bart bigbird_pegasus blenderbot blenderbot-small fsmt longt5 m2m_100 marian mbart mt5 mvp nllb-moe pegasus "
        "pegasus_x plbart prophetnet switch_transformers t5 umt5 encoder-decoder t5gemma"
    ),
    "vision": (
        "beit bit cvt data2vec-vision deit dinov2 dinov2_with_registers dinov3_vit dinov3_convnext focalnet glpn "
        "hgnet_v2 hiera ijepa mobilenet_v1 mobilenet_v2 mobilevit poolformer pvt pvt_v2 regnet resnet segformer "
        "swiftformer textnet vit vit_msn vitdet siglip_vision_model clip_vision_model aimv2_vision_model dpt yolos "
        "pixio sam_vision_model mlcd_vision_model chinese_clip_vision_model radio"
    ),
    "video": "timesformer videomae vivit vjepa2",
    "speech": "data2vec-audio hubert sew sew-d unispeech unispeech-sat wav2vec2 wav2vec2-conformer wavlm",
    "spectrogram": "wav2vec2-bert parakeet_encoder lasr_encoder",
    "contrast": (
        "altclip chinese_clip clip clipseg siglip owlvit owlv2 metaclip_2 aimv2 groupvit flava blip "
        "vision-text-dual-encoder"
    ),
    "codec": "dac",
    "transcription": "moonshine speecht5",
    "caption": "vision-encoder-decoder",
    "chat": "aya_vision cohere2_vision",
    "series": "patchtst patchtsmixer",
    "cache": (
        "llama mistral qwen2 qwen3 gemma gemma2 gpt2 gpt_neox phi opt olmo2 cohere glm granite stablelm starcoder2 "
        "smollm3 mixtral gemma3_text gpt_oss cohere2 llama4_text exaone4 modernbert-decoder"
    ),
}


def _resnet(*stages: str) -> ResNetConfig:
    """Returns the config of a small backbone that replaces one from another library."""
    return ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 16, 32, 32], depths=[1] * 4, layer_type="basic", out_features=list(stages)
    )


_DETR = {
    "use_timm_backbone": False, "backbone": None, "backbone_kwargs": None, "use_pretrained_backbone": False,
    "backbone_config": _resnet("stage4"), "num_queries": 6,
}  # fmt: skip
# A Python loop of the model runs over this dim, so torch.export unrolls it.
_UNROLLED, _BATCH_UNROLLED = frozenset({"sequence"}), frozenset({"batch"})
_FULL_HEADS = {"num_key_value_heads": 4}  # latent attention has as many key heads as query heads

_LOOPS = ("recurrent_gemma", "cpmant", "xlstm")

# Families with their own names of sizes or with constraints.
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
    Family("whisper", "transcription", size=128),
    Family("speech_to_text", "transcription", size=64),
    Family("canary", "transcription", size=64),
    Family("cohere_asr", "transcription", size=64),
    Family("llava", "chat", image_tokens=16, static=_BATCH_UNROLLED),
    Family("vipllava", "chat", {"vision_feature_layers": [-1]}, image_tokens=16),
    Family("paligemma", "chat", image_tokens=16),
    Family("deepseek_vl", "chat", image_tokens=16),
    Family("gemma3", "chat", {"mm_tokens_per_image": 4}),
    Family("internvl", "chat", image_tokens=1),
    Family("got_ocr2", "chat", image_tokens=1),
    Family("florence2", "chat", image_tokens=2),
    Family("git", "contrast", auto="AutoModelForCausalLM"),
    Family("detr", "detection", _DETR, size=64),
    Family("conditional_detr", "detection", _DETR, size=64),
    Family("table-transformer", "detection", _DETR, size=64),
    Family("dab-detr", "detection", _DETR, size=64),
    Family(
        "deformable_detr",
        "detection",
        {**_DETR, "backbone_config": _resnet("stage2", "stage3", "stage4"), "num_feature_levels": 3},
        size=64,
    ),
    Family("rf_detr", "detection", {"num_queries": 4, "group_detr": 1}, size=64),
    Family(
        "grounding-dino",
        "contrast",
        {"num_queries": 6},
        auto="AutoModelForZeroShotObjectDetection",
        keep_width=True,
        size=64,
    ),
    Family("superpoint", "vision", auto="AutoModelForKeypointDetection", size=64, static=_BATCH_UNROLLED),
    Family("swin2sr", "vision", auto="AutoModelForImageToImage", keep_width=True, size=64),
    Family("efficientnet", "vision", keep_width=True, size=64),
    Family("levit", "vision", keep_width=True, size=224),
    Family("rt_detr_resnet", "backbone", size=64),
    Family("pp_lcnet", "backbone", size=64),
    Family("layoutlmv3", "contrast", keep_width=True, size=224),
    Family("lilt", "text", keep_width=True),
    Family("bros", "text", keep_width=True),
    Family("esm", "text", {"vocab_size": 128, "pad_token_id": 1}),
    Family("funnel", "text", auto="AutoModelForMaskedLM", static=_UNROLLED),
    Family("align", "contrast", keep_width=True, size=64),
    Family("hunyuan_v1_moe", "decoder", {"head_dim": 8}),
    Family("kimi_linear", "decoder", _FULL_HEADS),
    Family("longcat_flash", "decoder", _FULL_HEADS),
    Family("glm4_moe_lite", "decoder", _FULL_HEADS),
    Family("youtu", "decoder", _FULL_HEADS),
    Family("glm_moe_dsa", "decoder", _FULL_HEADS),
    Family("axk2", "decoder", keep_width=True),
    *(Family(name, "decoder", static=_UNROLLED) for name in _LOOPS),
    Family("canine", "text", static=_UNROLLED),
    Family("openai_privacy_filter", "text"),
    Family("longformer", "text"),
    Family("led", "seq2seq", blocked="a path of its branch on the attention fixes a size"),
    Family("pixtral", "vision", static=_BATCH_UNROLLED),
    Family("encodec", "codec", static=frozenset({"samples"})),
    Family("ovis2", "chat", image_tokens=16),
    Family(
        "fastspeech2_conformer",
        "text",
        auto="AutoModelForTextToSpectrogram",
    ),
    Family("vilt", "contrast", blocked="it resizes the positions of each image to a size read from its mask"),
]
FAMILIES = [*(Family(name, kind) for kind, text in _PLAIN.items() for name in text.split()), *_PARTICULAR]
