"""Tests of TorchScript's operators on Python's values: each expression has the same value as in TorchScript."""

import math

import pytest
import torch

from fx_onnx.torchscript.python_operators import NUMBER_TENSOR_OPERATORS, PYTHON_OPERATORS
from fx_onnx.torchscript.script_values import ScalarTensor
from fx_onnx.torchscript.scripted_module import scripted_module

EXPRESSIONS = [
    "(a + b, a - b, a * b, a / b, a // b, a % b, -a, abs(a), a ** b, -a // b, -a % b)",
    "(c + 1, c / 2, c // 2, c % 1.5, c ** 2, round(c), int(c), float(a), bool(a), -7.5 // 2.0)",
    "(a == b, a != b, a < b, a >= b, not a, a > 1 and b > 1, a & b, a | b, a ^ b, a << 2, a >> 1)",
    "(min(a, b), max(a, b), min(c, 1.0), max([1, 5, 2]), min([3.5, 2.5]), sum([a, b]), any([a > 9]), all([a > 0]))",
    "([a, b] + [1], [a] * 3, len([a, b]), [a, b, 3][1:], [a, b, 3][-1], a in [a, b], [3, 1, 2].index(1))",
    "(sorted([3, 1, 2]), list(range(a)), [i * 2 for i in range(1, 9, 3)], [3, 1].count(1))",
    "('x{}y{}'.format(a, c), 'ab' + 'cd', 'abc'[1], 'a,b'.split(','), ' a '.strip(), 'ab'.upper(), 'abc'.find('c'))",
    "('-'.join(['a', 'b']), 'abc'.replace('b', 'x'), 'abc'.startswith('ab'), str(a), len('abc'), 'b' in 'abc')",
    "({'a': a}['a'], {'a': a, 'b': b}.keys(), {'a': a}.values(), {'a': a}.get('z', 9), 'a' in {'a': 1}, len({'a': 1}))",
    "(x.size(0), x.shape, x.dim(), x.numel(), len(x), x.dtype == torch.float32, x.is_floating_point(), x.stride(0))",
    "(int(x.sum()), float(x[0, 0]), bool(x[0, 0] > 0), x.device.type, x.is_cuda, x.requires_grad, x.max().item())",
    "(torch.tensor([1, a]), torch.tensor([[1.0, c]]), torch.tensor(a, dtype=torch.float64), torch.zeros([a, b]))",
    "(x.to(torch.float64), x.to('cpu'), x.type_as(x), x.int(), x.to(x.device, torch.float16), x.to(x))",
    "(isinstance(x, torch.Tensor), x is None, x is not None, (a, b)[0], (a, b, c)[1:])",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions(expression):
    script = torch.jit.CompilationUnit(f"def f(x: Tensor, a: int, b: int, c: float):\n    return {expression}\n").f
    for arguments in ((torch.ones(2, 3), 5, 2, 2.5), (torch.full((1, 2), 4.0), 1, 3, 0.75)):
        expected, found = script(*arguments), scripted_module(script)(*arguments)
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert (
                (a.equal(b) and a.dtype == b.dtype) if isinstance(b, torch.Tensor) else (a == b and type(a) is type(b))
            )


@torch.jit.script
def of_math(c: float):
    return math.sqrt(c), math.ceil(c), math.floor(c), math.exp(c), math.log(c), math.sin(c), math.pow(c, 2.0)


def test_functions_of_math():
    assert scripted_module(of_math)(2.5) == of_math(2.5)


STATEMENTS = [
    "y = [1, 2]\n    y.append(3)\n    y.insert(0, a)\n    y.reverse()\n    y.extend([7])\n    y.pop(0)\n    y[1] = 9",
    "y = [3, 1, 2]\n    y.sort()\n    z = y.copy()\n    z.clear()\n    y.remove(3)\n    y += [4]\n    del y[0]",
    "d = {'a': 1}\n    d['b'] = 2\n    d.update({'c': 3})\n    d.pop('a')\n    y = list(d.values())",
    "y = [0]\n    for i in range(5):\n        if i == 1:\n            continue\n        if i == 4:\n            break\n"
    "        y.append(i)",
    "y = [0]\n    while len(y) < a:\n        y.append(len(y))\n    print(y)",
]


@pytest.mark.parametrize("statements", STATEMENTS)
def test_statements(statements):
    script = torch.jit.CompilationUnit(f"def f(a: int):\n    {statements}\n    return y\n").f
    assert scripted_module(script)(4) == script(4)


def test_arithmetic_of_scalar_tensors_is_exact():
    seven, two = ScalarTensor(7, torch.int64), ScalarTensor(2, torch.int32)
    for kind, number in {"add": 9, "sub": 5, "mul": 14, "floor_divide": 3, "remainder": 1, "div": 3.5}.items():
        found = NUMBER_TENSOR_OPERATORS[f"aten::{kind}"](seven, two)
        expected = getattr(torch, kind)(torch.tensor(7), torch.tensor(2, dtype=torch.int32))
        assert (found.number, found.dtype) == (number, expected.dtype)
    assert all(callable(function) for function in PYTHON_OPERATORS.values())
