"""Tells why a client has no case for a task. A test checks that each other task has one."""

from benchmarks.application_models import CASES
from benchmarks.applications import has_class
from benchmarks.applications_js import NAMES

IN_OPTIMUM, IN_JS = "optimum-onnx", "transformers.js"
_SAME = "the files of feature-extraction"
WITHOUT = {
    "document-question-answering": {IN_JS: "its class is that of image-to-text"},
    "image-text-to-text": {IN_OPTIMUM: "no class"},
    "keypoint-detection": {IN_JS: "no class"},
    "mask-generation": {IN_OPTIMUM: "no class"},
    "masked-image-modeling": {IN_JS: "no class"},
    "multi-token-prediction": {IN_OPTIMUM: "no class", IN_JS: "no class"},
    "multiple-choice": {IN_JS: "no class"},
    "sentence-similarity": {IN_OPTIMUM: _SAME, IN_JS: _SAME},
    "text-to-audio": {IN_OPTIMUM: "no class for parts"},
    "video-classification": {IN_JS: "no class"},
    "visual-question-answering": {IN_JS: "no class"},
}
"""Task → client → why it has no case."""


def cases_of(task: str, client: str) -> list[str]:
    """Returns the names of the cases of a task in a client."""
    of_task = [each for each in CASES if each.task == task]
    return [each.name for each in of_task if (has_class(each) if client == IN_OPTIMUM else each.name in NAMES)]
