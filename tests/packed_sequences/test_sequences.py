"""Sequences that the forward packs and pads again become ONNX's RNN, LSTM and GRU with sequence lengths."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence, unpack_sequence

import fx_onnx
from fx_onnx.capture.patches.layers import PATCHES
from fx_onnx.capture.patches.patching import apply_patches
from tests.compare import assert_close

KINDS = {"RNN": nn.RNN, "LSTM": nn.LSTM, "GRU": nn.GRU}


class Net(nn.Module):
    """An RNN, LSTM or GRU; ``function`` packs the sequences, calls it and processes the result."""

    def __init__(
        self,
        function: Callable[["Net", Tensor, Tensor], Any],
        kind: str = "LSTM",
        batch_first: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function, self.batch_first = function, batch_first
        self.recurrence = KINDS[kind](4, 5, batch_first=batch_first, **options)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        return self.function(self, x, lengths)


def check(module: Net, sort: bool = False) -> fx_onnx.ONNXProgram:
    """Exports for one size and compares the results at three sizes; the last example has no padding."""
    module.eval()
    shapes = {0: "batch", 1: "step"} if module.batch_first else {0: "step", 1: "batch"}
    examples = []
    for steps, lengths in ((7, [5, 7, 2]), (9, [1, 6, 3, 6]), (4, [4, 4])):
        x = torch.randn(len(lengths), steps, 4)
        given = torch.tensor(sorted(lengths, reverse=True) if sort else lengths)
        examples.append((x if module.batch_first else x.transpose(0, 1), given))
    program = fx_onnx.export(module, examples[0], dynamic_shapes=(shapes, {0: "batch"}), verbose=False)
    for example in examples:
        with torch.no_grad():
            assert_close(program(*example), module(*example))
    return program


def padded(net: Net, x: Tensor, lengths: Tensor) -> Any:
    packed = pack_padded_sequence(x, lengths, net.batch_first, enforce_sorted=False)
    output, last = net.recurrence(packed)
    return *pad_packed_sequence(output, net.batch_first), last


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 2, "bidirectional": True, "dropout": 0.5}, {"batch_first": False}], ids=str
)
def test_each_module_with_any_lengths(kind: str, options: dict[str, Any]) -> None:
    program = check(Net(padded, kind, **options))
    (node, *_) = [node for node in program.model.graph if node.op_type == kind]
    assert node.inputs[4] is not None
    assert node.inputs[4].dtype.name == "INT32"


def test_rnn_with_relu() -> None:
    check(Net(padded, "RNN", nonlinearity="relu"))


def last_state(net: Net, x: Tensor, lengths: Tensor) -> Any:
    _, (hidden, _) = net.recurrence(pack_padded_sequence(x, lengths.cpu(), batch_first=True).to(torch.float32))
    return net.head(hidden[-1])


def test_the_last_state_of_each_sequence() -> None:
    program = check(Net(last_state), sort=True)
    operators = {node.op_type for node in program.model.graph}
    of_empty_batches = {"Pad", "Concat", "Slice"}
    assert operators <= {"LSTM", "Cast", "Transpose", "Gather", "Gemm", *of_empty_batches}, operators


def initial_state(net: Net, x: Tensor, lengths: Tensor) -> Any:
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    begin = torch.arange(5.0).expand(1, x.shape[0], 5) * x[None, :, 0, :1]
    output, last = net.recurrence(packed, (begin, begin + 1))
    scores, _ = pad_packed_sequence(output, batch_first=True, padding_value=-1.0, total_length=x.shape[1])
    longer, _ = pad_packed_sequence(output, batch_first=True, total_length=x.shape[1] + 2)
    return net.head(scores), longer, last


def data(net: Net, x: Tensor, lengths: Tensor) -> Any:
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    packed = PackedSequence(packed.data * 2, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
    output, _ = net.recurrence(packed)
    steps, sizes, order, back = output
    scores = PackedSequence(net.head(steps).relu(), sizes, order, back)
    return steps, sizes, order, back, pad_packed_sequence(scores, batch_first=True, padding_value=2.0)


def data_of_sorted(net: Net, x: Tensor, lengths: Tensor) -> Any:
    output, _ = net.recurrence(pack_padded_sequence(x, lengths, batch_first=True))
    scores = PackedSequence(net.head(output.data), output.batch_sizes)
    return output.batch_sizes, pad_packed_sequence(scores)[0]


def without_a_recurrence(net: Net, x: Tensor, lengths: Tensor) -> Any:
    labels = pack_padded_sequence(x[..., 0], lengths, batch_first=True, enforce_sorted=False)
    return labels.data, pad_packed_sequence(labels, batch_first=True)[0]


@pytest.mark.parametrize("function", [initial_state, data, without_a_recurrence])
def test_operations_on_packed_sequences(function: Callable[[Net, Tensor, Tensor], Any]) -> None:
    check(Net(function))


def test_operations_on_sorted_packed_sequences() -> None:
    check(Net(data_of_sorted), sort=True)


def test_a_list_of_sequences() -> None:
    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = nn.GRU(4, 5)

        def forward(self, first: Tensor, second: Tensor) -> Any:
            output, last = self.gru(pack_sequence([first, second], enforce_sorted=False))
            return unpack_sequence(output), last

    module = Listed().eval()
    shapes = ({0: "m"}, {0: "n"})
    program = fx_onnx.export(module, (torch.randn(3, 4), torch.randn(5, 4)), dynamic_shapes=shapes, verbose=False)
    for steps in ((3, 5), (6, 2)):
        sequences = [torch.randn(count, 4) for count in steps]
        with torch.no_grad():
            assert_close(program(*sequences), module(*sequences))


def test_an_lstm_with_projections_raises() -> None:
    with pytest.raises(fx_onnx.TranslationError, match="ONNX LSTM has no projection"):
        check(Net(padded, proj_size=3))


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
def test_the_operators_compute_the_same_as_torch(kind: str) -> None:
    """Each sequence gives the same result as if it were the only one."""
    module = {"lstm": nn.LSTM, "gru": nn.GRU}.get(kind, nn.RNN)(4, 5, bidirectional=True)
    if kind == "rnn_relu":
        module.nonlinearity = "relu"
        module.mode = "RNN_RELU"
    module.requires_grad_(False)
    x, lengths = torch.randn(6, 3, 4), torch.tensor([2, 6, 3])
    zeros = torch.zeros(2, 3, 5)
    hx = [zeros, zeros] if kind == "lstm" else zeros
    operator = getattr(torch.ops.fx_onnx, kind)
    output, hidden, *_ = operator(x, lengths, hx, module._flat_weights, True, 1, 0.0, False, True, False)
    for index, length in enumerate(lengths.tolist()):
        alone, last = module(x[:length, index])
        torch.testing.assert_close(output[:length, index], alone)
        assert not output[length:, index].any()
        torch.testing.assert_close(hidden[:, index], last[0] if kind == "lstm" else last)


def test_torch_is_restored() -> None:
    before = nn.LSTM.forward, nn.utils.rnn.pack_padded_sequence
    with apply_patches(PATCHES):
        assert (nn.LSTM.forward, nn.utils.rnn.pack_padded_sequence) != before
    assert (nn.LSTM.forward, nn.utils.rnn.pack_padded_sequence) == before
