"""The ids of messages are stable, and docs/troubleshooting.md explains each."""

from __future__ import annotations

import pickle
import re

import pytest

import fx_onnx
from fx_onnx.messages.errors import ArgumentError, OnnxExporterError, first_line
from fx_onnx.messages.message_ids import MessageId, with_id
from tests.sources import ROOT

# Every id that a released version or the main branch ever had. Never remove one, and never give it another meaning.
IDS = {
    "FX1001": "ARGUMENT",
    "FX1002": "UNKNOWN_ARGUMENT",
    "FX1003": "MODEL",
    "FX1004": "ARGUMENTS_OF_FORWARD",
    "FX1005": "ARGUMENT_TYPE",
    "FX1006": "NAMES",
    "FX1007": "DYNAMIC_SHAPES",
    "FX1008": "OPSET_VERSION",
    "FX1009": "TARGET",
    "FX1010": "CUSTOM_TRANSLATION",
    "FX1011": "TRAINING_MODE",
    "FX1012": "NO_TORCHSCRIPT_EXPORTER",
    "FX1013": "NESTED_EXPORT",
    "FX1014": "CONFLICTING_ARGUMENTS",
    "FX1015": "PASS_NAME",
    "FX1016": "CUSTOM_OPSETS",
    "FX1017": "ARGUMENTS_OF_PROGRAM",
    "FX1018": "NO_DECODER",
    "FX1019": "COMMAND_OPTION",
    "FX1020": "MODEL_SOURCE",
    "FX1101": "CAPTURE",
    "FX1102": "BRANCH_ON_DATA",
    "FX1103": "NUMBER_FROM_DATA",
    "FX1104": "OUTPUT_CLASS",
    "FX1105": "FORWARD_FAILED",
    "FX1106": "FAKE_KERNEL",
    "FX1107": "DIM_CONFLICT",
    "FX1108": "CONTROL_FLOW",
    "FX1109": "TENSOR_WITHOUT_VALUES",
    "FX1110": "TORCHSCRIPT",
    "FX1111": "EXCEPTION_ON_DATA",
    "FX1112": "BUFFER_ASSIGNMENT",
    "FX1113": "QUANTIZED_MODULE",
    "FX1114": "WRITE_IN_PLACE",
    "FX1115": "RUNNING_STATISTICS",
    "FX1116": "GRADIENTS",
    "FX1117": "PYTHON_STATE",
    "FX1201": "STATIC_DIM",
    "FX1202": "SIZE_CONDITION",
    "FX1203": "EXCLUDED_SIZE",
    "FX1204": "RELATED_DIMS",
    "FX1205": "DIM_NAME",
    "FX1301": "TRANSLATION",
    "FX1302": "UNSUPPORTED_OPERATOR",
    "FX1303": "OPSET_LACKS_OPERATOR",
    "FX1304": "TARGET_LACKS_OPERATOR",
    "FX1305": "OPSET_LACKS_DTYPE",
    "FX1306": "DTYPE",
    "FX1307": "UNEQUAL_DTYPES",
    "FX1308": "SIZE_IN_ATTRIBUTE",
    "FX1401": "INVALID_MODEL",
    "FX1402": "RESULTS_DIFFER",
    "FX1403": "CALL_OF_PROGRAM",
    "FX1404": "UNKNOWN_NAME",
    "FX1405": "REPLACED_WEIGHT",
    "FX1406": "RUNTIME",
    "FX1407": "PROVIDER",
    "FX1408": "NOTHING_TO_COMPARE",
    "FX1501": "FILE",
    "FX1502": "ARTIFACT",
    "FX1503": "EXTERNAL_DATA",
    "FX1504": "WEIGHT_WITHOUT_DATA",
    "FX1505": "WEIGHTS_FROM",
    "FX1506": "SAVE_WAITS",
    "FX1507": "NO_BROWSER",
    "FX1508": "GENAI_FOLDER",
    "FX1509": "GENAI_PROGRAM",
    "FX1510": "ONNX_FILE",
    "FX1601": "EXPORT",
    "FX1602": "MISSING_PACKAGE",
    "FX1603": "TORCH_VERSION",
    "FX1604": "PLUGIN",
}


def test_ids_are_stable() -> None:
    assert {id.value: id.name for id in MessageId}.items() <= IDS.items(), "add new ids to IDS"
    assert len(set(IDS.values())) == len(IDS), "two ids have one name"


def test_the_page_explains_each_id_in_order() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    sections = re.split(r"^### (FX\d{4})\n", page, flags=re.MULTILINE)[1:]
    assert sections[::2] == sorted(id.value for id in MessageId)
    for id, text in zip(sections[::2], sections[1::2], strict=True):
        assert re.findall(r"^- \*\*(.+?)\*\*: \S", text, re.MULTILINE) == ["Cause", "What to do", "Example"], id


@pytest.mark.parametrize("folder", ["fx_onnx", "decompositions", "docs", "benchmarks"])
def test_each_id_that_is_written_exists(folder: str) -> None:
    files = [path for suffix in ("py", "md", "js", "html") for path in (ROOT / folder).rglob(f"*.{suffix}")]
    found = {id: path.name for path in files for id in re.findall(r"\bFX1\d{3}\b", path.read_text(encoding="utf-8"))}
    assert files and {id: name for id, name in found.items() if id not in set(MessageId)} == {}


def test_the_id_is_at_the_end_of_the_first_line() -> None:
    assert with_id("One. Two.\n  more", MessageId.CAPTURE) == "One. Two. [fx-onnx explain FX1101]\n  more"


def test_each_error_class_has_an_id_of_its_own() -> None:
    classes = [each for each in vars(fx_onnx.messages.errors).values() if isinstance(each, type)]
    errors = [each for each in classes if issubclass(each, OnnxExporterError)]
    assert len({error.id for error in errors}) == len(errors) > 8


def test_an_error_keeps_its_id() -> None:
    error = ArgumentError("no such file", id=MessageId.FILE)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.id, copy.message) == ("no such file [fx-onnx explain FX1501]", "FX1501", "no such file")
    assert first_line(error) == "ArgumentError: no such file"


@pytest.mark.parametrize("value", [None, ""])
def test_a_message_may_be_empty(value: str | None) -> None:
    error = OnnxExporterError() if value is None else OnnxExporterError(value)
    assert str(error) == " [fx-onnx explain FX1601]"
