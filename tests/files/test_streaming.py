"""Tests that pieces are written in order, that lengths are checked, and that a terminal shows a progress bar."""

import io

import numpy as np
import onnx_ir as ir
import pytest
import torch

from fx_onnx.files import streaming
from fx_onnx.files.streaming import length, write
from fx_onnx.messages.errors import OnnxExporterError
from fx_onnx.onnx_model import weights
from fx_onnx.onnx_model.weights import Weight, computed, weight


class Sink(io.BytesIO):
    """A file that records the size of each write."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def write(self, data):
        self.sizes.append(memoryview(data).nbytes)
        return super().write(data)


def test_pieces_in_order():
    pieces = [b"ab", weight(torch.tensor([1, 2], dtype=torch.uint8), "w"), b"", ir.Tensor(np.array([3], np.int16))]
    file = io.BytesIO()
    write(pieces, file)
    assert file.getvalue() == b"ab\x01\x02\x03\x00"
    assert length(pieces) == 6


@pytest.mark.parametrize("shape", [(64, 48), (3, 1024), (1024, 3), (2, 3, 512)])
def test_a_tensor_that_is_not_contiguous_is_copied_in_pieces(monkeypatch, shape):
    monkeypatch.setattr(weights, "PIECE_BYTES", 1000)
    data = torch.randn(shape)
    order = range(data.dim())[::-1]
    new = computed(lambda t: t.permute(*order), weight(data, "w"), dtype=ir.DataType.FLOAT, shape=shape[::-1], name="w")
    file = Sink()
    write([new], file)
    assert file.getvalue() == data.permute(*order).contiguous().numpy().tobytes()
    assert max(file.sizes) <= 1000
    file = Sink()
    write([weight(data, "w")], file)
    assert file.sizes == [data.nbytes]  # one write, directly from the storage


def test_a_tensor_of_the_wrong_length_is_refused(monkeypatch):
    monkeypatch.setattr(Weight, "tofile", lambda self, file: file.write(b"1234"))
    with pytest.raises(OnnxExporterError, match=r"'w' has 4 bytes, but its dtype and shape need 40"):
        write([weight(torch.zeros(10), "w")], io.BytesIO())


class Short(io.RawIOBase):
    """A file that takes 7 bytes a write, until it is full."""

    def __init__(self, room):
        self.room, self.content = room, b""

    def write(self, data):
        taken = bytes(data)[: min(7, self.room - len(self.content))]
        self.content += taken
        return len(taken) or None


def test_writes_that_are_not_complete_are_continued():
    pieces = [b"0123456789", weight(torch.arange(20, dtype=torch.int16), "w")]
    file = Short(50)
    write(pieces, file)
    assert file.content == b"0123456789" + np.arange(20, dtype=np.int16).tobytes()
    for room in (0, 49):
        with pytest.raises(OnnxExporterError, match=r"took \d+ of \d+ bytes and no more"):
            write(pieces, Short(room))


class Terminal(io.StringIO):
    """A terminal that records its output."""

    def isatty(self):
        return True


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_on_a_terminal(monkeypatch, terminal):
    monkeypatch.setattr(streaming, "PROGRESS_FROM_BYTES", 1000)
    monkeypatch.setattr(streaming, "PROGRESS_STEP_BYTES", 300)
    shown = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr("sys.stderr", shown)
    data = torch.arange(1000.0)
    file = Sink()
    write([b"", weight(data, "w")], file)
    assert file.getvalue() == data.numpy().tobytes()
    assert max(file.sizes) == 300
    assert ("saving" in shown.getvalue()) == terminal
