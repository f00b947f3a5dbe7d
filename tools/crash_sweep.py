"""Runs small programs of every operator on inputs that may end ONNX Runtime's process.

    python -m tools.crash_sweep [--dtypes int64,float32] [--operators add,sort] [--samples 2] [--done FILE]

The programs are PyTorch's own operator tests with dynamic dims. Their integers become the lowest and the highest
numbers, 0 and -1, and indices that are too large; their floats become infinities, NaN and 0; each dim in turn is 0.
ONNX Runtime may refuse an input. It may not end, run on, or return other numbers in a second run, because it has read
memory that is not its own then. Each program runs in a process of its own, which is started again after its end. What
docs/differences.md tells, and what takes as long in PyTorch, is known, and does not count. With ``--done`` a sweep that
was stopped goes on: the file gets the name of each program that ran, and those in it are left out.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import resource
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
import onnxruntime
import torch
from torch.export import Dim

import fx_onnx
from tests.opinfo.sweep import _INFOS, UNDETERMINED, Entry, _Call, entries
from tools.digest_cases import Function

_SECONDS = 20  # after which a run counts as endless
_MEMORY = 12 << 30  # the address space of a process: a size that comes from data may be the highest integer
_OPSETS = (18, 23)
_MOST = 60  # runs of a program, after which its other inputs are left out
_SIGNALLED = int(signal.SIGKILL)  # the status of a process that a signal ended
_KNOWN = (
    *("select_scatter ", "slice_scatter "),  # sizes that PyTorch refuses
    *("bincount ", "special."),  # as many bins, and as many steps for the degree of a polynomial
)
_runs: Counter[str] = Counter()  # by program
Feeds = dict[str, np.ndarray]


class _Program(NamedTuple):
    """A small program.

    Attributes:
        name: what it computes, and in which dtype.
        make: returns the module and its inputs.
        opset: the opset of the export.
        is_random: whether its results differ in each run.
    """

    name: str
    make: Callable[[], tuple[torch.nn.Module, Sequence[torch.Tensor]]]
    opset: int
    is_random: bool = False


def main() -> None:
    """Prints one line for each end, endless run and result that varies, and their number."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", default="int64,int32,int8,float32")
    parser.add_argument("--operators", default="")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--done", type=Path, default=Path(os.devnull))
    options = parser.parse_args()
    programs = [*_own_programs(), *_operator_programs(options.dtypes.split(","), options.samples)]
    chosen, lines, count = set(filter(None, options.operators.split(","))), 0, 0
    done = set(options.done.read_text().splitlines()) if options.done.exists() else set()
    fx_onnx.export(torch.nn.ReLU(), (torch.ones(2),), verbose=False)  # imports for all processes
    with options.done.open("a") as names:
        for program in programs:
            if program.name in done or (chosen and program.name.split()[0] not in chosen):
                continue
            count += 1
            for line in _lines(program):
                is_known = program.name.startswith(_KNOWN)
                print("known: " * is_known + line, flush=True)
                lines += not is_known
            print(program.name, file=names, flush=True)
    print(f"{count} programs, {_runs.total()} runs, {lines} lines")
    sys.exit(bool(lines))


def _operator_programs(dtypes: Iterable[str], samples: int) -> Iterator[_Program]:
    """Yields programs of PyTorch's operator tests."""
    for dtype, index in itertools.product(dtypes, range(samples)):
        for entry in entries(getattr(torch, dtype), dynamic=True):
            make = functools.partial(_sample, entry, index)
            opset = _OPSETS[index % len(_OPSETS)]
            yield _Program(f"{entry.name} {dtype} sample {index}", make, opset, entry.name in UNDETERMINED)


def _sample(entry: Entry, index: int) -> tuple[torch.nn.Module, Sequence[torch.Tensor]]:
    module = _Call(_INFOS[entry.name], entry.samples(index + 1)[index])
    return module, module.tensors


def _own_programs() -> Iterator[_Program]:
    """Yields programs of layers, of all rows and of rows that data select, and of functions."""
    x, integers, mask = torch.randn(3, 4, 8), torch.arange(12).reshape(3, 4), torch.tensor([True, False, True])
    heads = torch.stack([x, x])
    functions: dict[str, tuple[Callable[..., torch.Tensor], Sequence[torch.Tensor]]] = {
        "attention_by_einsum": (lambda q, k: torch.einsum("bhqd,bhkd->bhqk", q, k), (heads, heads[:, :, :3])),
        "einsum_of_two_labels": (lambda x, y: torch.einsum("nij,mij->nm", x, y), (x, x[:2])),
        "einsum_over_rows": (lambda x, y: torch.einsum("nbi,nbj->bij", x, y), (x, x)),
        "rows_of_einsum": (lambda x, m: torch.einsum("nij,mij->nm", x[m], x[m]), (x, mask)),
        "attention_of_steps": (_attention_of_steps, (x, x[:2])),
        "unique_rows": (lambda x: x.unique(dim=1), (x.round(),)),
        "index_by_division": (lambda x, i: x[0][i // 5, i % 4], (x, integers[0])),
        "write_at_index": (lambda x, i: x.index_put((i,), x[:2]), (torch.randn(12, 3), integers[1, :2])),
    }
    layers: dict[str, Callable[[], torch.nn.Module]] = {
        "MultiheadAttention": lambda: torch.nn.MultiheadAttention(8, 2, batch_first=True),
        "MultiheadAttention_of_steps": lambda: torch.nn.MultiheadAttention(8, 2),
        "TransformerEncoderLayer": lambda: torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True),
        "LSTM": lambda: torch.nn.LSTM(8, 4, batch_first=True),
        "GRU": lambda: torch.nn.GRU(8, 4, batch_first=True),
        "GRU_of_steps": lambda: torch.nn.GRU(8, 4, bidirectional=True),
        "InstanceNorm": lambda: torch.nn.InstanceNorm1d(4, affine=True),
        "GroupNorm": lambda: torch.nn.GroupNorm(2, 4),
    }
    for opset in _OPSETS:
        for name, given in functions.items():
            yield _Program(f"{name} opset {opset}", lambda given=given: (Function(given[0]), given[1]), opset)
        for name, make in layers.items():
            yield _Program(f"{name} opset {opset}", functools.partial(_of_rows, make, x), opset)
            yield _Program(f"rows_of_{name} opset {opset}", functools.partial(_of_rows, make, x, mask), opset)
        for name in ("LSTM", "GRU"):
            yield _Program(f"packed_{name} opset {opset}", functools.partial(_packed, layers[name], x), opset)


def _attention_of_steps(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    key = key.transpose(0, 1)
    return torch.nn.functional.scaled_dot_product_attention(query.transpose(0, 1), key, key)


def _of_rows(
    make: Callable[[], torch.nn.Module], *tensors: torch.Tensor
) -> tuple[torch.nn.Module, Sequence[torch.Tensor]]:
    """Returns a layer of all rows, or of those that a mask selects, and its inputs."""
    layer = make().eval()
    count = 3 if isinstance(layer, torch.nn.MultiheadAttention) else 1

    def forward(x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        result = layer(*[x if mask is None else x[mask]] * count)
        return result if isinstance(result, torch.Tensor) else result[0]

    function = Function(forward)
    function.layer = layer
    return function, tensors


def _packed(
    make: Callable[[], torch.nn.Module], *tensors: torch.Tensor
) -> tuple[torch.nn.Module, Sequence[torch.Tensor]]:
    """Returns a recurrence of sequences with lengths, and its inputs."""
    layer = make().eval()

    def forward(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        result: torch.Tensor = torch.nn.utils.rnn.pad_packed_sequence(layer(packed)[0], batch_first=True)[0]
        return result

    function = Function(forward)
    function.layer = layer
    return function, (*tensors, torch.tensor([4, 2, 3]))


def _lines(program: _Program) -> Iterator[str]:
    """Yields a line for each way in which a program ends its process, and for each result that varies."""
    done, status = 0, _SIGNALLED
    while os.WIFSIGNALED(status) and done < _MOST:
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            _limit_memory()
            _run(program, done, writer)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as lines:
            reports = lines.read().splitlines()
        _, status = os.waitpid(child, 0)
        runs = [each for each in reports if each.startswith("run ")]
        yield from (f"{program.name}: {each}" for each in reports if each.startswith("varies"))
        if not runs:
            return
        done += len(runs)
        _runs[program.name] += len(runs)
        if os.WIFSIGNALED(status):
            yield f"{program.name}: {signal.Signals(os.WTERMSIG(status)).name} where {runs[-1].removeprefix('run ')}"


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)


def _run(program: _Program, done: int, writer: int) -> None:
    """Exports a program and runs it with all inputs from the given one on; reports each run before it begins."""
    signal.alarm(10 * _SECONDS)  # of the export
    try:
        session, inputs = _session(program)
    except Exception:  # the operator tests of the exporter are others
        return
    for text, feeds in itertools.islice(_variants(session, inputs), done, None):
        os.write(writer, f"run {text}\n".encode())
        signal.alarm(_SECONDS)
        try:
            first, second = (_results(session, feeds) for _ in range(2))
        except Exception:  # ONNX Runtime refuses the input
            continue
        same = all(np.array_equal(*pair, equal_nan=_is_float(pair[0])) for pair in zip(first, second, strict=True))
        if not (same or program.is_random):
            os.write(writer, f"varies where {text}\n".encode())


def _results(session: onnxruntime.InferenceSession, feeds: Feeds) -> Sequence[np.ndarray]:
    """Returns the results of a run, in which an empty input has no memory, as a value inside of the model has none."""
    values = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy(x)
        if x.size
        else onnxruntime.OrtValue.ortvalue_from_shape_and_type(x.shape, x.dtype)
        for name, x in feeds.items()
    }
    return [np.array(value.numpy()) for value in session.run_with_ort_values(None, values)]


def _session(program: _Program) -> tuple[onnxruntime.InferenceSession, Feeds]:
    """Returns a session of a program with dynamic dims, and its inputs by name."""
    module, tensors = program.make()
    shapes = [{axis: Dim.AUTO for axis, size in enumerate(each.shape) if size > 1} for each in tensors]
    nested = (tuple(shapes),) if isinstance(module, (_Call, Function)) else tuple(shapes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = fx_onnx.export(
            module, tuple(tensors), dynamic_shapes=nested, opset_version=program.opset, verbose=False
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(ir.to_proto(exported.model).SerializeToString(), options)
    values = zip(session.get_inputs(), tensors, strict=True)
    return session, {each.name: tensor.numpy() for each, tensor in values}


def _variants(session: onnxruntime.InferenceSession, inputs: Feeds) -> Iterator[tuple[str, Feeds]]:
    """Yields texts and inputs: with other numbers, of all inputs and of each, and with a dim of size 0."""
    names: list[tuple[str, ...]] = [tuple(inputs), *((each,) for each in inputs if len(inputs) > 1)]
    for changed, place in itertools.product(names, range(6)):
        feeds = {name: _extreme(x, place) if name in changed else x for name, x in inputs.items()}
        yield f"{', '.join(changed)} = {[_text(feeds[name]) for name in changed]}", feeds
    dims = dict.fromkeys(dim for each in session.get_inputs() for dim in each.shape if isinstance(dim, str))
    for dim in dims:
        axes = {
            each.name: [axis for axis, size in enumerate(each.shape) if size == dim] for each in session.get_inputs()
        }
        yield (
            f"{dim} = 0 in {[each.shape for each in session.get_inputs()]}",
            {
                name: x[tuple(slice(0) if axis in axes[name] else slice(None) for axis in range(x.ndim))]
                for name, x in inputs.items()
            },
        )


def _extreme(x: np.ndarray, place: int) -> np.ndarray:
    """Returns an array of the same shape and dtype that repeats extreme numbers."""
    numbers: list[Any] = [np.nan, np.inf, -np.inf, 0.0, 3e38, -1e-38]
    if x.dtype == np.bool_:
        numbers = [True, False] * 3
    elif np.issubdtype(x.dtype, np.integer):
        info = np.iinfo(x.dtype)
        numbers = [info.min, info.max, 0, -1 if info.min else 1, min(info.max, 10**9), max(info.min, -(10**9))]
    chosen = numbers if place == 5 else numbers[place : place + 1]
    return np.resize(np.array(chosen).astype(x.dtype), x.shape) if x.size else x


def _text(x: np.ndarray) -> str:
    return f"{x.dtype}{list(x.shape)}: {x.ravel()[:6].tolist()}"


def _is_float(x: Any) -> bool:
    return isinstance(x, np.ndarray) and np.issubdtype(x.dtype, np.floating)


if __name__ == "__main__":
    main()
