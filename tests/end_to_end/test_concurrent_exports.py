"""Exports in several threads, and eager runs in other threads during an export."""

import copy
import logging
import math
import pickle
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx._symbolic_trace import is_fx_tracing
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import fx_onnx


class Packed(nn.Module):
    """An LSTM with packed sequences; its weights are in a list beside the parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 8, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed, _ = self.lstm(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
        return pad_packed_sequence(packed, batch_first=True)[0]


class Sizes(nn.Module):
    """Functions of Python that are replaced during a capture."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        scaled = self.linear(x) / math.sqrt(x.shape[0]) * max(len(x), 2)
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (scaled,))


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.sin()

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("Sin", x)


class Function(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return Sine.apply(x * self.scale)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x[None])[0] + self.count


class Counter(nn.Module):
    """Writes its own attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.shape = 0, None
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        self.calls, self.shape = self.calls + 1, x.shape
        return self.linear(x)


class Filled(nn.Module):
    """Writes a buffer that no result depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return x.sin()


class Mode(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if self.training else x - 1


def scripted() -> nn.Module:
    return nn.Sequential(torch.jit.script(nn.Sequential(nn.Linear(4, 4), Mode())), nn.ReLU())


_ROWS = ({0: "n"},)
CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, ...]], Any]] = {
    "packed": (
        Packed, lambda: (torch.randn(3, 5, 4), torch.tensor([5, 3, 2])), ({0: "batch", 1: "time"}, {0: "batch"})
    ),
    "sizes": (Sizes, lambda: (torch.randn(3, 4),), _ROWS),
    "function": (Function, lambda: (torch.randn(3, 4),), _ROWS),
    "attention": (Attention, lambda: (torch.randn(3, 4),), _ROWS),
    "script": (scripted, lambda: (torch.randn(3, 4),), _ROWS),
    "counter": (Counter, lambda: (torch.randn(3, 4),), None),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(before)


def test_four_threads_export_at_once() -> None:
    def export(name: str) -> None:
        make, arguments, dynamic_shapes = CASES[name]
        for _ in range(2):
            fx_onnx.export(make().eval(), arguments(), dynamic_shapes=dynamic_shapes, verify=True)

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(export, name) for name in CASES]:
            done.result()
    assert not is_fx_tracing(), "torch.compile works as before"


def test_four_threads_export_one_model_to_the_same_bytes() -> None:
    model, arguments = Function().eval(), (torch.ones(3, 4),)
    with ThreadPoolExecutor(4) as threads:
        exports = [threads.submit(fx_onnx.export, model, arguments, dynamic_shapes=_ROWS) for _ in range(4)]
        assert len({done.result().model_proto.SerializeToString() for done in exports}) == 1


@pytest.mark.parametrize("name", CASES)
def test_an_eager_run_during_exports_sees_nothing(name: str) -> None:
    make, arguments, dynamic_shapes = CASES[name]
    model, args = make().eval(), arguments()
    with torch.no_grad():
        expected = model(*args)
    started, stop, runs = threading.Event(), threading.Event(), [0]

    def run() -> None:
        try:
            while not stop.is_set():
                with torch.no_grad():
                    result = model(*args)
                assert type(result) is Tensor
                assert torch.equal(result, expected)
                assert not torch.compiler.is_compiling()
                assert not torch.onnx.is_in_onnx_export()
                assert not fx_onnx.is_in_onnx_export()
                runs[0] += 1
                started.set()
        finally:
            started.set()

    with ThreadPoolExecutor(1) as threads:
        eager = threads.submit(run)
        assert started.wait(10)
        before = runs[0]
        try:
            for _ in range(2):
                program = fx_onnx.export(model, args, dynamic_shapes=dynamic_shapes)
        finally:
            stop.set()
        eager.result()
    assert runs[0] > before + 3
    assert not is_fx_tracing(), "torch.compile works as before"
    torch.testing.assert_close(program(*args)[0], expected)


# --- what another thread sees -----------------------------------------------------------------------------------------

CHECKS = {"dispatcher", "is_current", "read", "write", "method", "_content", "state_of_thread", "symbolic_len"}
"""The functions of fx_onnx that find out which thread calls them."""


class Beside(nn.Module):
    """Calls a function each time the main thread runs the forward."""

    def __init__(self, inner: nn.Module, call: Callable[[], None] | None = None) -> None:
        super().__init__()
        self.inner = inner
        _calls[id(self)] = call
        self.key = id(self)

    def forward(self, *args: Any) -> Any:
        call = _calls[self.key]
        if call is not None and threading.current_thread() is threading.main_thread():
            with ThreadPoolExecutor(1) as threads:
                threads.submit(call).result()
        return self.inner(*args)


_calls: dict[int, Callable[[], None] | None] = {}


def _seen(model: nn.Module) -> dict[str, Any]:
    """Returns what a thread sees of a module and of the process."""
    loggers = [logging.root, *(each for each in logging.root.manager.loggerDict.values())]
    return {
        "modules": [(path, type(each), each.training) for path, each in model.named_modules()],
        "hooks": [(list(each._forward_hooks), list(each._forward_pre_hooks)) for each in model.modules()],
        "tensors": [(name, id(each)) for name, each in (*model.named_parameters(), *model.named_buffers())],
        "attributes": [set(vars(each)) - {"forward"} for each in model.modules()],
        "warnings": list(warnings.filters),
        "loggers": [(each.level, each.disabled) for each in loggers if isinstance(each, logging.Logger)],
        "random": torch.get_rng_state().tolist(),
        "settings": (torch.get_default_dtype(), torch.get_default_device(), sys.getrecursionlimit()),
        "modes": (torch.overrides._get_current_function_mode_stack(), torch._C._len_torch_dispatch_stack()),
    }


def _check_beside(make: Callable[[], nn.Module], args: tuple[Any, ...], **options: Any) -> fx_onnx.ONNXProgram:
    """Exports alone, and with an eager call of another thread in each run of the forward; compares all there is."""
    ran, ours = [], set[str]()
    alone, model = Beside(make()), Beside(make())
    model.load_state_dict(alone.state_dict())
    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False):  # as torch.export sets it in all threads
        expected = [each(*args) for each in (alone, model)][1]

    def profile(frame: Any, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(Path(fx_onnx.__file__).parent):
            ours.add(frame.f_code.co_name)

    def eager() -> None:
        before = _seen(model)
        sys.setprofile(profile)
        try:
            with torch.no_grad():
                result = model(*args)
        finally:
            sys.setprofile(None)
        torch.testing.assert_close(result, expected, rtol=0, atol=0)
        ran.append((before, _seen(model)))

    wanted = fx_onnx.export(alone, args, **options)
    before = _seen(model)
    _calls[model.key] = eager
    program = fx_onnx.export(model, args, **options)
    assert ran
    for seen in (each for pair in ran for each in pair):
        assert seen == before
    assert ours <= CHECKS
    assert [str(each) for each in program.findings] == [str(each) for each in wanted.findings]
    graph, same = program.model_proto.graph, wanted.model_proto.graph
    assert (graph.node, graph.input, graph.output) == (same.node, same.input, same.output)
    plain = [{k: v for k, v in vars(each.inner).items() if isinstance(v, int | tuple)} for each in (model, alone)]
    assert plain[0] == plain[1]
    return program


_X = (torch.linspace(-1, 1, 12).reshape(3, 4),)
_BESIDE: dict[str, tuple[Callable[[], nn.Module], dict[str, Any]]] = {
    "net": (lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout()).eval(), {}),
    "dynamic": (lambda: Sizes().eval(), {"dynamic_shapes": _ROWS}),
    "size of 1": (lambda: nn.Linear(4, 4).eval(), {"dynamic_shapes": _ROWS}),
    "evaluation": (lambda: nn.Sequential(Mode()), {"training": fx_onnx.TrainingMode.EVAL}),
    "training": (lambda: nn.Sequential(Mode()).eval(), {"training": fx_onnx.TrainingMode.TRAINING}),
    "scripted mode": (lambda: scripted().eval(), {"training": fx_onnx.TrainingMode.TRAINING}),
    "counter": (lambda: Counter().eval(), {}),
    "buffer": (lambda: Filled().eval(), {}),
    "function": (lambda: Function().eval(), {}),
    "lstm": (lambda: nn.LSTM(4, 4).eval(), {"dynamic_shapes": _ROWS}),
    "script": (lambda: scripted().eval(), {"dynamic_shapes": _ROWS}),
    "attention": (lambda: Attention().eval(), {"opset_version": 18}),
    "functions": (lambda: nn.Sequential(nn.Linear(4, 4)).eval(), {"export_modules_as_functions": True}),
    "verify": (lambda: nn.Sequential(nn.Linear(4, 4)).eval(), {"verify": True, "dynamic_shapes": _ROWS}),
}  # fmt: skip


@pytest.mark.parametrize("name", _BESIDE)
def test_another_thread_runs_no_function_of_the_export(name: str) -> None:
    make, options = _BESIDE[name]
    if "dynamic_shapes" in options:  # of ``*args``
        options = {**options, "dynamic_shapes": (options["dynamic_shapes"],)}
    args = (_X[0][:1],) if name == "size of 1" else _X
    _check_beside(make, args, **options)


def test_another_thread_runs_no_function_of_the_report(tmp_path: Path) -> None:
    make, _ = _BESIDE["net"]
    _check_beside(make, _X, report=True, artifacts_dir=tmp_path)


def test_another_thread_runs_no_function_of_the_export_of_a_decoder() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.LlamaConfig(vocab_size=16, use_cache=False, **sizes)
    make = partial(transformers.LlamaForCausalLM, config)
    _check_beside(lambda: Logits(make().eval()), (torch.tensor([[1, 2, 3]]),))


class Logits(nn.Module):
    """A decoder that fills a new cache in each call."""

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, ids: Tensor) -> Tensor:
        found = self.decoder(ids, use_cache=True)
        return found.logits + found.past_key_values.layers[0].keys.sum()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_of_another_thread_has_its_own_weights(copied: Callable[[nn.Module], nn.Module]) -> None:
    model, copies = Beside(nn.Linear(4, 4)), []
    _calls[model.key] = lambda: copies.append(copied(model))
    fx_onnx.export(model, _X)
    nn.init.zeros_(copies[0].inner.weight)
    _calls[model.key] = None
    assert torch.equal(copies[0](*_X), copies[0].inner.bias.expand(3, 4))


# --- exports in a forward ---------------------------------------------------------------------------------------------


class Nested(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        fx_onnx.export(nn.ReLU(), (torch.ones(2),))
        return x + 1


def test_a_nested_export_is_refused() -> None:
    with pytest.raises(fx_onnx.CaptureError, match=r"^export\(\) was called while the same thread captures") as caught:
        fx_onnx.export(Nested(), (torch.ones(2),))
    assert caught.value.message.count(". ") == 0
    assert fx_onnx.export(nn.ReLU(), (torch.ones(2),))(-torch.ones(2))[0].tolist() == [0, 0]
