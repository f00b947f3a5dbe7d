"""The tasks: which class of transformers builds the model, which parts it is exported in, and with which outputs.

A task has one or more rows, each for one class. The inputs are derived (``inputs.py``), so a new architecture needs no
row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fx_onnx.applications.codecs import load_codec
from fx_onnx.applications.diffusion import diffusion
from fx_onnx.applications.encoder_decoder import encoder_decoder
from fx_onnx.applications.mask_generation import mask_generation
from fx_onnx.applications.music import music
from fx_onnx.applications.parts import Part, decoder, half, multiple_choice, one_graph
from fx_onnx.applications.policies import load_policy, robot_policy
from fx_onnx.applications.speech import speech
from fx_onnx.applications.streams import stream
from fx_onnx.applications.tokens_ahead import tokens_ahead
from fx_onnx.applications.vision_language import image_text_to_text
from fx_onnx.extension_points.plugins import Group, Records

__all__ = ["MODULES", "PIPELINE", "TASKS", "Task", "rows_of"]


@dataclass(frozen=True)
class Task:
    """How models of one class are exported for a task.

    Attributes:
        auto: the class of transformers that builds the model of a config: one of its auto classes, or that of a model
            which none of them builds.
        outputs: the fields of the model's result that are outputs of the graph.
        parts: returns the parts of a model, from the outputs and the inputs (``Given``) that are given.
        method: a method without which the row does not fit a model.
        load: returns the module in a folder, for a task of modules of another library than transformers.
    """

    auto: str
    outputs: tuple[str, ...]
    parts: Callable[..., list[Part]] = one_graph
    method: str = ""
    load: Callable[[Path], Any] | None = None


_LOGITS = ("logits",)
_HIDDEN = ("last_hidden_state",)
_ANSWER = ("start_logits", "end_logits")
_BOXES = ("logits", "pred_boxes")
_PAIRS = ("logits_per_image", "logits_per_text", "text_embeds", "image_embeds")
_SOUND_PAIRS = ("logits_per_audio", "logits_per_text", "text_embeds", "audio_embeds")
_TEXTS, _IMAGES = "get_text_features", "get_image_features"
_OF_TEXTS = Task("AutoModel", _HIDDEN, half("text_model", _TEXTS, "text_projection", "text_embeds"), _TEXTS)
_OF_IMAGES = Task("AutoModel", _HIDDEN, half("vision_model", _IMAGES, "visual_projection", "image_embeds"), _IMAGES)
_TO_TEXT = Task("AutoModelForSeq2SeqLM", _LOGITS, encoder_decoder)
_FROM_IMAGES = Task("AutoModelForImageTextToText", _LOGITS, image_text_to_text)

_OF_SERIES = ("AutoModelForTimeSeriesPrediction", "PatchTSTForPrediction", "PatchTSMixerForPrediction")

_OWN: dict[str, tuple[Task, ...]] = {
    "text2text-generation": (_TO_TEXT,),
    "summarization": (_TO_TEXT,),
    "translation": (_TO_TEXT,),
    "audio-classification": (Task("AutoModelForAudioClassification", _LOGITS),),
    "audio-frame-classification": (Task("AutoModelForAudioFrameClassification", _LOGITS),),
    "audio-xvector": (Task("AutoModelForAudioXVector", ("logits", "embeddings")),),
    "automatic-speech-recognition": (
        Task("AutoModelForCTC", _LOGITS),
        Task("AutoModelForSpeechSeq2Seq", _LOGITS, encoder_decoder),
    ),
    "depth-estimation": (Task("AutoModelForDepthEstimation", ("predicted_depth",)),),
    "document-question-answering": (Task("AutoModelForDocumentQuestionAnswering", _ANSWER),),
    "fill-mask": (Task("AutoModelForMaskedLM", _LOGITS),),
    "image-classification": (Task("AutoModelForImageClassification", _LOGITS),),
    "image-segmentation": (
        Task("AutoModelForSemanticSegmentation", _LOGITS),
        Task("AutoModelForImageSegmentation", (*_BOXES, "pred_masks")),
        Task("AutoModelForUniversalSegmentation", ("class_queries_logits", "masks_queries_logits")),
        Task("CLIPSegForImageSegmentation", _LOGITS),
    ),
    "image-to-image": (Task("AutoModelForImageToImage", ("reconstruction",)),),
    "keypoint-detection": (Task("AutoModelForKeypointDetection", ("keypoints", "scores", "descriptors", "mask")),),
    "mask-generation": (Task("AutoModelForMaskGeneration", ("iou_scores", "pred_masks"), mask_generation),),
    "masked-image-modeling": (Task("AutoModelForMaskedImageModeling", ("reconstruction",)),),
    "multiple-choice": (Task("AutoModelForMultipleChoice", _LOGITS, multiple_choice),),
    "object-detection": (Task("AutoModelForObjectDetection", _BOXES),),
    "question-answering": (Task("AutoModelForQuestionAnswering", _ANSWER),),
    "text-classification": (Task("AutoModelForSequenceClassification", _LOGITS),),
    "text-generation": (Task("AutoModelForCausalLM", _LOGITS, decoder),),
    "multi-token-prediction": (Task("AutoModelForCausalLM", _LOGITS, tokens_ahead),),
    "text-to-audio": (
        Task("AutoModelForTextToSpectrogram", ("prob", "output_sequence_out", "spectrum"), speech, "generate_speech"),
        Task("AutoModelForTextToWaveform", _LOGITS, music, "get_unconditional_inputs"),
        Task("AutoModelForTextToWaveform", ("waveform",)),
    ),
    "time-series": tuple(Task(name, ("prediction_outputs",)) for name in _OF_SERIES),
    "token-classification": (Task("AutoModelForTokenClassification", _LOGITS),),
    "video-classification": (Task("AutoModelForVideoClassification", _LOGITS),),
    "visual-question-answering": (Task("AutoModelForVisualQuestionAnswering", _LOGITS),),
    "zero-shot-audio-classification": (Task("AutoModel", _SOUND_PAIRS, method="get_audio_features"),),
    "zero-shot-image-classification": (Task("AutoModelForZeroShotImageClassification", _PAIRS),),
    "zero-shot-object-detection": (Task("AutoModelForZeroShotObjectDetection", _BOXES),),
    "image-to-text": (_FROM_IMAGES,),
    "image-text-to-text": (_FROM_IMAGES,),
    "feature-extraction": (_OF_TEXTS, Task("AutoModel", _HIDDEN)),
    "image-feature-extraction": (_OF_IMAGES, Task("AutoModel", _HIDDEN)),
    "sentence-similarity": (Task("AutoModel", _HIDDEN),),
}

TASKS = Records(
    _OWN,
    Group(
        "fx_onnx.tasks",
        "a tuple of records of fx_onnx.Task",
        lambda given: isinstance(given, tuple) and all(isinstance(task, Task) for task in given) and given != (),
    ),
)
"""The name of a task, as in transformers' pipelines → its rows.

The first task whose class builds an architecture is its default. AutoModel builds every type, so its tasks are last.
"""

OTHER_NAMES = {
    "audio-ctc": "automatic-speech-recognition",
    "causal-lm": "text-generation",
    "default": "feature-extraction",
    "masked-im": "masked-image-modeling",
    "masked-lm": "fill-mask",
    "pretraining": "feature-extraction",
    "semantic-segmentation": "image-segmentation",
    "seq2seq-lm": "text2text-generation",
    "sequence-classification": "text-classification",
    "speech2seq-lm": "automatic-speech-recognition",
    "text-to-speech": "text-to-audio",
    "time-series-forecasting": "time-series",
    "vision2seq-lm": "image-to-text",
    "zero-shot-classification": "text-classification",
}
"""A name that optimum has, or had, for a task → the name of the task."""

PIPELINE = Task("DiffusionPipeline", (), diffusion)
"""The row of a pipeline of diffusers, which is no task of transformers."""


MODULES = {
    "stream": Task("AutoModel", (), stream, load=load_codec),
    "robot-policy": Task("PreTrainedPolicy", ("action",), robot_policy, load=load_policy),
}
"""The tasks of an ``nn.Module`` that is no model of transformers."""


def rows_of(task: str | None) -> Iterator[tuple[str, Task]]:
    """Yields the rows of a task, or of all tasks, with their names."""
    for name in TASKS if task is None else (task,):
        for row in TASKS[name]:
            yield name, row
