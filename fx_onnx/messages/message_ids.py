"""Findings, and the ids of messages: one for each kind of warning and refusal, at the end of the first sentence.

explanations.toml explains each id. An id is never used for another kind of message, and never renamed; a kind
that no longer occurs keeps its number in the list of tests/messages/test_message_ids.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Finding", "MessageId", "place_in", "with_id"]


class MessageId(StrEnum):
    """The kinds of messages. The second digit of a number is the area, as in the headings of the page."""

    # the call of export() and of other functions
    ARGUMENT = "FX1001"
    UNKNOWN_ARGUMENT = "FX1002"
    MODEL = "FX1003"
    ARGUMENTS_OF_FORWARD = "FX1004"
    ARGUMENT_TYPE = "FX1005"
    NAMES = "FX1006"
    DYNAMIC_SHAPES = "FX1007"
    OPSET_VERSION = "FX1008"
    TARGET = "FX1009"
    CUSTOM_TRANSLATION = "FX1010"
    TRAINING_MODE = "FX1011"
    NO_TORCHSCRIPT_EXPORTER = "FX1012"
    NESTED_EXPORT = "FX1013"
    CONFLICTING_ARGUMENTS = "FX1014"
    PASS_NAME = "FX1015"
    CUSTOM_OPSETS = "FX1016"
    ARGUMENTS_OF_PROGRAM = "FX1017"
    NO_DECODER = "FX1018"
    COMMAND_OPTION = "FX1019"
    MODEL_SOURCE = "FX1020"
    # capture
    CAPTURE = "FX1101"
    BRANCH_ON_DATA = "FX1102"
    NUMBER_FROM_DATA = "FX1103"
    OUTPUT_CLASS = "FX1104"
    FORWARD_FAILED = "FX1105"
    FAKE_KERNEL = "FX1106"
    DIM_CONFLICT = "FX1107"
    CONTROL_FLOW = "FX1108"
    TENSOR_WITHOUT_VALUES = "FX1109"
    TORCHSCRIPT = "FX1110"
    EXCEPTION_ON_DATA = "FX1111"
    BUFFER_ASSIGNMENT = "FX1112"
    QUANTIZED_MODULE = "FX1113"
    WRITE_IN_PLACE = "FX1114"
    RUNNING_STATISTICS = "FX1115"
    GRADIENTS = "FX1116"
    PYTHON_STATE = "FX1117"
    # dynamic dims
    STATIC_DIM = "FX1201"
    SIZE_CONDITION = "FX1202"
    EXCLUDED_SIZE = "FX1203"
    RELATED_DIMS = "FX1204"
    DIM_NAME = "FX1205"
    # operators
    TRANSLATION = "FX1301"
    UNSUPPORTED_OPERATOR = "FX1302"
    OPSET_LACKS_OPERATOR = "FX1303"
    TARGET_LACKS_OPERATOR = "FX1304"
    OPSET_LACKS_DTYPE = "FX1305"
    DTYPE = "FX1306"
    UNEQUAL_DTYPES = "FX1307"
    SIZE_IN_ATTRIBUTE = "FX1308"
    # checks
    INVALID_MODEL = "FX1401"
    RESULTS_DIFFER = "FX1402"
    CALL_OF_PROGRAM = "FX1403"
    UNKNOWN_NAME = "FX1404"
    REPLACED_WEIGHT = "FX1405"
    RUNTIME = "FX1406"
    PROVIDER = "FX1407"
    NOTHING_TO_COMPARE = "FX1408"
    # files and weights
    FILE = "FX1501"
    ARTIFACT = "FX1502"
    EXTERNAL_DATA = "FX1503"
    WEIGHT_WITHOUT_DATA = "FX1504"
    WEIGHTS_FROM = "FX1505"
    SAVE_WAITS = "FX1506"
    NO_BROWSER = "FX1507"
    GENAI_FOLDER = "FX1508"
    GENAI_PROGRAM = "FX1509"
    ONNX_FILE = "FX1510"
    # the environment
    EXPORT = "FX1601"
    MISSING_PACKAGE = "FX1602"
    TORCH_VERSION = "FX1603"
    PLUGIN = "FX1604"


@dataclass(frozen=True)
class Finding:
    """One thing in which the exported model, or a file, is not as requested, or not as the user may expect.

    Attributes:
        id: the kind of the finding, for example ``FX1201``, which ``fx-onnx explain`` explains.
        text: one or two sentences.
    """

    id: MessageId
    text: str

    @property
    def place(self) -> str:
        """The line of the model's code that the text names, for example ``model.py:12``; empty if it names none."""
        return place_in(self.text)

    def __str__(self) -> str:
        return _tagged(self.text, self.id)


def place_in(message: str) -> str:
    """Returns the line of code that a message names, for example ``model.py:12``; empty if it names none."""
    match = re.search(r"\((?:at )?([^()\s]+:\d+)(?::|\))", message)
    return match[1] if match is not None else ""


def with_id(message: str, id: MessageId) -> str:
    """Returns a message with the command that explains its id, at the end of the first line."""
    return _tagged(message, f"fx-onnx explain {id}")


def _tagged(message: str, tag: str) -> str:
    first, newline, rest = message.partition("\n")
    return f"{first} [{tag}]{newline}{rest}"
