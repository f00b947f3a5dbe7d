"""A file that exists and is locked while its owner works. The lock of a process that dies is free at once.

onnx_ir has no locks. The package filelock does not pass on what a dead owner wrote, leaves the file behind, and knows
only one of the errors of file systems without locks.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from fx_onnx.messages.findings import warn_now
from fx_onnx.messages.message_ids import MessageId, with_id

if sys.platform != "win32":
    import fcntl

__all__ = ["LockedFile", "lock"]

MAX_BYTES = 64 * 1024
"""More bytes of a file whose owner died are not read."""
WARN_AFTER_SECONDS = 10.0
"""How long a process waits for the lock before it warns."""
_POLL_SECONDS = 0.02
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}


class LockedFile:
    """The file of its owner. If the owner dies, the next owner gets the content."""

    def __init__(self, path: Path, file: FileIO) -> None:
        self._path, self._file = path, file

    def write(self, content: bytes) -> None:
        """Writes the content.

        Raises:
            OSError: the disk is full.
        """
        if self._file.write(content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(self._path))

    def remove(self) -> None:
        """Removes the file. If it remains, the next owner gets its content."""
        self._path.unlink(missing_ok=True)


class _NoLocksError(Exception):
    """The platform or the file system has no locks."""


@contextmanager
def lock(path: Path, clear: Callable[[bytes], None]) -> Iterator[LockedFile | None]:
    """Creates a file and locks it. Waits for another process or thread that has locked it, and warns after 10 s.

    Yields None if the platform or the file system has no locks; in this case nothing is excluded.

    Args:
        path: the file.
        clear: receives the content of a file whose owner died, before that file is removed. No other process calls it
            at the same time.

    Raises:
        OSError: the file cannot be created.
    """
    file: FileIO | None = None
    try:
        with suppress(_NoLocksError):
            file = _acquire(path, clear)
        yield None if file is None else LockedFile(path, file)
    finally:
        if file is not None:
            _release(file)


def _acquire(path: Path, clear: Callable[[bytes], None]) -> FileIO:
    """Returns a new file that is locked."""
    while True:
        file: FileIO | None = None
        try:
            file = FileIO(path, "x+", opener=_open)
            if _try_lock(file) and _is_at(file, path):
                return file
            file.close()  # another process took it for the file of a dead owner, in the moment before it was locked
        except FileExistsError:
            _clear_dead(path, clear)
        except BaseException as error:
            if file is not None:
                if isinstance(error, _NoLocksError):
                    path.unlink(missing_ok=True)
                file.close()
            raise


def _clear_dead(path: Path, clear: Callable[[bytes], None]) -> None:
    """Waits until the file is unlocked. If it still exists then, its owner died: clears and removes it."""
    try:
        file = FileIO(path, "r", opener=_open)
    except FileNotFoundError:
        return
    with file:
        _wait(file, path)
        try:
            if _is_at(file, path):
                clear(file.read(MAX_BYTES))
                path.unlink(missing_ok=True)
        finally:
            _unlock(file)


def _open(path: str, flags: int) -> int:
    """Opens a file, but neither the target of a symbolic link nor a pipe that nobody writes to."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666)


def _is_at(file: FileIO, path: Path) -> bool:
    """Returns whether the open file still has this name. A file that was removed in the meantime excludes nobody."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


def _wait(file: FileIO, path: Path) -> None:
    deadline = time.monotonic() + WARN_AFTER_SECONDS
    while not _try_lock(file):
        if time.monotonic() > deadline:
            deadline = float("inf")
            text = f"This save waits for another one to the same path, which holds the lock {os.fspath(path)!r}."
            warn_now(with_id(text, MessageId.SAVE_WAITS))  # at once, because the user waits too
        time.sleep(_POLL_SECONDS)


def _try_lock(file: FileIO) -> bool:
    """Locks the file and returns True, or returns False if another process or thread has locked it.

    Raises:
        _NoLocksError: there are no locks.
    """
    if sys.platform == "win32":
        raise _NoLocksError
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise _NoLocksError from error
        raise
    return True


def _release(file: FileIO) -> None:
    """Unlocks and closes the file."""
    try:
        _unlock(file)
    finally:
        file.close()


def _unlock(file: FileIO) -> None:
    """Unlocks the file also for a child process that was forked meanwhile and has the file open."""
    if sys.platform != "win32":
        fcntl.flock(file.fileno(), fcntl.LOCK_UN)
