"""Replaces a saved model, and its data file, so that a crash, a reader and another saver always see one whole model.

A model at ``m.onnx`` reads ``m.onnx.data``. A save over it takes these steps:

1. Create and lock the journal, a hidden file. Another save to the same path waits. The lock of a process that died is
   free: clear the files that its journal lists and its temporary files.
2. Write the new data and the new model under temporary names, and flush them to the disk.
3. List both data files in the journal, the new one and the old one.
4. Rename the new data to ``m.onnx.1.data``, a name that the old model does not read.
5. Rename the new model to ``m.onnx``. This is the moment at which the new model replaces the old one.
6. Remove ``m.onnx.data`` and the journal.

``ir.save`` replaces the data file before the model, so that the old model reads new data for a moment.

A name of a data file is used again only after a model that does not read any has replaced the model, so a reader that
opened the old model finds its own data file or none.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fx_onnx.files.locked_file import LockedFile, lock
from fx_onnx.files.serialization import referenced_files
from fx_onnx.files.streaming import Piece, write

__all__ = ["FileReplacement", "is_data_name", "replacement"]


def is_data_name(name: str, model: str) -> bool:
    """Returns whether a save to a file named ``model`` may give this name to a data file."""
    return _generation(name, model) is not None


@contextmanager
def replacement(path: Path, *, durable: bool = True) -> Iterator[FileReplacement]:
    """Yields the replacement of the model at ``path``. At the end the files that nobody needs are removed.

    Args:
        path: the model. If it is a symbolic link, its target is replaced, and the data file is beside the link.
        durable: whether the files are flushed to the disk, so that they also survive a power failure.

    Raises:
        OSError: a file cannot be created in the folder.
    """
    model = path.resolve() if path.is_symlink() else path
    prefixes = {(model.parent, _hidden_prefix(model.name)), (path.parent, _hidden_prefix(path.name))}

    def clear(journal: bytes) -> None:
        _remove_data_files(path.parent, _entries(journal, path.name), _files_read(model))
        for folder, prefix in prefixes:
            _remove_temporaries(folder, prefix)

    with lock(model.with_name(f"{_hidden_prefix(model.name)}.saving"), clear) as journal:
        files = FileReplacement(path, model, journal, durable)
        try:
            yield files
        except BaseException:
            files.undo()
            raise
        files.finish()


@dataclass(frozen=True)
class _Entry:
    """A data file that a journal lists. The identity shows whether the name still belongs to the same file."""

    name: str
    identity: tuple[int, ...]


class FileReplacement:
    """One save to a path, while its journal is locked.

    Attributes:
        old_data: the data files of the old model. They are removed when the new model has replaced it.
    """

    def __init__(self, path: Path, model: Path, journal: LockedFile | None, durable: bool) -> None:
        self._path, self._model, self._journal, self._durable = path, model, journal, durable
        self._read = _files_read(model)
        names = sorted(name for name in self._read or () if _generation(name, path.name) is not None)
        self._generation = max((_generation(name, path.name) or 0 for name in names), default=-1)
        self.old_data = [path.with_name(name) for name in names if path.with_name(name).is_file()]
        self._temporaries: list[Path] = []
        self._new_data: list[_Entry] = []

    def new_data_name(self, is_read: Callable[[Path], bool]) -> str:
        """Returns the name of the new data file: the first free one after those that the old model reads.

        A file ``<model>.data`` that no model reads is replaced, because the first save writes this name.

        Args:
            is_read: returns whether the model in memory reads a file.
        """
        names = (_data_name(self._path.name, number) for number in itertools.count(self._generation + 1))
        first = self._path.with_name(_data_name(self._path.name, 0))
        stale = self._generation < 0 and self._read is not None and first.is_file()
        if stale and not is_read(first) and not self._is_read_by_others(first):
            return first.name
        return next(name for name in names if not os.path.lexists(self._path.with_name(name)))

    def install(self, model: Sequence[Piece], data: Sequence[Piece] = (), data_name: str | None = None) -> None:
        """Writes the new files, then moves them to their names; the model is the last.

        Raises:
            OSError: a file cannot be written or moved.
            OnnxExporterError: the number of bytes of a tensor does not match its dtype and shape.
        """
        if data_name is not None:
            like = self.old_data[-1] if self.old_data else self._path.with_name(data_name)
            new_data = self._write(data, self._path, like)
            self._new_data = [_Entry(data_name, _identity(new_data))]
        new_model = self._write(model, self._model, self._model)
        self._write_journal()
        if data_name is not None:
            os.replace(new_data, self._path.with_name(data_name))
            self._flush_folder(self._path.parent)
        os.replace(new_model, self._model)
        self._flush_folder(self._model.parent)

    def finish(self) -> None:
        """Removes the data files of the old model, and the journal if nothing remains for a later save to remove."""
        removed = [_removed(path) for path in self.old_data]
        if all(removed):
            self._remove_journal()

    def undo(self) -> None:
        """Removes the temporary files, and the new data file unless the new model is in place.

        If it is, the old data file and the journal remain for a later save, because the model in memory may read it.
        """
        for path in self._temporaries:
            _removed(path)
        read = _files_read(self._model)
        _remove_data_files(self._path.parent, self._new_data, read)
        unread = read is None or any(path.name not in read and path.exists() for path in self.old_data)
        if not unread:
            self._remove_journal()

    def _remove_journal(self) -> None:
        if self._journal is not None:
            with suppress(OSError):
                self._journal.remove()

    def _write(self, pieces: Sequence[Piece], model: Path, like: Path) -> Path:
        """Writes a temporary file beside ``model``, with the permissions of ``like`` if that exists."""
        temporary = model.with_name(f"{_hidden_prefix(model.name)}.{secrets.token_hex(4)}.new")
        self._temporaries.append(temporary)
        with temporary.open("xb") as file:
            write(pieces, file)
            file.flush()
            if like.is_file():
                shutil.copymode(like, temporary)
            if self._durable:
                os.fsync(file.fileno())
        return temporary

    def _write_journal(self) -> None:
        if self._journal is not None and (self._new_data or self.old_data):
            entries = [*self._new_data, *(_Entry(path.name, _identity(path)) for path in self.old_data)]
            self._journal.write(json.dumps([[entry.name, *entry.identity] for entry in entries]).encode())

    def _flush_folder(self, folder: Path) -> None:
        """Flushes the names in a folder to the disk, in the order of the renames, where the system can do so."""
        if self._durable and os.name == "posix":
            with suppress(PermissionError):  # a folder may be writable, but not readable
                descriptor = os.open(folder, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)

    def _is_read_by_others(self, data: Path) -> bool:
        """Returns whether another model in the folder reads the data file, for example one that was renamed."""
        try:
            files = [file for file in data.parent.iterdir() if file.suffix != ".data" and file.is_file()]
        except PermissionError:  # a folder may be writable, but not readable
            return True
        return any(data.name in (_files_read(file) or ()) for file in files)


# Names


def _data_name(model: str, generation: int) -> str:
    return f"{model}.{generation}.data" if generation else f"{model}.data"


def _generation(name: str, model: str) -> int | None:
    """Returns the number of a data file of ``model``: 0 for ``<model>.data``, n for ``<model>.<n>.data``."""
    match = re.fullmatch(rf"{re.escape(model)}(?:\.([1-9][0-9]{{0,17}}))?\.data", name)
    return int(match[1] or 0) if match is not None else None


def _hidden_prefix(name: str) -> str:
    """Returns the beginning of the hidden names for a model. The hash keeps the names of two long names apart."""
    raw = os.fsencode(name)
    return f".{raw[:40].decode(errors='ignore')}.{hashlib.sha256(raw).hexdigest()[:8]}"


# Leftovers


def _files_read(model: Path) -> set[str] | None:
    """Returns the names of the files that a model reads, or None if the model cannot be opened."""
    try:
        return referenced_files(model)
    except (FileNotFoundError, IsADirectoryError):
        return set()
    except OSError:
        return None


def _identity(path: Path) -> tuple[int, ...]:
    """Returns numbers that differ between two files that had the same name. Renaming does not change them."""
    status = path.stat(follow_symlinks=False)
    return status.st_ino, status.st_size, status.st_mtime_ns


def _entries(journal: bytes, model: str) -> list[_Entry]:
    """Returns the data files that a journal lists. A journal that is incomplete lists none."""
    try:
        listed = json.loads(journal)
        return [_Entry(name, tuple(identity)) for name, *identity in listed if _generation(name, model) is not None]
    except (ValueError, TypeError, RecursionError):
        return []


def _remove_data_files(folder: Path, entries: Sequence[_Entry], read: set[str] | None) -> None:
    """Removes the listed data files that the model does not read, if they are still the same files."""
    for entry in entries:
        path = folder / entry.name
        if read is not None and entry.name not in read:
            with suppress(OSError):
                if _identity(path) == entry.identity:
                    path.unlink()


def _remove_temporaries(folder: Path, prefix: str) -> None:
    """Removes the temporary files of dead saves. None is alive, because the caller holds the lock."""
    with suppress(PermissionError):  # a folder may be writable, but not readable
        for file in list(folder.iterdir()):
            if file.name.startswith(f"{prefix}.") and file.suffix == ".new":
                _removed(file)


def _removed(path: Path) -> bool:
    """Removes a file, and returns whether it does not exist any more."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True
