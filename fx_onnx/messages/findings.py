"""What an export found that the user should know: collected while it runs, and issued as one warning afterwards."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from fx_onnx.messages.errors import OnnxExporterError, OnnxExporterWarning
from fx_onnx.messages.message_ids import Finding, MessageId, with_id

__all__ = ["AREAS", "collect_findings", "current_findings", "summary", "warn", "warn_now"]

_logger = logging.getLogger("fx_onnx.export")
AREAS = {
    "FX10": "The call", "FX11": "Capture", "FX12": "Dynamic dims", "FX13": "Operators", "FX14": "The program",
    "FX15": "Files and weights", "FX16": "The environment",
}  # fmt: skip


# The findings of the export that runs in this context. Each thread has a context of its own.
_collected: ContextVar[list[Finding] | None] = ContextVar("fx_onnx_findings", default=None)


def warn(text: str, id: MessageId) -> None:
    """Adds a finding to those of the export that runs; issues a warning at once if no export runs."""
    finding = Finding(id, text)
    findings = _collected.get()
    if findings is None:
        warn_now(with_id(text, id))
    elif finding not in findings:
        findings.append(finding)


def current_findings() -> tuple[Finding, ...]:
    """Returns the findings so far of the export that runs."""
    return tuple(_collected.get() or ())


@contextmanager
def collect_findings(*, as_warning: bool = True, hidden: Collection[MessageId] = ()) -> Iterator[list[Finding]]:
    """Yields the list that receives the findings within the context, and issues one warning for them afterwards.

    With ``as_warning=False`` the caller shows them. Those with an id in ``hidden`` are in the list only.

    If the context raises an error, the findings are logged at level INFO instead, and an error of fx_onnx has them as
    ``findings``. Only a requested file that could not be written is still a warning. Within another such context, the
    findings are added to the outer one.
    """
    findings: list[Finding] = []
    outer = _collected.get()
    token = _collected.set(findings)
    failed = True
    try:
        yield findings
        failed = False
    except OnnxExporterError as error:
        error.findings = (*findings, *(finding for finding in error.findings if finding not in findings))
        raise
    finally:
        _collected.reset(token)
        if failed:
            for finding in findings:
                _logger.info("%s", finding)
        told = [finding for finding in findings if finding.id not in hidden]
        shown = [finding for finding in told if not failed or finding.id is MessageId.ARTIFACT]
        if outer is not None:
            outer.extend(finding for finding in shown if finding not in outer)
        elif shown and as_warning:
            warn_now(summary(shown))


def summary(findings: Sequence[Finding]) -> str:
    """Returns the text of the one warning: the finding itself, or all of them grouped by area."""
    if len(findings) == 1:
        return with_id(findings[0].text, findings[0].id)
    lines = [f"The export has {len(findings)} findings; fx-onnx explain ID explains each."]
    for prefix, area in AREAS.items():
        entries = [f"- {finding}" for finding in findings if finding.id.startswith(prefix)]
        lines += [f"{area}:", *entries] if entries else []
    return "\n".join(lines)


def warn_now(message: str, category: type[Warning] = OnnxExporterWarning) -> None:
    """Issues a warning. Python shows it at the line of the user's code that called fx_onnx."""
    level, frame = 1, inspect.currentframe()
    # contextlib runs the context managers of fx_onnx, and functions of torch.onnx may forward to fx_onnx.
    internal = (f"{__name__.partition('.')[0]}.", "contextlib.", "torch.onnx.")
    while frame is not None and f"{frame.f_globals.get('__name__')}.".startswith(internal):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
