"""Gives damaged files to everything that reads a file, and lists what breaks a promise of SECURITY.md.

python -m tools.mutations [--count 25000] [--kinds onnx,npy] [--first 0] [--folder build/mutations]

Each file of a kind is a valid one after one to four mutations: bytes, numbers, names and lengths in it change, parts
go, come twice or move. Its number makes it again: ``--kinds onnx --first 17 --count 1``. The readers run in a process
of their own. A finding is:

- an error that is not one of fx_onnx's, or a process that dies,
- more than 5 seconds, or more memory than 64 MB and 20 times the size of the files,
- a file that is opened or written outside of the folder of the model. Python reports what it opens, and Linux reports
  each use of a folder beside that of the model, by whatever library.

A run continues where the last one in its folder ended. The exit code is 1 if there is a finding in a kind of files that
may be untrusted. It needs Linux, whose kernel tells the peak of memory.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import io
import json
import multiprocessing
import os
import random
import re
import shutil
import struct
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

SECONDS = 5.0
MEMORY_BYTES, MEMORY_OF_FILE = 64 * 2**20, 20
PROCESS_BYTES = 24 * 2**30  # of addresses, so that a wrong size is an error and not a full machine
FILES_OF_A_PROCESS = 2000
CHANGED, OPENED, MADE, REMOVED, IS_FOLDER = 0x2, 0x20, 0x100, 0x200, 0x40000000  # of inotify

OUTSIDE = "outside"
"""The folder beside that of the model, which no reader may use."""

NUMBERS = (0, 1, -1, 2, 7, 127, 128, 255, 256, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1)
NAMES = (
    *(f"../{OUTSIDE}/secret.bin", f"x/../../{OUTSIDE}/secret.bin", f"..\\{OUTSIDE}\\secret.bin", "/dev/zero", "link"),
    *("weights.bin", "", ".", "..", "\0", "é" * 9, "con", "%s%n", "x" * 5000),
)


# ---------------------------------------------------------------- mutations of bytes


def mutated(data: bytes, rnd: random.Random) -> bytes:
    """Returns the bytes of a file after one to four mutations; many keep the form of an archive, JSON or header."""
    for form, change in FORMS:
        if data.startswith(form) and rnd.random() < 0.6:
            with contextlib.suppress(ValueError, KeyError, zipfile.BadZipFile, NotImplementedError):
                return change(data, rnd)
    for _ in range(rnd.choice((1, 1, 1, 2, 4))):
        data = rnd.choice(MUTATIONS)(data, rnd)
    return data


def _in_archive(data: bytes, rnd: random.Random) -> bytes:
    """Changes a member of a zip archive, whose checksum is right then."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    name, kind = rnd.choice(sorted(members)), rnd.random()
    if kind < 0.1:
        content = members.pop(name)
        members.update({} if kind < 0.05 else {rnd.choice(NAMES).replace("\0", "0") or "x": content})
    else:
        members[name] = mutated(members[name], rnd)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for each, content in members.items():
            archive.writestr(each, content)
    return stream.getvalue()


def _in_json(data: bytes, rnd: random.Random) -> bytes:
    return json.dumps(_other(json.loads(data), rnd)).encode()


def _other(value: Any, rnd: random.Random) -> Any:
    """Returns an object of JSON with another value, key or type at one place."""
    if isinstance(value, (dict, list)) and value and rnd.random() < 0.85:
        place: Any = rnd.choice(list(value if isinstance(value, dict) else range(len(value))))
        copy: Any = value.copy()
        if rnd.random() < 0.1:
            del copy[place]
        elif isinstance(copy, dict) and rnd.random() < 0.1:
            copy[rnd.choice(NAMES)] = copy.pop(place)
        else:
            copy[place] = _other(copy[place], rnd)
        return copy
    deep: Any = []
    for _ in range(rnd.choice((1, 20, 900))):
        deep = [deep]
    return rnd.choice((None, True, 0.5, 1e308, {}, {"a": value}, [value, value], deep, *NUMBERS, *NAMES, -2))


def _in_safetensors(data: bytes, rnd: random.Random) -> bytes:
    """Changes the header, whose length is right then."""
    end = 8 + int.from_bytes(data[:8], "little")
    header = _in_json(data[8:end], rnd)
    return len(header).to_bytes(8, "little") + header + data[end:]


def _in_npy(data: bytes, rnd: random.Random) -> bytes:
    """Changes the header, whose length is right then."""
    (length,) = struct.unpack("<H", data[8:10])
    header = rnd.choice((_digits, _word, _put_byte, _move))(data[10 : 10 + length], rnd)[: 2**16 - 1]
    return data[:8] + struct.pack("<H", len(header)) + header + data[10 + length :]


def _put(data: bytes, rnd: random.Random, new: bytes) -> bytes:
    start = rnd.randrange(len(data) + 1)
    return data[:start] + new + data[start + rnd.choice((0, len(new), len(new))) :]


def _put_byte(data: bytes, rnd: random.Random) -> bytes:
    return _put(data, rnd, bytes([rnd.randrange(256)]))


def _put_number(data: bytes, rnd: random.Random) -> bytes:
    form = rnd.choice(("<I", ">I", "<Q", "<H"))
    return _put(data, rnd, struct.pack(form, rnd.choice(NUMBERS) % 2 ** (8 * struct.calcsize(form))))


def _put_varint(data: bytes, rnd: random.Random) -> bytes:
    number, encoded = rnd.choice(NUMBERS) % 2**64, b""
    while number > 127:
        encoded, number = encoded + bytes([number & 127 | 128]), number >> 7
    return _put(data, rnd, encoded + bytes([number]))


def _digits(data: bytes, rnd: random.Random) -> bytes:
    return _replaced(data, rnd, rb"-?\d+", str(rnd.choice(NUMBERS)))


def _word(data: bytes, rnd: random.Random) -> bytes:
    words = re.findall(rb"[A-Za-z_.]{3,}", data)
    other = rnd.choice(words).decode() if words and rnd.random() < 0.5 else rnd.choice(NAMES)
    return _replaced(data, rnd, rb"[A-Za-z_.]{3,}", other)


def _path(data: bytes, rnd: random.Random) -> bytes:
    return _replaced(data, rnd, rb"weights\.bin|[a-z_/]+\.(?:pkl|json|safetensors)", rnd.choice(NAMES))


def _replaced(data: bytes, rnd: random.Random, pattern: bytes, new: str) -> bytes:
    found = list(re.finditer(pattern, data))
    if not found:
        return _put_byte(data, rnd)
    place = rnd.choice(found)
    return data[: place.start()] + new.encode() + data[place.end() :]


def _cut(data: bytes, rnd: random.Random) -> bytes:
    return data[: rnd.randrange(len(data) + 1)]


def _move(data: bytes, rnd: random.Random) -> bytes:
    """Moves, repeats or removes a part."""
    start, stop = sorted(rnd.randrange(len(data) + 1) for _ in range(2))
    stop = min(stop, start + 2 ** rnd.randrange(12))
    rest, part = data[:start] + data[stop:], data[start:stop]
    place = rnd.randrange(len(rest) + 1)
    return rest[:place] + part * rnd.choice((0, 1, 2, 20)) + rest[place:]


def _nest(data: bytes, rnd: random.Random) -> bytes:
    start = rnd.randrange(len(data) + 1)
    return data[:start] + rnd.choice((b"[", b"(", b'{"a":', b"\x0a\x02", b"\x3a\x7f")) * 2000 + data[start:]


FORMS: tuple[tuple[bytes, Callable[[bytes, random.Random], bytes]], ...] = (
    (b"PK", _in_archive),
    (b"{", _in_json),
    (b"\x93NUMPY", _in_npy),
)
MUTATIONS = (_put_byte, _put_byte, _put_number, _put_varint, _digits, _word, _path, _cut, _move, _move, _nest)


def mutated_message(data: bytes, rnd: random.Random) -> bytes:
    """Returns the bytes of an ONNX model in which one field of one message has another value, or comes twice."""
    import onnx

    model = onnx.ModelProto.FromString(data)
    for _ in range(rnd.choice((1, 1, 2))):
        message: Any = model
        while True:
            fields = [(field, value) for field, value in message.ListFields()]
            if not fields:
                break
            field, value = rnd.choice(fields)
            inner = [each for each in (value if field.is_repeated else [value]) if hasattr(each, "ListFields")]
            if inner and rnd.random() < 0.85:
                message = rnd.choice(inner)
                continue
            _change_field(message, field, value, rnd)
            break
    return bytes(model.SerializeToString())


def _change_field(message: Any, field: Any, value: Any, rnd: random.Random) -> None:
    kind = rnd.random()
    if kind < 0.2 or (field.message_type is not None and not field.is_repeated):
        message.ClearField(field.name)
    elif field.is_repeated and (kind < 0.5 or field.message_type is not None):
        place = rnd.randrange(len(value))
        value.extend([value[place]] * rnd.choice((1, 1, 30))) if kind < 0.35 else value.pop(place)
    else:
        new = _new_value(rnd, value[0] if field.is_repeated else value)
        with contextlib.suppress(ValueError, TypeError):  # the field has a smaller type, or an enumeration
            if field.is_repeated:
                value[rnd.randrange(len(value))] = new
            else:
                setattr(message, field.name, new)


def _new_value(rnd: random.Random, value: Any) -> Any:
    if isinstance(value, bytes):
        return rnd.choice((mutated(value, rnd), rnd.choice(NAMES).encode()))
    if isinstance(value, str):
        return rnd.choice((rnd.choice(NAMES), str(rnd.choice(NUMBERS)), "Relu", "Loop", "x"))
    return rnd.choice((*NUMBERS, *range(24)))


# ---------------------------------------------------------------- kinds: a valid file, and what reads it


@dataclass(frozen=True)
class Kind:
    """One kind of files.

    Attributes:
        make: writes a valid file, with all that it needs, to a folder.
        name: the name of the file that is mutated.
        read: reads the file as fx_onnx's commands and functions do; the number chooses one.
        change: the mutation.
        may_be_untrusted: whether SECURITY.md promises that nothing of this happens.
    """

    make: Callable[[Path], None]
    name: str
    read: Callable[[Path, int], Any]
    change: Callable[[bytes, random.Random], bytes] = mutated
    may_be_untrusted: bool = True


def _network() -> Any:
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8)).eval()


def _make_onnx(folder: Path) -> None:
    import torch

    import fx_onnx

    program = fx_onnx.export(_network(), (torch.ones(2, 8),), dynamic_shapes=({0: "batch"},))
    program.save(folder / "model.onnx")


def _make_external(folder: Path) -> None:
    import onnx

    _make_onnx(folder)
    model = onnx.load(folder / "model.onnx")
    onnx.save_model(model, folder / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)


def _make_safetensors(folder: Path) -> None:
    from safetensors.torch import save_file

    save_file(_network().state_dict(), folder / "model.safetensors")


def _make_index(folder: Path) -> None:
    _make_safetensors(folder)
    index = {"weight_map": dict.fromkeys(_network().state_dict(), "model.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def _make_npy(folder: Path) -> None:
    import numpy as np

    np.save(folder / "array.npy", np.arange(24, dtype=np.float32).reshape(2, 3, 4))


def _make_pt2(folder: Path) -> None:
    import torch

    torch.export.save(torch.export.export(_network(), (torch.ones(2, 8),)), folder / "model.pt2")


def _make_torchscript(folder: Path) -> None:
    import torch

    torch.jit.script(_network()).save(folder / "model.pt")


def _make_config(folder: Path) -> None:
    import transformers

    import tests.torchvision_cpu  # noqa: F401  torchvision beside a torch without CUDA

    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(vocab_size=20, max_position_embeddings=16, **sizes)
    transformers.BertForMaskedLM(config).save_pretrained(folder)


def _read_onnx(path: Path, number: int) -> None:
    from fx_onnx.cli import onnx_files
    from fx_onnx.files.serialization import referenced_files

    action = number % 8
    if action == 0:
        onnx_files.check(path)
    elif action == 1:
        onnx_files.compare_files(path.with_name("valid.onnx"), path)
    elif action == 2:
        onnx_files.read(path).save_html(path.with_suffix(".html"))
    elif action == 3:
        referenced_files(path)
    elif action in (4, 5):
        onnx_files.read(path).save(path.with_name("saved.onnx"), external_data=action == 4)
    else:
        repr(onnx_files.read(path).summary())


def _read_data(path: Path, number: int) -> None:
    _read_onnx(path.with_name("model.onnx"), number)


def _read_safetensors(path: Path, number: int) -> None:
    from fx_onnx.references.weight_references import stored_weights

    for weight in stored_weights(path if number % 2 else path.parent, path.parent).values():
        weight.numpy()


def _read_source(path: Path, number: int) -> None:
    from fx_onnx.cli.model_sources import load

    load(str(path))


def _read_config(path: Path, number: int) -> None:
    from fx_onnx.cli.model_sources import load

    load(f"hf:{path.parent}", task=("fill-mask", None, "feature-extraction")[number % 3])


def _read_npy(path: Path, number: int) -> None:
    from fx_onnx.cli.example_inputs import parse_inputs

    parse_inputs([f"x=@{path}"])


def _mutated_model(data: bytes, rnd: random.Random) -> bytes:
    return (mutated_message if rnd.random() < 0.6 else mutated)(data, rnd)


def _mutated_weights(data: bytes, rnd: random.Random) -> bytes:
    return (_in_safetensors if rnd.random() < 0.6 else mutated)(data, rnd)


KINDS: Mapping[str, Kind] = {
    "npy": Kind(_make_npy, "array.npy", _read_npy),
    "safetensors": Kind(_make_safetensors, "model.safetensors", _read_safetensors, _mutated_weights),
    "index": Kind(_make_index, "model.safetensors.index.json", _read_safetensors),
    "onnx": Kind(_make_onnx, "model.onnx", _read_onnx, _mutated_model),
    "external": Kind(_make_external, "model.onnx", _read_onnx, _mutated_model),
    "data": Kind(_make_external, "weights.bin", _read_data),
    "config": Kind(_make_config, "config.json", _read_config, may_be_untrusted=False),
    "pt2": Kind(_make_pt2, "model.pt2", _read_source, may_be_untrusted=False),
    "torchscript": Kind(_make_torchscript, "model.pt", _read_source, may_be_untrusted=False),
}


def make(kind: str, number: int, valid: bytes) -> bytes:
    """Returns the file of a number."""
    return KINDS[kind].change(valid, random.Random(f"{kind} {number}"))


# ---------------------------------------------------------------- the process that reads


class Watch:
    """Lists the files outside of a folder that are used.

    Python's audit events tell what Python opens, removes and renames. Linux tells each use of ``outside``, a folder
    that the mutations name, also by other languages.
    """

    def __init__(self, folder: Path, outside: Path) -> None:
        self.folder, self.found, self.active = os.path.realpath(folder), list[str](), False
        self._installed = tuple({os.path.realpath(each) for each in (*sys.path, sys.prefix, sys.base_prefix) if each})
        libc = ctypes.CDLL(None, use_errno=True)
        self._inotify = libc.inotify_init1(os.O_NONBLOCK)
        libc.inotify_add_watch(self._inotify, str(outside).encode(), OPENED | CHANGED | MADE | REMOVED)
        sys.addaudithook(self._event)

    def _event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.active and event in ("open", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink"):
            writes = event != "open" or bool((arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            for name in arguments[: 2 if event in ("os.rename", "os.link", "os.symlink") else 1]:
                if isinstance(name, (str, bytes, os.PathLike)) and not self._allowed(os.fsdecode(name), writes):
                    self.found.append(f"{event} {os.fsdecode(name)[:200]}")

    def _allowed(self, name: str, writes: bool) -> bool:
        with contextlib.suppress(ValueError, OSError):
            path = os.path.realpath(name)
            places = (self.folder,) if writes else (self.folder, *self._installed, "/proc", "/sys", "/usr", "/lib")
            return path == os.devnull or any(path == each or path.startswith(each + os.sep) for each in places)
        return True  # no file has such a name

    @contextlib.contextmanager
    def watching(self) -> Iterator[list[str]]:
        """Collects what is used until the context ends."""
        self._used()
        self.found, self.active = [], True
        try:
            yield self.found
        finally:
            self.active = False
            if self._used():
                self.found.append(f"the folder {OUTSIDE}")

    def _used(self) -> bool:
        """Returns whether a file of the other folder was used since the last call. Others may list the folder."""
        used = False
        with contextlib.suppress(BlockingIOError):
            while events := os.read(self._inotify, 2**16):
                while events:
                    _watch, mask, _cookie, length = struct.unpack_from("iIII", events)
                    used, events = used or not mask & IS_FOLDER, events[16 + length :]
        return used


def _memory() -> tuple[int, int]:
    """Returns the most memory that this process had since the last reset, and what it has, in bytes."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak, now = (1024 * int(re.findall(rf"{name}:\s+(\d+)", status)[0]) for name in ("VmHWM", "VmRSS"))
    return peak, now


def _serve(connection: Connection, kind: str, valid: Path) -> None:
    """Reads the files whose numbers come, and sends what each does: a problem, and what became of it."""
    import resource

    from fx_onnx.messages.errors import OnnxExporterError

    warnings.simplefilter("ignore")
    root = Path(tempfile.mkdtemp(prefix="mutations-"))
    folder, outside = root / "model", root / OUTSIDE
    outside.mkdir()
    (outside / "secret.bin").write_bytes(bytes(4096))
    record = KINDS[kind]
    data = (valid / record.name).read_bytes()
    log = os.open(os.devnull, os.O_WRONLY)
    for stream in (0, 1, 2):
        os.dup2(log if stream else os.open(os.devnull, os.O_RDONLY), stream)
    for action in range(8):  # libraries are loaded before memory is measured
        _fill(folder, valid, outside)
        with contextlib.suppress(Exception):
            record.read(folder / record.name, action)
    resource.setrlimit(resource.RLIMIT_AS, (PROCESS_BYTES, PROCESS_BYTES))
    watch = Watch(root / "model", outside)
    while (number := connection.recv()) is not None:
        _fill(folder, valid, outside)
        content = make(kind, number, data)
        (folder / record.name).write_bytes(content)
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
        size, problem, outcome = len(content) + len(data), "", "read"
        peak, before = _memory()
        if peak - before > MEMORY_BYTES / 2:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak; that is slow
        with watch.watching() as used:
            try:
                record.read(folder / record.name, number)
            except OnnxExporterError:
                outcome = "refused"
            except BaseException as error:
                frames = [f for f in traceback.extract_tb(error.__traceback__) if "fx_onnx" in f.filename]
                place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
                problem = f"error {type(error).__name__} at {place}: {str(error)[:150]}"
        memory = _memory()[0] - before
        if used:
            problem = f"outside: {used[0]}"
        elif memory > MEMORY_BYTES + MEMORY_OF_FILE * size:
            problem = problem or f"memory: {memory // 2**20} MB"
        connection.send((problem, outcome))
    shutil.rmtree(root, ignore_errors=True)


def _fill(folder: Path, valid: Path, outside: Path) -> None:
    """Makes the folder of the model, with a link that leads out of it, or removes what a reader left there."""
    if not folder.exists():
        shutil.copytree(valid, folder)
        if (folder / "model.onnx").exists():
            shutil.copy(folder / "model.onnx", folder / "valid.onnx")
        (folder / "link").symlink_to(outside / "secret.bin")
    for each in {*os.listdir(folder)} - {*os.listdir(valid), "valid.onnx", "link"}:
        path = folder / each
        shutil.rmtree(path) if path.is_dir() else path.unlink()


# ---------------------------------------------------------------- the run


class Reader:
    """A process that reads files, and that is replaced when it dies or hangs."""

    def __init__(self, kind: str, valid: Path) -> None:
        self.kind, self.valid, self.count = kind, valid, 0
        self.process: Any = None

    def read(self, number: int) -> tuple[str, str]:
        """Returns the problem of a file, which is empty if there is none, and what became of it."""
        if self.process is None or self.count == FILES_OF_A_PROCESS:
            self.stop()
            context = multiprocessing.get_context("fork")
            self.connection, other = context.Pipe()
            self.process, self.count = context.Process(target=_serve, args=(other, self.kind, self.valid)), 0
            self.process.start()
            other.close()
        self.count += 1
        self.connection.send(number)
        if self.connection.poll(SECONDS + (60 if self.count == 1 else 0)):
            with contextlib.suppress(EOFError, ConnectionError):
                problem, outcome = self.connection.recv()
                return problem, outcome
            self.process.join()
            problem = f"crash: exit code {self.process.exitcode}"
        else:
            problem = f"time: more than {SECONDS:g} s"
            self.process.kill()
            self.process.join()
        self.process = None
        return problem, "died"

    def stop(self) -> None:
        """Ends the process."""
        if self.process is not None:
            self.connection.send(None)
            self.process.join()
            self.process = None


def run(kind: str, folder: Path, first: int, count: int, seconds: float) -> None:
    """Reads files of a kind, and adds what they do to ``<kind>.json`` in the folder."""
    path = folder / f"{kind}.json"
    state = json.loads(path.read_text("utf-8")) if path.exists() else {"next": 0, "outcomes": {}, "problems": {}}
    outcomes, problems = Counter(state["outcomes"]), state["problems"]
    valid, end = folder / f"valid-{kind}", time.monotonic() + seconds
    shutil.rmtree(valid, ignore_errors=True)
    valid.mkdir()
    KINDS[kind].make(valid)
    reader = Reader(kind, valid)
    for number in range(max(first, state["next"]), first + count):
        if time.monotonic() > end:
            break
        problem, outcome = reader.read(number)
        outcomes[problem.partition(":")[0].partition(" ")[0] or outcome] += 1
        if problem:
            what, _, text = problem.partition(": ")
            problems.setdefault(what, {"numbers": [], "text": text})["numbers"].append(number)
        state = {"next": number + 1, "outcomes": outcomes, "problems": problems}
        if number % 50 == 0:
            path.write_text(json.dumps(state, indent=1), encoding="utf-8")
    path.write_text(json.dumps(state, indent=1), encoding="utf-8")
    reader.stop()


def main() -> None:
    """Runs the kinds one after the other, and prints what became of the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=25_000, help="files of each kind")
    parser.add_argument("--first", type=int, default=0, help="the number of the first file")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="time for each kind")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--folder", type=Path, default=Path("build/mutations"))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    failed = False
    for kind in given.kinds.split(","):
        # The files of each kind are made in a new process: a process that forks must have no other threads.
        process = multiprocessing.get_context("spawn").Process(
            target=run, args=(kind, given.folder, given.first, given.count, given.seconds)
        )
        process.start()
        process.join()
        state = json.loads((given.folder / f"{kind}.json").read_text("utf-8"))
        print(kind, state["next"], dict(sorted(state["outcomes"].items())), flush=True)
        for what, found in sorted(state["problems"].items()):
            print(f"  {len(found['numbers'])} x {what}, for example {found['numbers'][:3]}: {found['text']}")
        failed |= bool(state["problems"]) and KINDS[kind].may_be_untrusted
    sys.exit(failed)


if __name__ == "__main__":
    main()
