"""Stages report their progress to whoever is shown it, in the thread of the export."""

from __future__ import annotations

import threading

from fx_onnx.messages.progress import progress_to, report_progress, shows_progress


def test_progress_reaches_the_receiver_of_this_thread() -> None:
    received: list[tuple[int, int]] = []
    report_progress(1, 2)
    with progress_to(lambda done, total: received.append((done, total))):
        assert shows_progress()
        report_progress(1, 2)
        thread = threading.Thread(target=report_progress, args=(5, 6))
        thread.start()
        thread.join()
    report_progress(2, 2)
    assert received == [(1, 2)]
    assert not shows_progress()
