"""Compares the CPU time of the recurrences of transformers: eager, as standard ONNX, and as one operator.

    python -m benchmarks.recurrence_speed [--rounds N]

A row has the median of one thread's CPU time in milliseconds. All forms of a recurrence run in turns, on the same
tensors. "bare" is com.microsoft.LinearAttention alone, without what transformers computes around it.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import onnx
import onnxruntime
import torch
from torch import Tensor, nn

import fx_onnx
import tests  # noqa: F401  lets torchvision load beside a CPU build of torch
from fx_onnx.libraries.recurrent_functions import KEPT

LENGTHS = (1, 64, 256, 1000)


def _delta_rule(tokens: int, by_channel: bool) -> dict[str, Any]:
    heads, size = 8, 128
    query, key, value = torch.randn(3, 1, tokens, heads, size)
    decay = -torch.rand(1, tokens, heads, *([size] if by_channel else []))
    return {
        "query": query, "key": key, "value": value, "g": decay, "beta": torch.rand(1, tokens, heads),
        "initial_state": torch.randn(1, heads, size, size),
    }  # fmt: skip


def _mamba2(tokens: int) -> dict[str, Any]:
    heads, size, width = 24, 64, 128
    B, C = torch.randn(2, 1, tokens, 1, width)
    return {
        "hidden_states": torch.randn(1, tokens, heads, size), "dt": torch.rand(1, tokens, heads),
        "A": -torch.rand(heads), "B": B, "C": C, "D": torch.rand(heads),
        "initial_states": torch.randn(1, heads, size, width),
    }  # fmt: skip


class Recurrence(nn.Module):
    """Calls what replaces a function of transformers during a capture."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__()
        self.name, self.options = name, options

    def forward(self, given: dict[str, Tensor]) -> Any:
        return KEPT[self.name](**given, **self.options)

    def eager(self, model_type: str, given: dict[str, Tensor]) -> Any:
        """Calls the function itself."""
        file = importlib.import_module(f"transformers.models.{model_type}.modeling_{model_type}")
        return getattr(file, self.name)(**given, **self.options)


_DELTA = {"output_final_state": True, "use_qk_l2norm_in_kernel": True}
RECURRENCES: dict[str, tuple[str, list[Recurrence], Callable[[int], dict[str, Any]]]] = {
    "gated delta rule": (
        "qwen3_5",
        [Recurrence(f"torch_{form}_gated_delta_rule", **_DELTA) for form in ("chunk", "recurrent")],
        partial(_delta_rule, by_channel=False),
    ),
    "Kimi": (
        "kimi_linear",
        [Recurrence(f"{form}_kimi_delta_attention", **_DELTA) for form in ("chunk", "recurrent")],
        partial(_delta_rule, by_channel=True),
    ),
    "Mamba 2": (
        "mamba2", [Recurrence("mamba2_chunk_scan", chunk_size=256, return_final_states=True)], _mamba2
    ),
}  # fmt: skip
"""The model type, its functions for many tokens and for one, if it is another, and their arguments."""


def main() -> None:
    """Prints a table for each recurrence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name, (model_type, functions, arguments) in RECURRENCES.items():
        torch.manual_seed(0)
        programs = {
            target or "standard": exported(functions[0], arguments(70), target) for target in (None, "onnxruntime")
        }
        nodes = {target: sum(1 for _ in program.model.graph.all_nodes()) for target, program in programs.items()}
        print(f"{name}: nodes {nodes}", flush=True)
        sessions = {target: session(program.model_proto) for target, program in programs.items()}
        sessions["bare"] = session(_bare(programs["onnxruntime"].model_proto))
        for tokens in LENGTHS:
            given = arguments(tokens)
            function = functions[-1 if tokens == 1 else 0]
            calls = {form: _call(each, _feed(given, programs["onnxruntime"], each)) for form, each in sessions.items()}
            calls["eager"] = partial(function.eager, model_type, given)
            times = interleaved(calls, rounds)
            print(f"  {tokens:5} tokens: " + ", ".join(f"{each} {ms:.3g}" for each, ms in times.items()), flush=True)


def exported(module: nn.Module, given: dict[str, Tensor], target: str | None) -> fx_onnx.ONNXProgram:
    """Exports a recurrence with a dynamic number of tokens."""
    fixed = ("A", "D", "initial_state", "initial_states")
    shapes = {name: None if name in fixed else {1: "tokens"} for name in given}
    return fx_onnx.export(module.eval(), (given,), dynamic_shapes=(shapes,), target=target, verbose=False)


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """Returns a session with one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _bare(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a model of the LinearAttention alone, whose inputs are those of the node."""
    node = next(each for each in model.graph.node if each.op_type == "LinearAttention")
    make = partial(onnx.helper.make_tensor_value_info, elem_type=onnx.TensorProto.FLOAT)
    inputs = [make(name, shape=None) for name in node.input if name]
    outputs = [make(name, shape=None) for name in node.output]
    graph = onnx.helper.make_graph([node], "bare", inputs, outputs)
    return onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def _feed(
    given: dict[str, Tensor], program: fx_onnx.ONNXProgram, target: onnxruntime.InferenceSession
) -> dict[str, Any]:
    """Returns the inputs of a session: those of the program, or, for the bare operator, what the program computes."""
    names = [each.name for each in program.model.graph.inputs]
    feed = dict(zip(names, (each.numpy() for each in given.values()), strict=True))
    wanted = [each.name for each in target.get_inputs()]
    if set(wanted) <= set(feed):
        return {name: feed[name] for name in wanted}
    model = onnx.ModelProto()
    model.CopyFrom(program.model_proto)
    del model.graph.output[:]
    model.graph.output.extend(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in wanted)
    found = session(model).run(wanted, feed)
    return dict(zip(wanted, found, strict=True))


def _call(target: onnxruntime.InferenceSession, feed: dict[str, Any]) -> Callable[[], Any]:
    return partial(target.run, None, feed)


def interleaved(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Returns the median CPU time of each call in milliseconds; the calls run in turns, after one that is not timed."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            start = time.process_time()
            call()
            if turn:
                times[name].append(1000 * (time.process_time() - start))
    return {name: statistics.median(each) for name, each in times.items()}


if __name__ == "__main__":
    main()
