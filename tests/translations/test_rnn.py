"""Recurrent layers, each at two lengths and two batch sizes."""

from typing import Any

import onnx
import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from tests.compare import assert_close
from tests.one_capture import OneCapture

STEP_AND_BATCH = {0: "step", 1: "batch"}
MODULES = {"RNN": nn.RNN, "LSTM": nn.LSTM, "GRU": nn.GRU}


def check(
    module: nn.Module, *examples: tuple[Any, ...], shapes: Any = None, tolerance: float | None = None, **options: Any
) -> fx_onnx.ONNXProgram:
    """Exports with the first example and compares all examples with eager."""
    module.eval()
    program = fx_onnx.export(module, examples[0], dynamic_shapes=shapes, verbose=False, **options)
    for example in examples:
        with torch.no_grad():
            assert_close(program(*example), module(*example), tolerance)
    return program


def operators(program: fx_onnx.ONNXProgram) -> list[str]:
    return [node.op_type for node in program.model.graph]


def x(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"bidirectional": True},
        {"num_layers": 2, "bidirectional": True, "dropout": 0.5},
        {"batch_first": True},
        {"batch_first": True, "bidirectional": True},
    ],
    ids=str,
)
def test_a_sequence_of_any_length(kind: str, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    program = check(MODULES[kind](3, 4, **options), (x(5, 2, 3),), (x(7, 4, 3),), shapes=(STEP_AND_BATCH,))
    assert operators(program).count(kind) == options.get("num_layers", 1)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_minimal(kind: str) -> None:
    for shapes in (None, (STEP_AND_BATCH,)):
        program = check(MODULES[kind](3, 4), (x(5, 2, 3),), shapes=shapes)
        needs_batch = shapes is not None and kind != "RNN"  # of which the Reshape makes sure
        assert operators(program) == [*["Reshape"] * needs_batch, kind, "Squeeze"]
        node = program.model.graph.node(needs_batch)
        assert len(node.inputs) == 4  # a zero initial state is left out


def test_relu() -> None:
    module = nn.RNN(3, 4, 2, nonlinearity="relu", bidirectional=True)
    check(module, (x(5, 2, 3),), (x(7, 4, 3),), shapes=(STEP_AND_BATCH,))


class WithState(nn.Module):
    def __init__(self, recurrence: nn.Module) -> None:
        super().__init__()
        self.recurrence = recurrence

    def forward(self, x: Tensor, *state: Tensor) -> Any:
        return self.recurrence(x, state[0] if len(state) == 1 else state)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("layers", [1, 2])
def test_initial_states(kind: str, layers: int) -> None:
    module = WithState(MODULES[kind](3, 4, layers, bidirectional=True))
    states = 2 if kind == "LSTM" else 1

    def example(steps: int, batch: int) -> tuple[Tensor, ...]:
        return (x(steps, batch, 3), *(x(2 * layers, batch, 4) for _ in range(states)))

    shapes = (STEP_AND_BATCH, ({1: "batch"},) * states)
    check(module, example(5, 2), example(7, 4), shapes=shapes)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_unbatched(kind: str) -> None:
    check(MODULES[kind](3, 4), (x(5, 3),), (x(7, 3),), shapes=({0: "step"},))


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}], ids=str)
def test_projected(options: dict[str, Any]) -> None:
    module = nn.LSTM(3, 5, proj_size=2, batch_first=True, **options)
    program = check(module, (x(2, 5, 3),), (x(4, 7, 3),), shapes=({0: "batch", 1: "step"},))
    assert "Scan" in operators(program)


def test_projected_with_initial_states() -> None:
    module = WithState(nn.LSTM(3, 5, 2, proj_size=2, bidirectional=True))
    check(module, (x(5, 2, 3), x(4, 2, 2), x(4, 2, 5)), (x(7, 3, 3), x(4, 3, 2), x(4, 3, 5)),
          shapes=(STEP_AND_BATCH, ({1: "batch"}, {1: "batch"})))  # fmt: skip


@pytest.mark.parametrize("cell", [nn.RNNCell, nn.GRUCell, nn.LSTMCell])
def test_cells(cell: type[nn.Module]) -> None:
    module = cell(3, 4)  # type: ignore[call-arg]
    check(module, (x(2, 3),), (x(5, 3),), shapes=({0: "batch"},))
    check(module, (x(3),))
    check(cell(3, 4, bias=False), (x(2, 3),))  # type: ignore[call-arg]


def test_cell_with_states() -> None:
    check(nn.RNNCell(3, 4, nonlinearity="relu"), (x(2, 3), x(2, 4)))
    check(WithState(nn.LSTMCell(3, 4)), (x(2, 3), x(2, 4), x(2, 4)))


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes_are_valid(kind: str, dtype: torch.dtype) -> None:
    """Tests the model only: ONNX Runtime's CPU kernels are float32, and ONNX has bfloat16 from opset 22 on."""
    captured = OneCapture(MODULES[kind](3, 4).to(dtype).eval(), (x(5, 2, 3, dtype=dtype),), verbose=False)
    for opset in (20, 22):
        program = captured.export(opset_version=opset)
        onnx.checker.check_model(program.model_proto, full_check=True)
        assert kind in operators(program)


def test_a_learned_initial_state_is_kept() -> None:
    class Learned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru, self.begin = nn.GRU(3, 4), nn.Parameter(torch.zeros(1, 2, 4))

        def forward(self, x: Tensor) -> Any:
            return self.gru(x, self.begin)

    assert "begin" in check(Learned(), (x(5, 2, 3),)).model.graph.initializers


def test_in_a_network_with_shared_weights() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.gru, self.head = nn.Embedding(9, 4), nn.GRU(4, 4, batch_first=True), nn.Linear(4, 9)

        def forward(self, ids: Tensor) -> Tensor:
            y, state = self.gru(self.embedding(ids))
            return self.head(self.gru(y, state)[0])

    shapes = ({0: "batch", 1: "step"},)
    check(Twice(), (torch.randint(9, (2, 5)),), (torch.randint(9, (3, 7)),), shapes=shapes)


class Rows(nn.Module):
    """Runs a layer on the sequences that a mask selects, from zeros or from given states."""

    def __init__(self, layer: nn.Module, with_states: bool = False) -> None:
        super().__init__()
        self.layer, self.with_states = layer, with_states

    def forward(self, x: Tensor, mask: Tensor) -> Any:
        rows = x[mask]
        if not self.with_states:
            return self.layer(rows)
        state = torch.ones(1, rows.shape[0], 4)
        return self.layer(rows, (state, state) if isinstance(self.layer, nn.LSTM) else state)


@pytest.mark.parametrize(
    "module",
    [
        *(Rows(kind(3, 4, batch_first=True), states) for kind in MODULES.values() for states in (False, True)),
        Rows(nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True)),
        Rows(nn.GRU(3, 4, 2, batch_first=True, bidirectional=True)),
    ],
    ids=lambda module: f"{module.layer} {module.with_states}",
)
def test_sequences_that_data_select(module: nn.Module) -> None:
    masks = [torch.tensor(mask).bool() for mask in ([1, 0, 1, 1, 0], [0, 0, 1, 0, 0], [0] * 5)]
    program = check(module, *((x(5, 6, 3), mask) for mask in masks))
    assert "Pad" in operators(program)


def test_steps_that_data_select() -> None:
    masks = [torch.tensor(mask).bool() for mask in ([1, 0, 1, 1, 0], [0, 0, 1, 0, 0])]
    program = check(Rows(nn.GRU(3, 4)), *((x(5, 6, 3), mask) for mask in masks))
    assert program(x(5, 6, 3), masks[0] & False)[0].shape == (0, 6, 4)  # eager refuses an empty sequence
