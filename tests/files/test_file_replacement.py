"""Tests that a save leaves the old model or the new one, whole, at whatever moment it stops, and nothing for ever.

Processes are really killed: a child is forked, because importing torch takes seconds, and dies in the middle of a save.
Every weight of a model, in the model file and in the data file, has the model's number as its values, so a model with
another model's weights is recognized.
"""

import gc
import os
import random
import resource
import signal
import sys
import threading
import time

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from fx_onnx.files import file_replacement, locked_file, save
from fx_onnx.messages.errors import ArgumentError, OnnxExporterError

TEXT = """<ir_version: 10, opset_import: ["" : 18]>
g (float[1] x) => (float[N] y, float[M] z) { y = Add(x, small)  z = Add(x, large) }"""
TRACED = {file_replacement.__file__, locked_file.__file__}
KINDS = [(True, True), (True, None), (None, True), (None, None)]


def numbered(number, size=1000):
    """Returns a model whose weights all have the value ``number``."""
    model = ir.serde.deserialize_model(onnx.parser.parse_model(TEXT))
    for node, length in zip(model.graph, (4, size), strict=True):
        value = node.inputs[1]
        value.const_value = ir.Tensor(np.full(length, number, np.float32), name=value.name)
        value.shape, value.type = ir.Shape([length]), ir.TensorType(ir.DataType.FLOAT)
        model.graph.register_initializer(value)
    return model


def number_of(path):
    """Returns the number of the model at ``path``; fails if its weights have different numbers."""
    weights = ir.load(path).graph.initializers.values()
    (number,) = {float(element) for weight in weights for element in weight.const_value.numpy()}
    return number


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def assert_tidy(path):
    """Checks that the folder contains the model and the data file that it reads, and nothing else."""
    model = ir.load(path)
    tensors = [value.const_value for value in model.graph.initializers.values()]
    data = {str(tensor.location) for tensor in tensors if isinstance(tensor, ir.ExternalTensor)}
    assert names(path.parent) == sorted({path.name, *data})


def in_child(work):
    """Runs ``work`` in a forked child. Returns its process id."""
    child = os.fork()
    if child:
        return child
    gc.disable()  # A session of ONNX Runtime among the garbage would wait for its threads, which a fork does not copy.
    try:
        work()
    except BaseException as error:
        os.write(2, repr(error).encode())
        os._exit(1)
    os._exit(0)


def exit_of(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def at_line(count, action):
    """Calls ``action`` when the protocol is about to run its ``count``-th line. Returns a function that counts."""
    seen = 0

    def line(frame, event, _):
        nonlocal seen
        if event == "line":
            seen += 1
            if seen == count:
                action()
        return line

    def call(frame, event, _):
        return line if frame.f_code.co_filename in TRACED else None

    sys.settrace(call)
    return lambda: (sys.settrace(None), seen)[1]


@pytest.fixture
def fast(monkeypatch):
    """Skips fsync, which makes no difference to other processes."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


# Kills


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("external", [True, None])
def test_kills_at_random_moments(tmp_path, external):
    path, chance = tmp_path / "m.onnx", random.Random(0)
    save.save(numbered(0), path, external_data=external)

    def work():
        for number in range(1, 10000):
            save.save(numbered(number, 100_000), path, external_data=external)

    old = 0
    for _ in range(25):
        child = in_child(work)
        time.sleep(chance.uniform(0.005, 0.05))
        os.kill(child, signal.SIGKILL)
        assert exit_of(child) == -signal.SIGKILL
        assert number_of(path) >= 0
        assert len(names(tmp_path)) <= 6  # the model, two data files, two temporary files and the journal
        old += number_of(path) > 0
    assert old > 3  # some saves were complete
    save.save(numbered(1), path, external_data=external)
    assert_tidy(path)


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize(("before", "after"), KINDS)
def test_a_kill_at_each_line(tmp_path, before, after):
    path = tmp_path / "m.onnx"
    save.save(numbered(1), path, external_data=before)
    count = at_line(0, None)
    save.save(numbered(1), path, external_data=after)
    lines, found = count(), set()
    assert lines > 50
    for moment in range(1, lines + 1, 2 if before and after else 5):
        save.save(numbered(1), path, external_data=before)

        def work(moment=moment):
            at_line(moment, lambda: os.kill(os.getpid(), signal.SIGKILL))
            save.save(numbered(2), path, external_data=after)

        exit_of(in_child(work))
        found.add(number_of(path))
        if moment % 3 == 0:  # otherwise the leftovers stay for the save that the next kill stops
            save.save(numbered(3), path, external_data=before)
            assert_tidy(path)
    assert found == {1, 2}


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize(("before", "after"), KINDS)
def test_an_interrupt_at_each_line(tmp_path, before, after):
    path = tmp_path / "m.onnx"
    count = at_line(0, None)
    save.save(numbered(1), path, external_data=after)
    lines, found = count(), set()

    def interrupt():
        raise KeyboardInterrupt

    for moment in range(1, lines + 20, 2):
        save.save(numbered(1), path, external_data=before)
        model = numbered(2)
        count = at_line(moment, interrupt)
        try:
            save.save(model, path, external_data=after)
        except KeyboardInterrupt:
            pass
        finally:
            count()
        found.add(number_of(path))
        assert model.graph.initializers["large"].const_value.numpy()[0] == 2
        save.save(numbered(3), path, external_data=before)
        assert_tidy(path)
    assert found == {1, 2}


# Errors


@pytest.mark.parametrize("external", [True, None])
@pytest.mark.parametrize("limit", [0, 10, 300, 2000])
def test_a_full_disk(tmp_path, external, limit):
    path = tmp_path / "m.onnx"
    save.save(numbered(1), path, external_data=external)

    def work():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        with pytest.raises(OnnxExporterError, match=r"File too large|No space left"):
            save.save(numbered(2), path, external_data=external)

    assert exit_of(in_child(work)) == 0
    assert number_of(path) == 1
    assert_tidy(path)


@pytest.mark.parametrize("external", [True, None])
def test_a_lost_permission(tmp_path, external):
    path = tmp_path / "m.onnx"
    save.save(numbered(1), path, external_data=external)

    def work():
        os.chdir(tmp_path)
        os.chmod(".", 0o555)
        if os.getuid() == 0:  # root may do everything
            os.setuid(65534)
        with pytest.raises(ArgumentError, match="its folder cannot be written"):
            save.save(numbered(2), "m.onnx", external_data=external)

    assert exit_of(in_child(work)) == 0
    assert number_of(path) == 1
    assert_tidy(path)


@pytest.mark.parametrize("external", [True, None])
@pytest.mark.parametrize("function", ["replace", "fsync"])
@pytest.mark.parametrize("failing", range(4))
def test_a_failing_system_call(tmp_path, monkeypatch, external, function, failing):
    path = tmp_path / "m.onnx"
    save.save(numbered(1), path, external_data=external)
    real, calls = getattr(os, function), []

    def sometimes(*arguments):
        calls.append(arguments)
        if len(calls) == failing + 1:
            raise PermissionError(1, "Operation not permitted")
        return real(*arguments)

    monkeypatch.setattr(os, function, sometimes)
    try:
        save.save(numbered(2), path, external_data=external)
    except ArgumentError as error:
        assert "could not be saved" in str(error)
    monkeypatch.undo()
    assert number_of(path) in (1, 2)
    save.save(numbered(3), path, external_data=external)
    assert_tidy(path)


# Savers and readers at the same time


def test_concurrent_savers_and_a_reader(tmp_path):
    path = tmp_path / "m.onnx"
    save.save(numbered(0), path, external_data=True)

    def saver(start):
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            start += 2
            save.save(numbered(start), path, external_data=True)

    children = [in_child(lambda start=start: saver(start)) for start in (1, 2)]
    victim = in_child(lambda: saver(1000))
    whole, missing, until = set(), 0, time.monotonic() + 2
    while time.monotonic() < until:
        try:
            y, z = onnxruntime.InferenceSession(str(path)).run(None, {"x": np.zeros(1, np.float32)})
        except Exception as error:
            # The data file was removed; ONNX Runtime may tell only the number of the error, ENOENT.
            assert "data" in str(error) or "SystemError : 2" in str(error), error
            assert path.exists()
            missing += 1
            continue
        assert len({*y.tolist(), *z.tolist()}) == 1
        whole.add(y[0])
        if len(whole) == 20:
            os.kill(victim, signal.SIGKILL)
    os.kill(victim, signal.SIGKILL)
    assert exit_of(victim) == -signal.SIGKILL
    assert [exit_of(child) for child in children] == [0, 0]
    assert len(whole) > 10
    save.save(numbered(1), path, external_data=True)
    assert_tidy(path)


def test_a_save_waits_for_another_thread(tmp_path):
    path, order = tmp_path / "m.onnx", []

    def second():
        save.save(numbered(2), path, external_data=True)
        order.append("second")

    with file_replacement.replacement(path) as files:
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.2)
        files.install([b""])
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert number_of(path) == 2


# Names and files of others


@pytest.mark.parametrize("name", ["a b", "ü模", "-rf", "#1", "a\nb", "[x]*?", "{0}%s", "'\"$(x)", ".onnx", "x" * 245])
def test_hostile_names(tmp_path, name):
    path = tmp_path / name
    for number in range(3):
        save.save(numbered(number), path, external_data=True)
        assert number_of(path) == number
        assert_tidy(path)
    assert onnxruntime.InferenceSession(str(path)).run(["y"], {"x": np.zeros(1, np.float32)})[0][0] == 2


def test_names_that_are_too_long(tmp_path):
    save.save(numbered(1), tmp_path / ("ü" * 127))
    assert number_of(tmp_path / ("ü" * 127)) == 1
    with pytest.raises(ArgumentError, match="File name too long"):
        save.save(numbered(2), tmp_path / ("ü" * 127), external_data=True)
    with pytest.raises(ArgumentError, match="File name too long"):
        save.save(numbered(2), tmp_path / ("x" * 256))
    assert number_of(tmp_path / ("ü" * 127)) == 1
    assert len(names(tmp_path)) == 1


def test_generations(tmp_path):
    path = tmp_path / "m.onnx"
    for data in ("m.onnx.data", "m.onnx.1.data", "m.onnx.2.data"):
        save.save(numbered(1), path, external_data=True)
        assert names(tmp_path) == sorted(["m.onnx", data])
    save.save(numbered(1), path)
    assert names(tmp_path) == ["m.onnx"]
    save.save(numbered(1), path, external_data=True)
    path.unlink()
    save.save(numbered(2), path, external_data=True)
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"]  # nothing read the old file of this name


def test_files_of_the_user_stay(tmp_path):
    path = tmp_path / "m.onnx"
    files = {"m.onnx.1.data", "m.onnx.x.data", ".m.onnx.new", "m.onnx.new", "n.onnx.data"}
    for name in files:
        (tmp_path / name).write_text("mine")
    for number in range(4):
        save.save(numbered(number), path, external_data=True)
    assert number_of(path) == 3
    assert all((tmp_path / name).read_text() == "mine" for name in files)
    assert set(names(tmp_path)) == files | {"m.onnx", "m.onnx.4.data"}


def test_a_renamed_model_keeps_its_data(tmp_path):
    path = tmp_path / "m.onnx"
    save.save(numbered(1), path, external_data=True)
    path.rename(tmp_path / "old.onnx")
    save.save(numbered(2), path, external_data=True)
    assert (number_of(tmp_path / "old.onnx"), number_of(path)) == (1, 2)


def test_a_dead_journal_removes_only_the_files_that_it_lists(tmp_path):
    path = tmp_path / "m.onnx"
    save.save(numbered(1), path, external_data=True)

    def work():
        os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        save.save(numbered(2), path, external_data=True)

    exit_of(in_child(work))
    (journal,) = tmp_path.glob(".*.saving")
    (tmp_path / "m.onnx.1.data").write_text("mine")  # the dead save intended to use this name
    save.save(numbered(3), path, external_data=True)
    assert (tmp_path / "m.onnx.1.data").read_text() == "mine"
    assert number_of(path) == 3
    for content in (b"[[", b"[" * 60000, b'[["../x.data", 1]]', b"\xff", b"7"):
        journal.write_bytes(content)
        save.save(numbered(4), path, external_data=True)
        assert not journal.exists()
    journal.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OnnxExporterError, match="could not be saved"):
        save.save(numbered(5), path, external_data=True)
    assert number_of(path) == 4


def test_a_linked_model(tmp_path):
    (tmp_path / "store").mkdir()
    path, real = tmp_path / "m.onnx", tmp_path / "store" / "real.onnx"
    path.symlink_to(real)
    for number in range(2):
        save.save(numbered(number), path, external_data=True)
        assert number_of(path) == number
    assert path.is_symlink()
    assert names(tmp_path) == ["m.onnx", "m.onnx.1.data", "store"]
    assert names(tmp_path / "store") == ["real.onnx"]
