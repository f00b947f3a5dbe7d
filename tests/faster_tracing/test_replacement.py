"""When a replacement is applied, and who sees it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import fx

from fx_onnx.faster_tracing import replacement
from fx_onnx.faster_tracing.replacement import OFF, Replacement, digest, function_at, replaced

TARGET = "torch.fx.graph:Graph.lint"


def _make(original: Callable[..., Any]) -> Sequence[Callable[..., Any]]:
    return (lambda self: "faster",)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Replacement:
    """A replacement that was compared with the installed torch."""
    monkeypatch.setattr(replacement, "KNOWN_SOURCES", {TARGET: {"2.0": digest(TARGET)}})
    return Replacement((TARGET,), _make, "It takes time.")


def test_a_replacement_acts_within_the_context(known: Replacement) -> None:
    with replaced((known,)):
        assert fx.Graph().lint() == "faster"
    assert fx.Graph().lint() is None


def test_another_thread_sees_the_function_of_torch(known: Replacement) -> None:
    found: list[Any] = []
    with replaced((known,)):
        thread = threading.Thread(target=lambda: found.append(fx.Graph().lint()))
        thread.start()
        thread.join()
    assert found == [None]


@pytest.mark.parametrize("repeats", [("torch.fx.graph:Graph.node_copy",), ("torch.fx.graph:Graph.gone",), ("no:no",)])
def test_unknown_sources_are_not_replaced(
    known: Replacement, repeats: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "fx_onnx.patches"), replaced((known._replace(repeats=repeats),)):
        assert fx.Graph().lint() is None
    assert f"torch's own {TARGET} is used: the source of {repeats[0]} is unknown" in caplog.text


def test_a_function_that_someone_else_replaced_is_not(known: Replacement, monkeypatch: pytest.MonkeyPatch) -> None:
    with replaced((known,)):
        pass
    monkeypatch.setattr(fx.Graph, "lint", lambda self: "theirs")
    with replaced((known,)):
        assert fx.Graph().lint() == "theirs"


def test_the_variable_turns_all_off(known: Replacement, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OFF, "0")
    with replaced((known,)):
        assert fx.Graph().lint() is None


def test_functions_are_found_by_path() -> None:
    assert function_at("torch.nn.functional:relu") == (torch.nn.functional, "relu", torch.nn.functional.relu)
    assert function_at("torch.fx.graph:Graph.gone") == (fx.Graph, "gone", None)
    assert digest("torch:relu") == ""  # of C++
