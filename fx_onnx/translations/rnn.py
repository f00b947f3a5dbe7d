"""Recurrent layers: each becomes one ONNX RNN, LSTM or GRU node over a sequence of any length.

torch gives the weights of a layer and direction as (w_ih, w_hh, b_ih, b_hh), with the gates along the first axis.
ONNX stacks the directions and orders the gates differently. Constant folding applies the reordering to the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from onnx_ir import DataType, Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.small_constants import MAX_CONSTANT_BYTES
from fx_onnx.sizes.symbolic_sizes import is_from_data
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter, as_tuple
from fx_onnx.translations._random_draws import apply_dropout
from fx_onnx.translations._widening import widened


class _Kind(NamedTuple):
    """A kind of recurrent layer.

    Attributes:
        op_type: the ONNX operator.
        gates: for each gate in ONNX's order, its position in torch's order.
        activation: the activation of a plain RNN, or None for ONNX's default.
    """

    op_type: str
    gates: tuple[int, ...]
    activation: str | None = None


_TANH, _RELU = _Kind("RNN", (0,)), _Kind("RNN", (0,), "Relu")
_LSTM = _Kind("LSTM", (0, 3, 1, 2))  # torch: input, forget, cell, output; ONNX: input, output, forget, cell
_GRU = _Kind("GRU", (1, 0, 2))  # torch: reset, update, new; ONNX: update, reset, hidden


def _recurrence_of_one_state(kind: _Kind) -> Callable[..., Sequence[Value]]:
    def aten_recurrence(
        op: Emitter, input: Value, hx: Value, params: Sequence[Value], has_biases: bool, num_layers: int,
        dropout: float, train: bool, bidirectional: bool, batch_first: bool,
    ) -> Sequence[Value]:  # fmt: skip
        """Emits one RNN or GRU node for each layer."""
        layers = _layers(params, has_biases, bidirectional, projected=False)
        return _recurrence(op, kind, input, [hx], layers, dropout if train else 0.0, batch_first)

    return aten_recurrence


@translates(aten.lstm.input)
def aten_lstm(
    op: Emitter, input: Value, hx: Sequence[Value], params: Sequence[Value], has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> Sequence[Value]:  # fmt: skip
    """Emits one LSTM for each layer, or a Scan for each direction if the hidden state is projected.

    ONNX LSTM has no projection.
    """
    layers = _layers(params, has_biases, bidirectional, projected=_is_projected(op, hx))
    return _recurrence(op, _LSTM, input, hx, layers, dropout if train else 0.0, batch_first)


def _packed_recurrence_of_one_state(kind: _Kind) -> Callable[..., Sequence[Value]]:
    def packed_recurrence(
        op: Emitter, input: Value, lengths: Value, hx: Value, params: Sequence[Value], has_biases: bool,
        num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
    ) -> Sequence[Value]:  # fmt: skip
        """Emits one RNN or GRU node for each layer; the outputs of a sequence after its length are zero."""
        layers = _layers(params, has_biases, bidirectional, projected=False)
        return _recurrence(op, kind, input, [hx], layers, dropout if train else 0.0, batch_first, lengths)

    return packed_recurrence


@translates("fx_onnx::lstm")
def packed_lstm(
    op: Emitter, input: Value, lengths: Value, hx: Sequence[Value], params: Sequence[Value], has_biases: bool,
    num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> Sequence[Value]:  # fmt: skip
    """Emits one LSTM node for each layer; the outputs of a sequence after its length are zero."""
    if _is_projected(op, hx):
        raise NotImplementedError(
            "ONNX LSTM has no projection, and a Scan does not support packed sequences; use proj_size=0."
        )
    layers = _layers(params, has_biases, bidirectional, projected=False)
    return _recurrence(op, _LSTM, input, hx, layers, dropout if train else 0.0, batch_first, lengths)


def _cell_of_one_state(kind: _Kind) -> Callable[..., Value]:
    def aten_cell(
        op: Emitter, input: Value, hx: Value, w_ih: Value, w_hh: Value, b_ih: Value | None = None,
        b_hh: Value | None = None,
    ) -> Value:  # fmt: skip
        """Emits one RNN or GRU node over a sequence of one step."""
        return _cell(op, kind, input, [hx], _Weights(w_ih, w_hh, b_ih, b_hh))[0]

    return aten_cell


@translates(aten.lstm_cell.default)
def aten_lstm_cell(
    op: Emitter,
    input: Value,
    hx: Sequence[Value],
    w_ih: Value,
    w_hh: Value,
    b_ih: Value | None = None,
    b_hh: Value | None = None,
) -> Sequence[Value]:
    """Emits one LSTM node over a sequence of one step."""
    return _cell(op, _LSTM, input, hx, _Weights(w_ih, w_hh, b_ih, b_hh))


for _kind, _whole, _packed, _step in (
    (_TANH, aten.rnn_tanh.input, "fx_onnx::rnn_tanh", aten.rnn_tanh_cell.default),
    (_RELU, aten.rnn_relu.input, "fx_onnx::rnn_relu", aten.rnn_relu_cell.default),
    (_GRU, aten.gru.input, "fx_onnx::gru", aten.gru_cell.default),
):
    translates(_whole)(_recurrence_of_one_state(_kind))
    translates(_packed)(_packed_recurrence_of_one_state(_kind))
    translates(_step)(_cell_of_one_state(_kind))


# ---------------------------------------------------------------- weights


class _Weights(NamedTuple):
    """The weights of one direction of one layer."""

    w_ih: Value
    w_hh: Value
    b_ih: Value | None = None
    b_hh: Value | None = None
    w_hr: Value | None = None

    def cast(self, op: Emitter, dtype: DataType) -> _Weights:
        """Returns the weights in another dtype."""
        b_ih, b_hh, w_hr = (None if weight is None else op.cast(weight, dtype) for weight in self[2:])
        return _Weights(op.cast(self.w_ih, dtype), op.cast(self.w_hh, dtype), b_ih, b_hh, w_hr)


def _layers(
    params: Sequence[Value], has_biases: bool, bidirectional: bool, projected: bool
) -> list[tuple[_Weights, ...]]:
    """Returns the weights by layer and direction."""
    count = 2 + 2 * has_biases + projected
    sequences = []
    for start in range(0, len(params), count):
        w_ih, w_hh, *rest = params[start : start + count]
        b_ih, b_hh = rest[:2] if has_biases else (None, None)
        sequences.append(_Weights(w_ih, w_hh, b_ih, b_hh, rest[-1] if projected else None))
    directions = 2 if bidirectional else 1
    return [tuple(sequences[start : start + directions]) for start in range(0, len(sequences), directions)]


def _is_projected(op: Emitter, hx: Sequence[Value]) -> bool:
    """Returns whether the hidden state is projected, which gives it another size than the cell state."""
    hidden, cell = (op.sizes(state)[-1] for state in hx)
    return isinstance(hidden, int) and isinstance(cell, int) and hidden != cell


def _stacked(op: Emitter, kind: _Kind, weights: Sequence[Value], directions: int) -> Value:
    """Returns the weights or biases of all directions stacked along a first axis, with the gates in ONNX's order."""
    rows, *rest = op.sizes(weights[0])
    gates, blocks = len(kind.gates), len(weights) // directions
    joined = weights[0] if len(weights) == 1 else op.Concat(*weights, axis=0)
    if gates > 1:
        if not isinstance(rows, int):
            raise NotImplementedError(f"The number of rows of the weights of {kind.op_type} must be static.")
        apart = op.Reshape(joined, [len(weights), gates, rows // gates, *rest])
        joined = op.Gather(apart, list(kind.gates), axis=1)
    elif len(weights) == 1:
        return op.unsqueeze(weights[0], 0)
    return op.Reshape(joined, [directions, blocks * rows, *rest])


# ---------------------------------------------------------------- layers


def _recurrence(
    op: Emitter, kind: _Kind, input: Value, states: Sequence[Value], layers: Sequence[Sequence[_Weights]],
    dropout: float, batch_first: bool, lengths: Value | None = None,
) -> list[Value]:  # fmt: skip
    """Returns the outputs of the last layer at every step, then each final state, by layer and direction."""
    dtype = widened(op, kind.op_type, input).dtype or DataType.FLOAT
    result_dtype = op.out_dtype
    x, last = op.cast(input, dtype), []
    if batch_first:
        x = op.transpose(x, (1, 0, 2))
    initial = [_by_layer(op, state, len(layers), dtype) for state in states]
    lengths = None if lengths is None else op.cast(lengths, DataType.INT32)
    for index, layer in enumerate(layers):
        weights = [direction.cast(op, dtype) for direction in layer]
        if dropout and index:
            x = op.with_sizes(apply_dropout(op, x, dropout)[0], op.sizes(x))
        begin = [state[index] for state in initial]
        if weights[0].w_hr is None:
            y, *finals = _layer(op, kind, x, weights, begin, lengths)
            if not index:
                metadata.note_dynamic_axes(y, op.sizes(x))
            x = y
        else:
            x, *finals = _projected_layer(op, x, weights, begin, states)
        last.append(finals)
        is_last = index == len(layers) - 1
        x = _joined(op, x, batch_first and is_last)
    ends = [by_layer[0] if len(by_layer) == 1 else op.Concat(*by_layer, axis=0) for by_layer in zip(*last, strict=True)]
    return [op.cast(value, result_dtype) for value in (x, *ends)]


def _by_layer(op: Emitter, state: Value, count: int, dtype: DataType) -> Sequence[Value | None]:
    """Returns the initial state of each layer; None for a state of zeros, which is ONNX's default."""
    if _is_zero(state):
        return [None] * count
    state = op.cast(state, dtype)
    return [state] if count == 1 else as_tuple(op.Split(state, axis=0, num_outputs=count, outputs=count))


def _is_zero(value: Value) -> bool:
    """Returns whether the value is a constant of zeros.

    A weight does not count as constant, even if it holds zeros now, because it can be replaced.
    """
    node = value.producer()
    if node is not None and node.op_type in ("Expand", "ConstantOfShape"):
        filled = node.attributes.get("value")
        if node.op_type == "ConstantOfShape":
            return filled is None or not filled.as_tensor().numpy().any()
        return node.inputs[0] is not None and _is_zero(node.inputs[0])
    held = value.const_value
    is_weight = metadata.INPUT_KIND in value.metadata_props
    return held is not None and not is_weight and held.nbytes <= MAX_CONSTANT_BYTES and not held.numpy().any()


def _layer(
    op: Emitter, kind: _Kind, x: Value, weights: Sequence[_Weights], initial: Sequence[Value | None],
    lengths: Value | None = None, may_be_empty: bool = True,
) -> list[Value]:  # fmt: skip
    """Emits one node: the outputs (step, direction, batch, unit) and the final states (direction, batch, unit)."""
    count = len(weights)
    steps, batch, _features = op.sizes(x)
    units = op.sizes(weights[0].w_hh)[1]
    is_checked = lengths is not None or is_from_data(steps) or is_from_data(batch)
    if may_be_empty and is_checked and not isinstance(batch, int):
        return _layer_of_rows(op, kind, x, weights, initial, lengths)
    if lengths is None and (is_from_data(steps) or not (may_be_empty or isinstance(steps, int))):
        # without lengths, a GRU of ONNX Runtime without steps ends the process
        lengths = op.expand(op.cast(op.number(steps, DataType.INT64), DataType.INT32), [batch])
    biases = [b for direction in weights for b in (direction.b_ih, direction.b_hh) if b is not None]
    results = op.emit(
        kind.op_type,
        x,
        _stacked(op, kind, [direction.w_ih for direction in weights], count),
        _stacked(op, kind, [direction.w_hh for direction in weights], count),
        _stacked(op, kind, biases, count) if biases else None,
        lengths,
        *initial,
        hidden_size=units,
        direction="bidirectional" if count == 2 else None,
        activations=[kind.activation] * count if kind.activation else None,
        linear_before_reset=1 if kind.op_type == "GRU" else None,
        outputs=1 + len(initial),
    )
    return [op.with_sizes(results[0], (steps, count, batch, units)), *results[1:]]


def _layer_of_rows(
    op: Emitter, kind: _Kind, x: Value, weights: Sequence[_Weights], initial: Sequence[Value | None],
    lengths: Value | None,
) -> list[Value]:  # fmt: skip
    """Returns the results of ``_layer`` with one more sequence, of zeros, which they leave out.

    An LSTM or GRU of ONNX Runtime without a sequence ends the process, and the data may select none. A packed batch has
    nodes for its lengths anyway, so it gets these too.
    """
    steps, batch, features = op.sizes(x)
    row = [0, 0, 0, 0, 1, 0]
    longer = op.with_sizes(op.Pad(x, row), (steps, batch + 1, features))
    states = [None if state is None else op.Pad(state, row) for state in initial]
    lengths = None if lengths is None else op.Concat(lengths, op.constant([1], DataType.INT32), axis=0)
    y, *finals = _layer(op, kind, longer, weights, states, lengths, may_be_empty=False)
    _, count, _, units = op.sizes(y)
    y = op.with_sizes(op.Slice(y, [0], [-1], [2]), (steps, count, batch, units))
    return [y, *(op.Slice(state, [0], [-1], [1]) for state in finals)]


def _joined(op: Emitter, y: Value, batch_first: bool) -> Value:
    """Returns (step, direction, batch, unit) as (step, batch, direction * unit), or with the batch axis first."""
    steps, count, batch, units = op.sizes(y)
    if count == 1:
        y = op.squeeze(y, 1)
        return op.transpose(y, (1, 0, 2)) if batch_first else y
    y = op.transpose(y, (2, 0, 1, 3) if batch_first else (0, 2, 1, 3))
    return op.reshape(y, [*((batch, steps) if batch_first else (steps, batch)), 2 * units])


def _cell(op: Emitter, kind: _Kind, input: Value, states: Sequence[Value], weights: _Weights) -> list[Value]:
    """Returns the states after one step."""
    dtype = widened(op, kind.op_type, input).dtype or DataType.FLOAT
    result_dtype = op.out_dtype
    initial = [None if _is_zero(state) else op.unsqueeze(op.cast(state, dtype), 0) for state in states]
    x = op.unsqueeze(op.cast(input, dtype), 0)
    y, *finals = _layer(op, kind, x, [weights.cast(op, dtype)], initial)
    metadata.note_dynamic_axes(y, op.sizes(x))
    return [op.cast(op.Squeeze(final, [0]), result_dtype) for final in finals]


# ---------------------------------------------------------------- projected LSTM


def _projected_layer(
    op: Emitter, x: Value, weights: Sequence[_Weights], initial: Sequence[Value | None], states: Sequence[Value]
) -> list[Value]:  # fmt: skip
    """Emits a Scan for each direction; the results have the axes of ``_layer``."""
    steps, batch, _ = op.sizes(x)
    count, places = len(weights), range(len(weights))
    sizes = [(1, batch, op.sizes(state)[-1]) for state in states]
    begin = [
        op.expand(op.constant(0.0, x.dtype), (count, *size[1:])) if state is None else state
        for state, size in zip(initial, sizes, strict=True)
    ]
    parts = [op.Split(state, axis=0, num_outputs=2, outputs=2) if count == 2 else [state] for state in begin]
    runs = [
        _projected_direction(op, x, weights[i], [op.Squeeze(part[i], [0]) for part in parts], reverse=i == 1)
        for i in places
    ]
    hidden, cell, y = (
        op.unsqueeze(parts[0], axis) if count == 1 else op.Concat(*(op.unsqueeze(v, axis) for v in parts), axis=axis)
        for parts, axis in zip(zip(*runs, strict=True), (0, 0, 1), strict=True)
    )
    return [op.with_sizes(y, (steps, count, batch, sizes[0][-1])), hidden, cell]


def _projected_direction(
    op: Emitter, x: Value, weights: _Weights, begin: Sequence[Value], reverse: bool
) -> Sequence[Value]:
    """Emits the Scan of h' = P (o * tanh(c')), c' = f * c + i * g.

    Returns the final states, then h of every step.
    """
    w_ih, w_hh, b_ih, b_hh, w_hr = weights
    if w_hr is None:
        raise ValueError("only a layer with a projection becomes a Scan")
    gates = op.MatMul(x, op.Transpose(w_ih, perm=[1, 0]))
    if b_ih is not None and b_hh is not None:
        gates = op.Add(gates, op.Add(b_ih, b_hh))
    recurrent, projection = op.Transpose(w_hh, perm=[1, 0]), op.Transpose(w_hr, perm=[1, 0])
    dtype = x.dtype or DataType.FLOAT
    hidden, cell, slice_ = (op.graph_input(name, dtype) for name in ("hidden", "cell", "gates"))
    inner = op.nested([hidden, cell, slice_])
    i, f, g, o = inner.Split(inner.Add(slice_, inner.MatMul(hidden, recurrent)), axis=-1, num_outputs=4, outputs=4)
    kept = inner.Mul(inner.Sigmoid(f), cell)
    new_cell = inner.Add(kept, inner.Mul(inner.Sigmoid(i), inner.Tanh(g)))
    new_hidden = inner.MatMul(inner.Mul(inner.Sigmoid(o), inner.Tanh(new_cell)), projection)
    body = inner.finish([new_hidden, new_cell, new_hidden])
    directions = [1] if reverse else None
    results: Sequence[Value] = op.Scan(
        *begin,
        gates,
        body=body,
        num_scan_inputs=1,
        scan_input_directions=directions,
        scan_output_directions=directions,
        outputs=3,
    )
    return results
