"""An export leaves torch, the process and the module as they were, whether it succeeds or fails."""

import builtins
import copy
import gc
import math
import sys
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import rnn

import fx_onnx

_OWNERS = (
    builtins, math, warnings, torch, torch.compiler, torch.onnx, torch.SymInt, torch.autograd.Function, nn.Module, rnn,
    nn.RNNBase, nn.RNN, nn.LSTM, nn.GRU,
)  # fmt: skip
_MODULES = ("torch.export", "torch._export", "torch.fx", "torch.nn", "torch._higher_order_ops")


class Model(nn.Module):
    """Has a state that a capture exchanges or could change: weights, buffers, hooks, lists of weights, a forward."""

    def __init__(self, is_recurrent: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.linear.weight.requires_grad_(False)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.lstm = nn.LSTM(4, 4) if is_recurrent else None
        self.linear.register_forward_hook(lambda module, args, output: output * 2)
        self.norm.eval()
        self.fails = False

    def forward(self, x: Tensor, **kwargs: Tensor) -> Tensor:
        y = self.drop(self.norm(self.linear(x))) * math.sqrt(x.shape[0]) + kwargs["bias"]
        if self.lstm is not None:
            y = self.lstm(y[None])[0]
        if self.fails:
            raise KeyError(len(y))
        return y


def _state_of_torch() -> dict[str, Any]:
    """Returns the settings and the functions that an export could change."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(_MODULES)]
    functions = [
        (owner, name, value)
        for owner in (*_OWNERS, *modules)
        for name, value in list(vars(owner).items())
        if callable(value) or isinstance(value, (classmethod, staticmethod, property))
    ]
    composite, aten = torch._C.DispatchKey.CompositeImplicitAutograd, torch.ops.aten
    kernels = [aten.lstm.input, aten.gru.input, aten.max_pool1d.default, aten.batch_norm.default]
    return {
        "functions": {(id(owner), name): value for owner, name, value in functions},
        "kernels": [dict(kernel.py_kernels).get(composite) for kernel in kernels],
        "grad": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "dtype": (torch.get_default_dtype(), torch.get_default_device()),
        "autocast": [(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda")],
        "autocast cache": torch.is_autocast_cache_enabled(),
        "random": torch.get_rng_state().tolist(),
        "deterministic": torch.get_deterministic_debug_mode(),
        "flags": (torch.compiler.is_compiling(), torch.compiler.is_exporting(), torch.onnx.is_in_onnx_export()),
        "dynamo": torch._dynamo.config.get_config_copy(),
        "shapes": torch.fx.experimental._config.get_config_copy(),
        "modes": (torch.overrides._get_current_function_mode_stack(), torch._C._len_torch_dispatch_stack()),
        "collector": gc.isenabled(),
        "warnings": list(warnings.filters),
        "threads": (torch.get_num_threads(), sys.getrecursionlimit(), sys.gettrace()),
    }  # fmt: skip


def _state_of_module(model: nn.Module) -> dict[str, Any]:
    """Returns, for each module, the objects in its ``__dict__`` and in the containers there, and tensor values."""
    found: dict[str, Any] = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
            found[f"{path}.{name}"] = (id(value), type(value), [(key, id(item)) for key, item in items])
        for name, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            grad = None if tensor.grad is None else tensor.grad.tolist()
            found[f"{path}.{name} value"] = (tensor.tolist(), tensor.requires_grad, tensor._version, grad)
    return found


def _export(model: nn.Module) -> None:
    fx_onnx.export(
        model, (torch.ones(3, 4),), kwargs={"bias": torch.ones(4)}, dynamic_shapes={"x": {0: "n"}, "bias": None}
    )


@pytest.mark.parametrize("settings", ["default", "changed"])
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.filterwarnings("ignore:Model is in training mode")
def test_an_export_changes_nothing(fails: bool, settings: str) -> None:
    model = Model(is_recurrent=settings == "default")  # autocast casts inside an LSTM, which ONNX cannot
    warm = copy.deepcopy(model)
    _export(warm)  # loads modules and registers operators
    model.fails = fails
    if settings == "default":
        _check_unchanged(model)
        return
    warnings.simplefilter("ignore", ResourceWarning)
    torch.use_deterministic_algorithms(True, warn_only=True)
    gc.disable()
    try:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            _check_unchanged(model)
    finally:
        gc.enable()
        torch.use_deterministic_algorithms(False)


def _check_unchanged(model: Model) -> None:
    before, module_before = _state_of_torch(), _state_of_module(model)
    if model.fails:
        with pytest.raises(fx_onnx.CaptureError, match="KeyError"):
            _export(model)
    else:
        _export(model)
    after = _state_of_torch()
    functions, functions_before = after.pop("functions"), before.pop("functions")
    assert [key[1] for key, value in functions_before.items() if functions.get(key) is not value] == []
    assert [key[1] for key in functions.keys() - functions_before.keys() if key[1] != "print"] == []
    assert after == before
    assert _state_of_module(model) == module_before
