"""Symbolic numbers have the types of plain numbers for the user's code, and for no other code and thread."""

import collections.abc
import numbers
import threading
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

import fx_onnx
from fx_onnx.capture.patches.number_types import answer_as_plain_numbers
from tests.compare import assert_close

QUESTIONS = {
    "isinstance_float": lambda n: isinstance(n, float),
    "isinstance_int": lambda n: isinstance(n, int),
    "isinstance_tuple": lambda n: isinstance(n, (str, float, int)),
    "isinstance_union": lambda n: isinstance(n, float | str),
    "isinstance_abstract": lambda n: isinstance(n, numbers.Integral),
    "isinstance_bool": lambda n: isinstance(n, bool),
    "isinstance_other": lambda n: isinstance(n, collections.abc.Iterable),
    "isinstance_of_condition": lambda n: isinstance(n > 1, bool) and isinstance(n > 1, int),
    "type_is_float": lambda n: type(n) is float,
    "type_equals_int": lambda n: type(n) == int,  # noqa: E721  the comparison under test
    "type_in": lambda n: type(n) in (int, str),
}


class AsksForTheClass(nn.Module):
    def forward(self, x: Tensor, number: Any) -> Tensor:
        match number:
            case float():
                x = x + 1
            case _:
                x = x + 2
        return x * number if number.__class__ is float else x


def test_a_match_statement_and_the_class_of_a_float() -> None:
    x, model = torch.ones(2), AsksForTheClass().eval()
    program = fx_onnx.export(model, (x, 2.5), dynamic_shapes=(None, Dim.DYNAMIC))
    assert_close(program(x, 3.5), [model(x, 3.5)])
    assert "__getattribute__" not in vars(torch.SymFloat)


class Answers(nn.Module):
    """Adds a power of two to the input for each question whose answer is yes."""

    def forward(self, x: Tensor, number: Any) -> Tensor:
        for i, question in enumerate(QUESTIONS.values()):
            for n in (number, x.shape[0]):
                if question(n):
                    x = x + 2**i
        return x * number


def test_dynamic_sizes_integers_and_floats_have_the_types_of_plain_numbers():
    x = torch.ones(3, 2, dtype=torch.float64)
    for number in (2.5, 3):
        program = fx_onnx.export(Answers().eval(), (x, number), dynamic_shapes=({0: "rows"}, Dim.DYNAMIC))
        other = torch.ones(5, 2, dtype=torch.float64)
        assert_close(program(other, number + 4), [Answers()(other, number + 4)])


def test_type_is_a_class_that_creates_classes():
    with answer_as_plain_numbers(nn.Identity()):

        class Meta(type):
            pass

        assert isinstance(int, type) and not isinstance(3, type) and isinstance(Meta, (str, type))
        assert type(int) is type and issubclass(Meta, type) and not issubclass(int, type)
        assert type("Named", (int,), {}).__name__ == "Named" and type("text".strip()) is str


def test_other_threads_other_modules_and_later_code_have_the_builtin_functions():
    symbol = torch.export.export(nn.Identity(), (torch.ones(3),), dynamic_shapes=((({0: Dim.AUTO}),)))
    (size,) = next(iter(symbol.graph.nodes)).meta["val"].shape
    answers: list[Any] = []

    def ask() -> None:
        answers.extend([isinstance(size, int), type(size)])

    with answer_as_plain_numbers(nn.Identity()):
        ask()
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        assert not {"isinstance", "type"} & (vars(torch).keys() | vars(threading).keys())
    ask()
    assert answers == [True, int, False, torch.SymInt, False, torch.SymInt]
    assert not {"isinstance", "type"} & globals().keys()


def test_a_class_without_an_imported_module_is_included():
    namespace: dict[str, Any] = {"nn": nn, "__name__": "unknown"}
    exec("class Model(nn.Module):\n    def forward(self, n): return isinstance(n, int)", namespace)
    with answer_as_plain_numbers(namespace["Model"]()):
        assert "isinstance" in namespace
    assert "isinstance" not in namespace
