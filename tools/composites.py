"""Exports every composite operator of ATen in each context of a forward, and compares the results with eager mode.

python -m tools.composites [--operators meshgrid.indexing,einsum.default] [--contexts inference_mode,autocast]
python -m tools.composites --samples 4

An operator that torch composes from others (CompositeImplicitAutograd) reaches the exporter whole or in parts, by the
context. Its example arguments are found by trial: the first ones from a list of values for each type that eager mode
accepts. With --samples, they are samples of PyTorch's own operator tests instead. The command prints each call that is
wrong, or that is refused although torch.export captures it, and ends with the counts.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import fx_onnx
from fx_onnx.torch_internals.torch_private import OpOverload, has_composite_kernel, operator_names
from tests.compare import assert_close
from tests.opinfo.sweep import entries

CONTEXTS: Mapping[str, Callable[[], Any]] = {
    "eval": contextlib.nullcontext,
    "train": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
}

# Operators of backward passes, sparse, quantized or nested tensors, and questions about memory, devices and dtypes.
_OTHERS = (
    *("backward", "sparse", "fbgemm", "_test", "cudnn", "cufft", "quantized", "mkldnn", "nested", "_batch_dim", "is_"),
    *("gradients", "packed", "prepack", "_cuda", "vulkan", "_version", "output_nr", "retains_grad", "requires_grad"),
    *("can_cast", "result_type", "promote_types", "data_ptr", "_compatible", "_dual", "propagate", "_validate", "coo"),
    *("smm", "sspaddmm", "_debug", "nnpack", "get_device", "pin_memory", "_autocast", "dense_tensors", "_fused_rms"),
    *("thnn_conv2d", "slow_conv", "_lstm_mps", "miopen", "rowwise_prune", "sym_storage", "storage_offset", "to_dense"),
    *(
        "choose_qparams",
        "data.default",
        "_thnn",
        "fake_quantize",
        "_reshape_from",
        "_sobol",
        "_saturate_weight",
        "_has_",
        "refine_names",
        "stride",
    ),
)


def _tensor(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(len(shape))) + 0.1


_VALUES: Mapping[str, Sequence[Any]] = {
    "Tensor": (
        _tensor(2, 3), _tensor(4, 4), _tensor(3), _tensor(2, 3, 4), _tensor(1, 2, 6, 6), _tensor(2, 2, 3, 3),
        torch.tensor([1, 0, 2]), torch.tensor([[1, 0, 2], [0, 1, 1]]), torch.tensor([True, False, True]), _tensor(),
        torch.complex(_tensor(2, 3), _tensor(2, 3)), torch.tensor(1), _tensor(1, 2, 4, 4, 4), _tensor(4),
    ),
    "int": (1, 0, 2, -1, 4), "SymInt": (1, 2, 0, -1), "float": (0.5, 2.0), "number": (2, 0.5), "bool": (False, True),
    "List[int]": ([1], [1, 1], [0], [2], [0, 1], [1, 2], [1, 1, 1], [2, 3, 4], []),
    "List[SymInt]": ([1], [2, 3], [3], [6, 6], [1, 1], [2], [1, 1, 1]),
    "List[Tensor]": (
        [_tensor(2, 3), _tensor(2, 3)], [_tensor(3), _tensor(3)], [torch.arange(2), torch.arange(3)], [_tensor(3, 3)]
    ),
    "List[float]": ([0.5], [0.5, 2.0], [2.0, 2.0]), "List[bool]": ([True],), "Dimname": (), "Generator": (),
    "str": (
        "reflect", "ij", "none", "fro", "nuc", "floor", "trunc", "valid", "same", "sum", "ij,jk->ik", "i,j->ij"
    ),
    "Dtype": (torch.float64, torch.int32), "ScalarType": (torch.float64, torch.int32), "List[number]": ([1.0, 2.0],),
    "Device": (torch.device("cpu"),),
}  # fmt: skip
"""type in a schema → the values to try, the most usual ones first."""

_X, _H = _tensor(3, 2, 4), _tensor(1, 2, 5)
_PACKED, _COUNTS = _tensor(5, 4), torch.tensor([2, 2, 1])


def _weights(gates: int) -> list[Tensor]:
    return [_tensor(5 * gates, 4), _tensor(5 * gates, 5), _tensor(5 * gates), _tensor(5 * gates)]


_LAYER = (True, 1, 0.0, False, False, False)
_NORM = (_tensor(2, 3, 4), _tensor(3), _tensor(3), _tensor(3), _tensor(3))
_GIVEN: Mapping[str, tuple[Any, ...]] = {
    "lstm.input": (_X, [_H, _H], _weights(4), *_LAYER), "gru.input": (_X, _H, _weights(3), *_LAYER),
    "rnn_tanh.input": (_X, _H, _weights(1), *_LAYER), "rnn_relu.input": (_X, _H, _weights(1), *_LAYER),
    "lstm_cell.default": (_X[0], [_H[0], _H[0]], *_weights(4)), "gru_cell.default": (_X[0], _H[0], *_weights(3)),
    "rnn_tanh_cell.default": (_X[0], _H[0], *_weights(1)), "rnn_relu_cell.default": (_X[0], _H[0], *_weights(1)),
    "batch_norm.default": (*_NORM, False, 0.1, 1e-5, False), "instance_norm.default": (*_NORM, True, 0.1, 1e-5, False),
    "grid_sampler.default": (_tensor(1, 2, 4, 4), _tensor(1, 3, 3, 2), 0, 0, False),
    "embedding_bag.default": (_tensor(5, 3), torch.tensor([1, 0, 2, 4]), torch.tensor([0, 2])),
    "embedding_bag.padding_idx": (
        _tensor(5, 3), torch.tensor([1, 0, 2, 4]), torch.tensor([0, 2]), False, 0, False, None, False, 1
    ),
    "_convolution_mode.default": (_tensor(1, 2, 6, 6), _tensor(2, 2, 3, 3), None, [1, 1], "same", [1, 1], 1),
    "_convolution.deprecated": (
        _tensor(1, 2, 6, 6), _tensor(2, 2, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, False, False, False
    ),
    "_batch_norm_impl_index.default": (*_NORM, False, 0.1, 1e-5, False),
    "ctc_loss.IntList": (_tensor(6, 1, 4).log_softmax(-1), torch.tensor([[1, 2]]), [6], [2]),
    "lu_solve.default": (_tensor(3, 2), *torch.linalg.lu_factor(_tensor(3, 3) + torch.eye(3))),
    "istft.default": (torch.stft(_tensor(32), 8, window=torch.ones(8), return_complex=True), 8),
    "histogramdd.TensorList_bins": (_tensor(4, 2), [torch.tensor([0.0, 0.5, 1.0, 2.0])] * 2),
    "lstm.data": (_PACKED, _COUNTS, [_H, _H], _weights(4), *_LAYER[:-1]),
    "gru.data": (_PACKED, _COUNTS, _H, _weights(3), *_LAYER[:-1]),
    "rnn_tanh.data": (_PACKED, _COUNTS, _H, _weights(1), *_LAYER[:-1]),
    "rnn_relu.data": (_PACKED, _COUNTS, _H, _weights(1), *_LAYER[:-1]),
    "ctc_loss.Tensor": (
        _tensor(6, 1, 4).log_softmax(-1), torch.tensor([[1, 2]]), torch.tensor([6]), torch.tensor([2])
    ),
    "_weight_norm.default": (_tensor(2, 3), _tensor(2, 1), 0),
    "_pad_circular.default": (_tensor(2, 3, 4), [1, 2]),
    "linalg_cholesky.default": (torch.eye(3) * 2 + 0.1,), "argsort.stable": (_tensor(2, 3),),
    "gradient.array": (_tensor(4, 4),), "nll_loss2d.default": (_tensor(1, 3, 2, 2), torch.ones(1, 2, 2).long()),
}  # fmt: skip
"""Operators whose arguments must fit each other."""


@dataclass(frozen=True)
class Call:
    """A call of an operator with example arguments."""

    operator: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    sample: str = ""

    def __str__(self) -> str:
        return self.sample or str(self.operator).removeprefix("aten.")

    @property
    def is_random(self) -> bool:
        tags = getattr(self.operator, "tags", ())
        return torch.Tag.nondeterministic_seeded in tags or "dropout" in str(self) or "rrelu" in str(self)


class Model(nn.Module):
    """Calls the operator in a context; its tensors are inputs."""

    def __init__(self, call: Call, context: str) -> None:
        super().__init__()
        self.operator, self.context = call.operator, CONTEXTS[context]
        self.leaves, self.spec = pytree.tree_flatten((call.args, dict(call.kwargs)))
        self.train(context == "train")

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(leaf.clone() for leaf in self.leaves if isinstance(leaf, Tensor))

    def forward(self, *tensors: Tensor) -> Any:
        rest = iter(tensors)
        call = pytree.tree_unflatten([next(rest) if isinstance(x, Tensor) else x for x in self.leaves], self.spec)
        with self.context():
            # in inference mode, an operator stays whole if its arguments are made there
            args, kwargs = pytree.tree_map_only(Tensor, torch.clone, call)
            return self.operator(*args, **kwargs)


def composites() -> Iterator[OpOverload]:
    """Yields the composite operators of ATen that compute tensors from dense tensors, without ``out=`` and writes."""
    for name in operator_names():
        namespace, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        packet = getattr(torch.ops.aten, base, None) if namespace == "aten" else None
        operator = getattr(packet, overload or "default", None)
        if operator is None or operator._schema.is_mutable or any(part in f"{base}.{overload}" for part in _OTHERS):
            continue
        if has_composite_kernel(operator) and any("Tensor" in str(each.type) for each in operator._schema.returns):
            yield operator


def find_call(operator: OpOverload, tries: int = 3000) -> Call | None:
    """Returns a call that eager mode accepts, of the arguments without a default first; None if none is found."""
    if (given := _GIVEN.get(str(operator).removeprefix("aten."))) is not None:
        return Call(operator, given)
    needed = [each for each in operator._schema.arguments if not each.has_default_value()]
    for chosen in (needed, [each for each in operator._schema.arguments if each in needed or not each.kwarg_only]):
        count = sum(not each.kwarg_only for each in chosen)
        names = [each.name for each in chosen[count:]]
        for values in _tuples([_values(str(each.type)) for each in chosen], tries):
            call = Call(operator, values[:count], dict(zip(names, values[count:], strict=True)))
            if _is_accepted(call):
                return call
    return None


def found_calls(operators: Iterable[OpOverload]) -> Iterator[Call]:
    """Yields a call of each operator."""
    for operator in operators:
        call = find_call(operator)
        if call is None:
            print(f"no arguments found: {operator._schema}", flush=True)
        else:
            yield call


def sampled_calls(operators: Iterable[OpOverload], count: int) -> Iterator[Call]:
    """Yields up to ``count`` calls of each operator, and of each variant of it, with samples of torch's own tests."""
    names = {operator._schema.name.removeprefix("aten::") for operator in operators}
    for entry in entries(torch.float32):
        name = entry.name.removeprefix("nn.functional.").partition("/")[0].replace(".", "_")
        for number, sample in enumerate(entry.samples(count) if name in names else ()):
            call = Call(entry.function, (sample.input, *sample.args), sample.kwargs, f"{entry.name} {number}")
            if _is_accepted(call):
                yield call


def _is_accepted(call: Call) -> bool:
    """Returns whether eager mode computes dense tensors with elements."""
    args, kwargs = pytree.tree_map_only(Tensor, torch.clone, (call.args, dict(call.kwargs)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = call.operator(*args, **kwargs)
    except Exception:
        return False
    tensors = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
    return bool(tensors) and all(each.numel() and each.layout == torch.strided for each in tensors)


def _values(kind: str) -> Sequence[Any]:
    optional = kind.startswith("Optional[")
    kind = kind.removeprefix("Optional[").removesuffix("]") if optional else kind
    found = _VALUES.get(kind, ())
    if kind.startswith("List[Optional[Tensor"):
        found = [[torch.tensor([1, 0])]]
    return (None, *found) if optional else found


def _tuples(values: Sequence[Sequence[Any]], tries: int) -> Iterator[tuple[Any, ...]]:
    """Yields tuples of one value each: all of them, or as many random ones."""
    if torch.Size(map(len, values)).numel() <= tries:
        yield from itertools.product(*values)
        return
    draw = random.Random(0)
    for _ in range(tries):
        yield tuple(map(draw.choice, values))


def outcome(call: Call, context: str) -> tuple[str, str]:
    """Exports a call in a context: ``right``, ``eager``, ``capture``, ``refused``, ``failed`` or ``wrong``, and why."""
    model = Model(call, context)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            want = model(*model.inputs)
        except Exception as error:
            return "eager", str(error)
        try:
            program = fx_onnx.export(model, model.inputs, progress=False)
            found = program.call_structured(*_as_pairs(model.inputs))
        except Exception as error:
            text = " ".join(str(error).split())
            if not _captures(model):
                return "capture", text
            is_sentence = isinstance(error, fx_onnx.OnnxExporterError) and error.__cause__ is None
            return "refused" if is_sentence else "failed", text
    try:
        _compare(call, context, found, want)
    except AssertionError as error:
        return "wrong", " ".join(str(error).split())
    return "right", ""


def _as_pairs(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [torch.view_as_real(each) if each.is_complex() else each for each in tensors]


def _captures(model: Model) -> bool:
    try:
        torch.export.export(model, model.inputs, strict=False)
    except Exception:
        return False
    return True


def _compare(call: Call, context: str, found: Any, want: Any) -> None:
    found, want = ([torch.as_tensor(leaf) for leaf in pytree.tree_leaves(each)] for each in (found, want))
    if "embedding_bag" in str(call):  # only the backward pass reads the other results; eager mode leaves them out
        found, want = found[:1], want[:1]
    want = [torch.view_as_real(w.resolve_conj()) if w.is_complex() and not f.is_complex() else w
            for f, w in zip(found, want, strict=True)]  # fmt: skip
    kinds = [[(each.dtype, each.shape) for each in results] for results in (found, want)]
    assert kinds[0] == kinds[1], f"{kinds[0]} instead of {kinds[1]}"
    if "eigh" in str(call) or "svd" in str(call):  # vectors are defined up to their sign
        found, want = [each.abs() for each in found], [each.abs() for each in want]
    if not call.is_random:
        tolerance = {"rtol": 0.05, "atol": 0.05} if context == "autocast" else {}
        for f, w in zip(found, want, strict=True):
            torch.testing.assert_close(f, w, equal_nan=True, **tolerance) if tolerance else assert_close([f], [w])


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the sweep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", type=lambda text: text.split(","))
    parser.add_argument("--samples", type=int, default=0, help="how many of each operator's")
    parser.add_argument("--part", default="1/1", help="such as 1/2 for the first half")
    parser.add_argument("--contexts", type=lambda text: text.split(","), default=list(CONTEXTS))
    given = parser.parse_args(arguments)
    counts: dict[str, collections.Counter[str]] = {context: collections.Counter() for context in given.contexts}
    part, parts = map(int, given.part.split("/"))
    names = given.operators
    operators = [each for each in composites() if not names or str(each).removeprefix("aten.") in names]
    operators = operators[part - 1 :: parts]
    for call in sampled_calls(operators, given.samples) if given.samples else found_calls(operators):
        for context in given.contexts:
            stage, reason = outcome(call, context)
            counts[context][stage] += 1
            if stage not in ("right", "eager", "capture"):
                print(f"{stage} {call} in {context}: {reason[:300]}", flush=True)
    for context, count in counts.items():
        print(f"{context}: {', '.join(f'{number} {stage}' for stage, number in sorted(count.items()))}")


if __name__ == "__main__":
    main()
