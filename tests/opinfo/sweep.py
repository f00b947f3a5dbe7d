"""PyTorch's OpInfo samples as models of one operator: each is exported, run in ONNX Runtime and compared with eager."""

from __future__ import annotations

import random
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.export import Dim
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import SEED
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree

import fx_onnx
from fx_onnx.messages.errors import CaptureError
from fx_onnx.program.session import is_loaded
from tests.compare import assert_close

OPSETS = (18, 20, 22, 23, 24, 26, *([28] if is_loaded(28) else []))
"""The samples of an operator use these opsets in turn. ONNX Runtime loads opset 28 from version 1.32 on."""

DTYPES = (
    *(torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool),
    torch.complex64,
)

# Operators with random or uninitialized results, of which only shapes and dtypes are compared.
UNDETERMINED = {
    *("bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "rand_like", "randint"),
    *("randint_like", "randn", "randn_like", "randperm", "uniform", "nn.functional.rrelu", "nn.functional.dropout"),
    *("nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.alpha_dropout"),
    *("nn.functional.feature_alpha_dropout", "nn.functional.fractional_max_pool2d"),
    *("nn.functional.fractional_max_pool3d", "pca_lowrank", "svd_lowrank", "empty", "empty_like", "empty_strided"),
    *("empty_permuted", "new_empty", "new_empty_strided"),
}

# Operators that return vectors defined up to a sign or a phase, of which only magnitudes are compared.
UP_TO_SIGN = {"svd", "linalg.svd", "linalg.eigh", "linalg.eig"}


@dataclass(frozen=True)
class Entry:
    """An operator of the database, or a variant of it, in one dtype.

    Attributes:
        name: the operator, and its variant if it has a name, such as ``norm/nuc``.
        dynamic: whether every dim of every input that is larger than 1 is dynamic.
    """

    name: str
    dtype: torch.dtype
    dynamic: bool = False

    def __str__(self) -> str:
        words = [self.name, str(self.dtype).removeprefix("torch."), "dynamic" if self.dynamic else ""]
        return " ".join(filter(None, words))

    @property
    def function(self) -> Callable[..., Any]:
        """The function of Python that calls the operator."""
        function: Callable[..., Any] = _INFOS[self.name].op
        return function

    def samples(self, count: int) -> list[SampleInput]:
        """Returns ``count`` samples, spread evenly over those of the database; the same ones each time."""
        torch.default_generator.manual_seed(0)
        info = _INFOS[self.name]
        found = list(_seeded(info.sample_inputs_func(info, "cpu", self.dtype, requires_grad=False)))
        return found[:: max(1, len(found) // count)][:count]


def _seeded(samples: Iterable[SampleInput]) -> Iterator[SampleInput]:
    """Yields what ``OpInfo.sample_inputs`` does, in a twentieth of its time.

    That method reads the source of every frame on the stack, and its seed records the stack for each kind of device.
    """
    _seed()
    for sample in samples:
        yield sample
        _seed()


def _seed() -> None:
    torch.default_generator.manual_seed(SEED)
    random.seed(SEED)
    np.random.seed(SEED)


@dataclass(frozen=True)
class Outcome:
    """The result of testing a sample.

    Attributes:
        stage: ``right``; ``skipped`` if eager or torch.export itself fails; ``export`` or ``run`` if the export, or the
            loading and running of the model, fails; ``wrong`` if the results differ; ``frozen`` if they differ only at
            another size than the exported one.
        reason: the error message, or the difference.
        capture: the seconds that torch.export took.
        own: the seconds of all later stages.
    """

    stage: str
    reason: str = ""
    capture: float = 0.0
    own: float = 0.0


def entries(dtype: torch.dtype, dynamic: bool = False) -> list[Entry]:
    """Returns all operators of the database that support ``dtype`` on the CPU."""
    return [Entry(name, dtype, dynamic) for name, info in _INFOS.items() if dtype in info.supported_dtypes("cpu")]


def outcomes(entry: Entry, count: int) -> Iterator[Outcome]:
    """Yields the outcomes of ``count`` samples, each at another opset."""
    turn = zlib.crc32(entry.name.encode())
    for index, sample in enumerate(entry.samples(count)):
        yield outcome(entry, sample, OPSETS[(turn + index) % len(OPSETS)])


def outcome(entry: Entry, sample: SampleInput, opset: int) -> Outcome:
    """Exports the sample, whose tensors are the model's inputs, and compares ONNX Runtime with eager."""
    module = _Call(_INFOS[entry.name], sample)
    inputs = module.tensors
    if any(each.layout != torch.strided for each in inputs):
        return Outcome("skipped", "sparse")
    if entry.dynamic and not any(size > 1 for each in inputs for size in each.shape):
        return Outcome("skipped", "nothing dynamic")
    try:
        want = module(*_copies(inputs))
    except Exception as error:  # a sample that eager rejects does not test the exporter
        return Outcome("skipped", str(error))
    shapes = [{d: Dim.AUTO for d, size in enumerate(each.shape) if size > 1} for each in inputs]
    begin = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = fx_onnx.export(
                module, _copies(inputs), dynamic_shapes=(tuple(shapes),) if entry.dynamic else None,
                opset_version=opset, verbose=False,
            )  # fmt: skip
    except Exception as error:
        captured = _captures(module, inputs, (tuple(shapes),) if entry.dynamic else None)
        return Outcome("export" if captured else "skipped", _message(error))
    capture = program.timings["capture"]
    own = time.perf_counter() - begin - capture
    found = _compare(entry, program, inputs, want)
    if found.stage == "right" and entry.dynamic:
        found = _compare_at_larger_sizes(entry, program, module)
    return Outcome(found.stage, found.reason, capture, own)


class _Call(torch.nn.Module):
    """A call of the operator: the sample's tensors are inputs, and all other arguments are constants."""

    def __init__(self, info: OpInfo, sample: SampleInput) -> None:
        super().__init__()
        self.info = info
        call = ((sample.input, *sample.args), dict(sample.kwargs))
        self.leaves, self.spec = pytree.tree_flatten(call)
        self.leaves = [x.detach() if isinstance(x, torch.Tensor) else x for x in self.leaves]

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    def forward(self, *tensors: torch.Tensor) -> Any:
        rest = iter(tensors)
        leaves = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.info.op(*args, **kwargs)


def _copies(tensors: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return tuple(each.clone() for each in tensors)


def _captures(module: torch.nn.Module, inputs: list[torch.Tensor], shapes: Any) -> bool:
    """Returns whether torch.export captures a module that fx_onnx could not export."""
    try:
        torch.export.export(module, _copies(inputs), dynamic_shapes=shapes, strict=False)
    except Exception:
        return False
    return True


def _message(error: BaseException) -> str:
    """Returns the message of the innermost cause of an error, in one line."""
    while isinstance(error, fx_onnx.OnnxExporterError) and not isinstance(error, CaptureError):
        if (cause := error.__cause__ or error.__context__) is None:
            break
        error = cause
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _compare(entry: Entry, program: fx_onnx.ONNXProgram, inputs: list[torch.Tensor], want: Any) -> Outcome:
    """Runs the program and compares its outputs with eager."""
    try:
        got = program.call_structured(*_to_real(inputs))
    except Exception as error:
        return Outcome("run", _message(error))
    try:
        _assert_same(entry, got, want)
    except AssertionError as error:
        return Outcome("wrong", str(error))
    return Outcome("right")


def _compare_at_larger_sizes(entry: Entry, program: fx_onnx.ONNXProgram, module: _Call) -> Outcome:
    """Compares the program with eager again, with every symbolic size one larger, if eager accepts such inputs."""
    inputs = [
        _resized(each, [size + (not isinstance(dim, int)) for size, dim in zip(each.shape, value.shape, strict=False)])
        for each, value in zip(module.tensors, program.model.graph.inputs, strict=False)
    ]
    try:
        want = module(*_copies(inputs))
    except Exception:
        return Outcome("right", "eager takes no larger size")
    if len(pytree.tree_leaves(want)) != len(program.exported_program.graph_signature.user_outputs):
        return Outcome("right", "another number of outputs")
    found = _compare(entry, program, inputs, want)
    return found if found.stage == "right" else Outcome("frozen", found.reason)


def _resized(example: torch.Tensor, shape: list[int]) -> torch.Tensor:
    """Returns a tensor of another shape, with values in the example's range and of the same sign."""
    if tuple(example.shape) == tuple(shape):
        return example.clone()
    generator = torch.Generator().manual_seed(1)
    if not (example.dtype.is_floating_point or example.dtype.is_complex) or not example.numel():
        positions = torch.arange(int(torch.Size(shape).numel())) % max(1, example.numel())
        return example.reshape(-1)[positions].reshape(shape).clone()
    drawn = torch.randn(shape, dtype=example.dtype, generator=generator)
    if example.dtype.is_complex:
        return drawn
    known = example[example.isfinite()]
    if not known.numel():
        return drawn
    drawn = drawn * known.abs().float().mean().to(example.dtype)
    if float(known.min()) < 0:
        return drawn
    return drawn.abs().clamp(max=float(known.max())) if float(known.max()) <= 1 else drawn.abs()


def _to_real(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Returns the inputs as the program takes them: complex ones as views of real pairs."""
    return [torch.view_as_real(each.resolve_conj()) if each.is_complex() else each.clone() for each in inputs]


def _assert_same(entry: Entry, got: Any, want: Any) -> None:
    """Compares the outputs: only shapes and dtypes of random ones, and only magnitudes of vectors up to a sign."""
    got, want = (
        [leaf if isinstance(leaf, torch.Tensor) else torch.tensor(leaf) for leaf in pytree.tree_leaves(values)]
        for values in (got, want)
    )
    operator = entry.name.split("/")[0]
    if operator in UNDETERMINED:
        kinds = [[(each.dtype, each.shape) for each in values] for values in (got, want)]
        assert kinds[0] == kinds[1], f"{kinds[0]} instead of {kinds[1]}"
        return
    if operator in UP_TO_SIGN:
        got, want = ([each.abs() for each in values] for values in (got, want))
    assert_close(got, want)


_INFOS: dict[str, OpInfo] = {"/".join(filter(None, (info.name, info.variant_test_name))): info for info in op_db}
