"""The tiny models and inputs of ``benchmarks.applications`` and ``benchmarks.applications_js``.

The models have random weights, and are made without downloads in the environment of fx_onnx.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

import fx_onnx
import tests  # noqa: F401  lets torchvision load beside a CPU build of torch
from benchmarks.application_sounds import music_config, prepare_music, save_vocoder, speech_config
from tests.models.families import FAMILIES
from tests.models.small_configs import small_config

_GENERATION = {"max_new_tokens": 20, "do_sample": False, "num_beams": 1}


@dataclass(frozen=True)
class Case:
    """A model, and how applications call it.

    Attributes:
        name: the model type, or a name of its own.
        auto: the end of the name of its auto class, or the name of its own class.
        task: the task of its export.
        overrides: values of its config.
        in_js: the class of transformers.js, if it is not the model's.
        layout: the layout of optimum-onnx.
    """

    name: str
    auto: str
    task: str
    overrides: tuple[tuple[str, Any], ...] = ()
    in_js: str = ""
    layout: str = "optimum"

    @property
    def generates(self) -> bool:
        """Whether the result is tokens."""
        return self.auto in ("ForCausalLM", "ForSeq2SeqLM", "ForSpeechSeq2Seq", "ForImageTextToText")

    @property
    def type(self) -> str:
        """The model type."""
        return "clip" if self.name.startswith("clip-") else self.name.partition(",")[0]


_CONVNEXT = (("image_size", 128), ("patch_size", 4))  # the small sizes leave less than a pixel to the last stage
_MARIAN = (("decoder_start_token_id", 0),)
_WHISPER = (("max_source_positions", 50),)
_SPEECH = ("ForSpeechSeq2Seq", "automatic-speech-recognition", _WHISPER)
_SUPERPOINT = (  # with many channels, the noise in the weights makes the largest numbers of the scores too large
    ("encoder_hidden_sizes", [8, 8, 16, 16]),
    *(("decoder_hidden_size", 16), ("descriptor_decoder_dim", 16)),
)
_GLPN = (("hidden_sizes", [32, 32, 64, 64]), ("num_attention_heads", [1, 1, 2, 2]), ("decoder_hidden_size", 16))
_TWO = "optimum-two-decoders"
CASES = [
    Case("bert", "ForSequenceClassification", "text-classification"),
    Case("distilbert", "ForTokenClassification", "token-classification"),
    Case("roberta", "ForQuestionAnswering", "question-answering"),
    Case("albert", "ForMaskedLM", "fill-mask"),
    Case("mpnet", "", "feature-extraction"),
    Case("vit", "ForImageClassification", "image-classification"),
    Case("resnet", "ForImageClassification", "image-classification"),
    Case("segformer", "ForSemanticSegmentation", "image-segmentation"),
    Case("wav2vec2", "ForCTC", "automatic-speech-recognition"),
    Case("hubert", "ForAudioClassification", "audio-classification"),
    Case("gpt2", "ForCausalLM", "text-generation"),
    Case("llama", "ForCausalLM", "text-generation"),
    Case("qwen2", "ForCausalLM", "text-generation"),
    Case("t5", "ForSeq2SeqLM", "text2text-generation"),
    Case("bart", "ForSeq2SeqLM", "summarization"),
    Case("marian", "ForSeq2SeqLM", "translation", _MARIAN),
    Case("whisper", *_SPEECH),
    Case("t5, two decoders", "ForSeq2SeqLM", "text2text-generation", (), "", _TWO),
    Case("whisper, two decoders", *_SPEECH, "", _TWO),
    Case("vit-gpt2", "ForImageTextToText", "image-to-text"),
    Case("vit-trocr", "ForImageTextToText", "image-to-text"),
    Case("clip", "ForZeroShotImageClassification", "zero-shot-image-classification"),
    Case("detr", "ForObjectDetection", "object-detection"),
    Case("electra", "ForMultipleChoice", "multiple-choice"),
    Case("wavlm", "ForAudioXVector", "audio-xvector"),
    Case("unispeech-sat", "ForAudioFrameClassification", "audio-frame-classification"),
    Case("convnextv2", "ForImageClassification", "image-classification", _CONVNEXT),
    Case("swin2sr", "ForImageToImage", "image-to-image"),
    Case("glpn", "ForDepthEstimation", "depth-estimation", _GLPN),
    Case("dinov2", "", "image-feature-extraction"),
    Case("patchtst", "PatchTSTForPrediction", "time-series"),
    Case("patchtsmixer", "PatchTSMixerForPrediction", "time-series"),
    Case("clipseg", "CLIPSegForImageSegmentation", "image-segmentation", (("extract_layers", [0, 1]),)),
    Case("deit", "ForMaskedImageModeling", "masked-image-modeling"),
    Case("owlvit", "ForZeroShotObjectDetection", "zero-shot-object-detection"),
    Case("videomae", "ForVideoClassification", "video-classification"),
    Case("layoutlm", "ForDocumentQuestionAnswering", "document-question-answering"),
    Case("clip-text", "", "feature-extraction", (), "CLIPTextModelWithProjection"),
    Case("clip-image", "", "image-feature-extraction", (), "CLIPVisionModelWithProjection"),
    Case("llava", "ForImageTextToText", "image-text-to-text"),
    Case("sam", "ForMaskGeneration", "mask-generation"),
    Case("musicgen", "ForTextToWaveform", "text-to-audio"),
    Case("speecht5", "ForTextToSpectrogram", "text-to-audio"),
    Case("superpoint", "ForKeypointDetection", "keypoint-detection", _SUPERPOINT),
    Case("blip-2", "ForVisualQuestionAnswering", "visual-question-answering"),
    Case("clap", "ClapModel", "zero-shot-audio-classification"),
]


def case(name: str) -> Case:
    """Returns the case of a name."""
    return next(each for each in CASES if each.name == name)


def _model_of(chosen: Case) -> Any:
    """Returns the model, whose texts have each token once."""
    config = _config(chosen)
    torch.manual_seed(0)
    own = getattr(transformers, chosen.auto, None) if chosen.auto else None
    model = own(config) if own else getattr(transformers, f"AutoModel{chosen.auto}").from_config(config)
    model = model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += (0.3 if chosen.generates or chosen.name == "musicgen" else 0.1) * torch.randn_like(parameter)
    if chosen.name == "musicgen":
        prepare_music(model)
    if chosen.generates:
        tokens = {"pad_token_id": 0, "bos_token_id": 1, "decoder_start_token_id": 1, "eos_token_id": None}
        tokens["forced_eos_token_id"] = None  # transformers.js reads it from config.json too
        if chosen.auto == "ForCausalLM":
            del tokens["decoder_start_token_id"]
        model.generation_config = transformers.GenerationConfig(**tokens, max_length=60, no_repeat_ngram_size=1)
        for name, value in tokens.items():
            setattr(model.config, name, value)
    return model


def _config(chosen: Case) -> Any:
    if chosen.name.startswith("vit-"):
        vision = case("vit")
        decoder = small_config(transformers.CONFIG_MAPPING[chosen.name.removeprefix("vit-")]())
        return transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(_config(vision), decoder)
    if chosen.name in _CONFIGS:
        return _CONFIGS[chosen.name]()
    config = next(each for each in FAMILIES if each.name == chosen.type).config()
    for name, value in chosen.overrides:
        setattr(config, name, value)
    return config


def sam_config() -> Any:
    """Returns the config of a tiny SAM."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision = {"image_size": 32, "patch_size": 8, "output_channels": 16, "mlp_dim": 16, "global_attn_indexes": [0]}
    return transformers.SamConfig(
        vision_config={**sizes, **vision, "window_size": 2, "num_pos_feats": 8},
        prompt_encoder_config={"hidden_size": 16, "image_size": 32, "patch_size": 8, "mask_input_channels": 4},
        mask_decoder_config={**sizes, "mlp_dim": 16, "iou_head_hidden_dim": 16},
    )


def _blip_config() -> Any:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.Blip2Config(
        vision_config={**sizes, "image_size": 32, "patch_size": 8},
        qformer_config={**sizes, "vocab_size": 100},
        text_config=small_config(transformers.OPTConfig()),
        num_query_tokens=4,
    )
    config.image_token_index = 99
    return config


_SOUNDS = {
    "feature_size": 16,
    "sampling_rate": 1600,
    "hop_length": 100,
    "fft_window_size": 128,
    "max_length_s": 4,
    "frequency_max": 800,
    "truncation": "rand_trunc",
}


def _clap_config() -> Any:
    sizes = {"num_attention_heads": [2, 4], "depths": [2, 2], "patch_embeds_hidden_size": 16, "hidden_size": 32}
    return transformers.ClapConfig(
        text_config=small_config(transformers.ClapTextConfig()).to_dict(),
        audio_config={**sizes, "num_mel_bins": 16, "spec_size": 64, "window_size": 4},
        projection_dim=32,
    )


_CONFIGS = {
    "sam": sam_config,
    "musicgen": music_config,
    "speecht5": speech_config,
    "blip-2": _blip_config,
    "clap": _clap_config,
}


def saved(chosen: Case, folder: Path) -> Any:
    """Writes a model, and a feature extractor if its inputs are made by one. Returns what the folder has."""
    model = _model_of(chosen)
    model.save_pretrained(folder)
    if chosen.name == "clap":
        transformers.ClapFeatureExtractor(**_SOUNDS).save_pretrained(folder)
    if model.main_input_name == "input_features":
        transformers.WhisperFeatureExtractor(feature_size=model.config.num_mel_bins, chunk_length=1).save_pretrained(
            folder
        )
    if chosen.name == "speecht5":
        save_vocoder(folder)
    return type(model).from_pretrained(folder).eval()  # without the noise in positions that are not stored


def inputs_of(model: Any, names: set[str]) -> dict[str, torch.Tensor]:
    """Returns inputs of other sizes than those of the export. A row of tokens has three of padding on the left.

    Args:
        model: the model.
        names: the names of the inputs of its graphs.
    """
    torch.manual_seed(1)
    config = model.config
    if "speaker_embeddings" in names:  # one text at a time
        speaker = torch.randn(1, config.speaker_embedding_dim)
        return {"input_ids": torch.randint(5, 90, (1, 9)), "speaker_embeddings": speaker}
    names = {model.main_input_name} if config.is_encoder_decoder else names
    inner = next((each for key in ("vision_config", "encoder") if (each := getattr(config, key, None))), config)
    size = getattr(inner, "image_size", 96)
    found = _signals(config, (getattr(inner, "num_channels", 3), size, size), names)
    if "input_points" in names:
        found["input_points"] = torch.rand(2, 1, 3, 2) * size
        found["input_labels"] = torch.ones(2, 1, 3, dtype=torch.int64)
    if "input_ids" in names:
        mask = torch.ones(2, 9, dtype=torch.int64)
        mask[0, :3] = 0
        if type(model).__name__.endswith("ForObjectDetection"):  # it masks a query that begins with padding
            mask = mask.flip(1)
        ids = torch.randint(5, 90, (2, 9)) * mask
        if getattr(config, "image_token_id", None) is not None:  # the tokens of an image between those of the text
            length = getattr(config, "num_query_tokens", (size // inner.patch_size) ** 2)
            image = torch.full((2, length), config.image_token_id)
            ids, mask = torch.cat([ids, image, ids[:, 3:]], 1), torch.cat([mask, torch.ones(2, image.shape[1] + 6)], 1)
        found |= {"input_ids": ids, "attention_mask": mask.long()}
        if "bbox" in names:
            found["bbox"] = torch.sort(torch.randint(0, 50, (2, 9, 4))).values
        if "token_type_ids" in names and not model.can_generate():
            found["token_type_ids"] = 0 * ids
    if type(model).__name__.endswith(("CLIPModel", "ClapModel", "ForObjectDetection")) and "input_ids" in found:
        for name in {"pixel_values", "input_features"} & set(found):  # one image or sound, and two texts for it
            found[name] = found[name][:1]
    if type(model).__name__.endswith("MultipleChoice"):
        found = {name: torch.stack([value, value.flip(0)], 1) for name, value in found.items()}
    return found


def examples_of(chosen: Case, model: Any) -> dict[str, torch.Tensor] | None:
    """Returns the inputs with which a model is exported whose tokens of images cannot be derived; None for others."""
    if chosen.name != "blip-2":
        return None
    given = inputs_of(model, {"input_ids", "pixel_values"})
    return {name: given[name][:, 3:] for name in ("input_ids", "attention_mask")}


def _signals(config: Any, image: tuple[int, ...], names: set[str]) -> dict[str, torch.Tensor]:
    """Returns images, videos, sounds and series, those of them that are inputs."""
    frames = [config.num_frames] if hasattr(config, "num_frames") else []
    shapes: dict[str, Callable[[], tuple[int, ...]]] = {
        "pixel_values": lambda: (2, *frames, *image),
        "past_values": lambda: (3, config.context_length, config.num_input_channels),
        "input_values": lambda: (3, 17000),
        "input_features": lambda: (
            (3, config.num_mel_bins, 2 * config.max_source_positions)
            if hasattr(config, "num_mel_bins")
            else (3, 1, 65, config.audio_config.num_mel_bins)
        ),
    }
    return {name: torch.randn(shape()) for name, shape in shapes.items() if name in names}


def results_of(chosen: Case, model: Any, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns PyTorch's results; for a model that generates, the tokens and the logits of each step."""
    with torch.no_grad():
        if chosen.generates:
            found = model.generate(**given, **_GENERATION, return_dict_in_generate=True, output_logits=True)
            return {"tokens": found.sequences, "logits": torch.stack(found.logits, 1)}
        return {key: value for key, value in model(**given).items() if isinstance(value, torch.Tensor)}


def command_line(description: str | None) -> argparse.ArgumentParser:
    """Returns a parser of the options that all benchmarks of applications have."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0] if description else None)
    parser.add_argument("--only", nargs="+", help="names of cases or runs")
    parser.add_argument("--kept", type=Path, help="a file of outcomes, with which an interrupted process continues")
    return parser


def outcomes(runs: Mapping[str, Callable[[Path], str]], kept: Path | None, seconds: float = 420) -> dict[str, str]:
    """Returns the outcome of each run, which gets a folder of its own.

    Args:
        runs: the name of a run → what returns its outcome.
        kept: a JSON file with the outcomes of earlier processes, which each new one is added to; None keeps none.
        seconds: no run begins later than this with a file. Start the process again to continue.
    """
    start, found = time.monotonic(), json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
    for name, run in runs.items():
        if name not in found:
            if kept is not None and time.monotonic() - start > seconds:
                raise SystemExit(f"{name} is next; start again")
            with tempfile.TemporaryDirectory() as folder:
                try:
                    found[name] = run(Path(folder))
                except fx_onnx.OnnxExporterError as error:
                    found[name] = f"refused: {error.message}"
            print(json.dumps([name, found[name]]), flush=True)
        if kept is not None:
            kept.write_text(json.dumps(found, indent=1))
    return {name: found[name] for name in runs}
