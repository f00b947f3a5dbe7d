"""One thread sees its own weights of a module, and the others see the module as it is."""

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import nn

from fx_onnx.capture.patches.torch_export import weights_of_this_thread


def in_another_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor() as threads:
        return threads.submit(function).result()


def test_what_a_thread_assigns_is_lost_at_the_end() -> None:
    module = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))
    norm, linear = module
    weight, statistic, dicts = linear.weight, norm.running_mean, [vars(m)["_parameters"] for m in module.modules()]
    names = list(module.state_dict())
    with weights_of_this_thread(module):
        assert linear.weight is weight
        linear._parameters["weight"] = nn.Parameter(torch.ones(2, 2))
        norm.running_mean = torch.ones(2)
        del linear._parameters["bias"]
        norm.register_buffer("new", torch.ones(1))
        assert linear.weight is not weight
        assert [name for name, _ in linear.named_parameters()] == ["weight"]
        assert in_another_thread(lambda: [linear.weight is weight, norm.running_mean is statistic]) == [True, True]
        assert in_another_thread(lambda: list(module.state_dict())) == names
    assert linear.weight is weight
    assert norm.running_mean is statistic
    assert "bias" in linear._parameters
    assert not hasattr(norm, "new")
    assert all(vars(m)["_parameters"] is d for m, d in zip(module.modules(), dicts, strict=True))


def test_what_another_thread_assigns_stays() -> None:
    module, new = nn.Linear(2, 2), nn.Parameter(torch.ones(2, 2))
    with weights_of_this_thread(module):
        in_another_thread(lambda: setattr(module, "weight", new))
        assert module.weight is not new
        copied = in_another_thread(lambda: copy.deepcopy(module))
        assert type(copied._parameters) is dict
        assert torch.equal(copied.weight, new)
    assert module.weight is new


def test_the_lists_of_weights_of_recurrent_modules() -> None:
    module, x = nn.LSTM(2, 3), torch.ones(4, 1, 2)
    attributes = dict(vars(module))
    expected = module(x)[0]
    with weights_of_this_thread(module):
        for name, weight in list(module._parameters.items()):
            module._parameters[name] = nn.Parameter(torch.zeros_like(weight))
        assert not module(x)[0].any()
        assert torch.equal(in_another_thread(lambda: module(x)[0]), expected)
        assert not hasattr(nn.RNN.__new__(nn.RNN), "_flat_weights")
    assert torch.equal(module(x)[0], expected)
    assert dict(vars(module)).keys() == attributes.keys()
    assert all(vars(module)[name] is value for name, value in attributes.items())
