"""The sink to which a stage reports what it decided. ``program/export_log.py`` implements it for an export."""

from __future__ import annotations

from typing import Protocol

__all__ = ["EventSink", "IgnoredEvents"]


class EventSink(Protocol):
    """Receives the decisions of the stages, so that a stage does not depend on the log or the report."""

    def decided(self, stage: str, text: str) -> None:
        """Receives one decision.

        Args:
            stage: the name of the stage, for example ``capture``.
            text: the decision in a few words, for example ``captured in strict mode``.
        """


class IgnoredEvents:
    """An EventSink that drops every event, for callers outside of an export."""

    def decided(self, stage: str, text: str) -> None:
        """Does nothing."""
