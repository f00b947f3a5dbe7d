"""Tests of the lock: it excludes others, warns while it waits, passes on what the dead leave, and may not exist."""

import errno
import os
import threading

import pytest

from fx_onnx.files import locked_file
from fx_onnx.files.locked_file import lock
from fx_onnx.messages.errors import OnnxExporterWarning


def nothing(content: bytes) -> None:
    raise AssertionError(content)


def test_the_content_of_a_file_that_remains_is_passed_on(tmp_path):
    seen: list[bytes] = []
    for _ in range(2):
        with lock(tmp_path / "lock", seen.append) as file:
            file.write(b"left")
    assert seen == [b"left"]
    with lock(tmp_path / "lock", seen.append) as file:
        file.remove()
    with lock(tmp_path / "lock", nothing) as file:
        file.remove()
    assert os.listdir(tmp_path) == []


def test_it_warns_while_it_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(locked_file, "WARN_AFTER_SECONDS", 0)
    release = threading.Event()
    held = threading.Event()

    def hold():
        with lock(tmp_path / "lock", nothing) as file:
            held.set()
            release.wait()
            file.remove()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    threading.Timer(0.2, release.set).start()
    with pytest.warns(OnnxExporterWarning, match="waits for another one"), lock(tmp_path / "lock", nothing) as file:
        assert release.is_set()
        file.remove()
    thread.join()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(locked_file.fcntl, "flock", refuse)
    with lock(tmp_path / "lock", nothing) as file:
        assert file is None
        assert os.listdir(tmp_path) == []


def test_many_threads_are_never_inside_together(tmp_path):
    inside, most = 0, 0

    def work():
        nonlocal inside, most
        for _ in range(20):
            with lock(tmp_path / "lock", lambda _: None) as file:
                inside += 1
                most = max(most, inside)
                inside -= 1
                file.remove()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert os.listdir(tmp_path) == []
