"""The keywords that torch removed: what each sets today, and the warning that names what to write instead."""

from __future__ import annotations

import logging
from typing import Any, get_type_hints

import pytest
import torch

from fx_onnx.compat.removed_keywords import REMOVED, RemovedKeywords, modern, refuse_positional
from fx_onnx.messages.errors import ArgumentError, UnknownArgumentError
from fx_onnx.requests.export_modes import OperatorExportTypes

DEFAULTS = {"external_data": None, "operator_export_type": OperatorExportTypes.ONNX}


def test_the_types_of_all_keywords_are_given() -> None:
    assert get_type_hints(RemovedKeywords).keys() == REMOVED.keys()


@pytest.mark.parametrize(
    ("name", "value", "settings", "advice"),
    [
        ("use_external_data_format", True, {"external_data": True}, "use external_data"),
        ("use_external_data_format", False, {}, "use external_data"),
        ("enable_onnx_checker", True, {"check": True}, "use verify=True"),
        ("enable_onnx_checker", False, {"check": False}, "use verify=True"),
        ("strip_doc_string", False, {"doc_strings": True}, "use verbose=True"),
        ("strip_doc_string", True, {"doc_strings": False}, "use verbose=True"),
        ("aten", True, {"operator_export_type": OperatorExportTypes.ONNX_ATEN}, "use operator_export_type="),
        ("aten", False, {}, "use operator_export_type="),
        ("export_raw_ir", False, {}, "leave it out"),
        ("example_outputs", object(), {}, "leave it out: capture finds the outputs"),
        ("fallback", True, {}, "leave it out: there is one exporter"),
        ("_retain_param_name", False, {}, "leave it out: weights keep their names"),
        ("add_node_names", False, {}, "leave it out: nodes have names"),
        ("fixed_batch_size", True, {}, "leave it out: a dim that is not"),
        ("onnx_shape_inference", False, {}, "leave it out: capture finds the shapes"),
        ("propagate", True, {}, "leave it out: capture finds the shapes"),
    ],
)
def test_what_it_sets(name: str, value: Any, settings: dict[str, Any], advice: str) -> None:
    with pytest.warns(FutureWarning, match=f"torch removed the argument '{name}'") as caught:
        assert modern({name: value}, {}, DEFAULTS) == settings
    (warning,) = caught
    assert advice in str(warning.message)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_what_changes_nothing_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "fx_onnx.export"):
        modern({"fallback": True, "use_external_data_format": True}, {}, DEFAULTS)
    assert caplog.messages == ["fallback=True has no effect: the export is the same without it"]


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    ("removed", "given", "message"),
    [
        ({"use_external_data_format": True}, {"external_data": False}, "contradicts external_data=False"),
        ({"aten": True}, {"operator_export_type": OperatorExportTypes.ONNX_FALLTHROUGH}, "contradicts operator_export"),
        ({"export_raw_ir": True}, {}, "TorchScript's graph"),
        ({"fallback": "yes"}, {}, "fallback must be True, False or None"),
        ({"dynamic_axis": {}}, {"dynamic_axes": None}, "has no argument 'dynamic_axis'; did you mean 'dynamic_axes'"),
        ({"zzz": 1}, {}, r"has no argument 'zzz'\. \[fx-onnx explain FX\d+\]$"),
    ],
)
def test_what_is_refused(removed: dict[str, Any], given: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        modern(removed, given, DEFAULTS)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_keyword_of_today_may_say_the_same() -> None:
    given = {"external_data": True, "operator_export_type": torch.onnx.OperatorExportTypes.ONNX_ATEN}
    settings = modern({"use_external_data_format": True, "aten": True}, given, DEFAULTS)
    assert settings == {"external_data": True, "operator_export_type": OperatorExportTypes.ONNX_ATEN}


def test_positional_arguments_are_named() -> None:
    refuse_positional(())
    with pytest.raises(
        UnknownArgumentError, match=r"such as export_params=True, verbose=False\. \[fx-onnx explain FX\d+\]$"
    ) as caught:
        refuse_positional((True, False))
    assert isinstance(caught.value, TypeError)
