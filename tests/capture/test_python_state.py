"""An attribute that the forward changes is a finding if later results depend on it."""

from __future__ import annotations

import random
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from tests.compare import assert_close


class Counting(nn.Module):
    def __init__(self, uses: bool) -> None:
        super().__init__()
        self.calls, self.uses = 0, uses

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls if self.uses else x * 2


class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + 1


class Sizes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.height = 3

    def forward(self, x: Tensor) -> Tensor:
        self.height = x.shape[0]
        return x.reshape(self.height, -1)


class Buffer(nn.Module):
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.count = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.count += 1
        return x * self.calls


class InDict(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state: dict[str, int] = {}

    def forward(self, x: Tensor) -> Tensor:
        self.state["calls"] = self.state.get("calls", 0) + 1
        return x * self.state["calls"]


class InList(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state = [0, 3.0]

    def forward(this, x: Tensor) -> Tensor:
        this.state[0] += 1
        return x * this.state[0]


class Appended(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.state.append(2)
        return x * len(self.state)


class InTuple(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state = (0, "name")

    def forward(self, x: Tensor) -> Tensor:
        self.state = (self.state[0] + 1, "name")
        return x * self.state[0]


class Assigned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state = torch.zeros(2)

    def forward(self, x: Tensor) -> Tensor:
        self.state = self.state + x
        return self.state * 2


class ComputedOnce(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.state is None:
            self.state = x.sum()
        return x * self.state


class Longer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state = "a"

    def forward(self, x: Tensor) -> Tensor:
        self.state += "b"
        return x * len(self.state)


class New(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "state"):
            self.state, self.called = torch.zeros(2), True
        self.state = self.state + x
        return x - self.state


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state: dict[str, list[dict[str, int]]] = {"a": [{"b": 1}]}

    def forward(self, x: Tensor) -> Tensor:
        self.state["a"][0]["b"] += 1
        return x * self.state["a"][0]["b"]


class InSet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state: set[int] = set()

    def forward(self, x: Tensor) -> Tensor:
        self.state.add(len(self.state))
        return x * len(self.state)


class InDeque(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state = deque([1.0], maxlen=2)

    def forward(self, x: Tensor) -> Tensor:
        self.state.append(self.state[-1] + 1)
        return x * self.state[0]


class Positions(nn.Module):
    """Computes a table once, which does not depend on the data, and keeps the last result."""

    def __init__(self) -> None:
        super().__init__()
        self.table: Tensor | None = None
        self.last = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        if self.table is None:
            self.table = torch.arange(x.shape[-1])
        self.last = x * self.table
        return self.last


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state, self.calls = torch.zeros(2), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.state.add_(x) + x


class Recorded(nn.Module):
    """Stores sizes and results, on which no later result depends."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[str, int] = {}
        self.results: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.sizes["rows"] = x.shape[0]
        self.results.append(x)
        return x.reshape(self.sizes["rows"], -1)


def test_a_number_on_which_the_results_depend() -> None:
    model = Outer(Counting(uses=True)).eval()
    with pytest.warns(
        fx_onnx.OnnxExporterWarning, match=r"'calls' of inner \(Counting\), on .*: self\.calls \+= 1\);.*FX1117"
    ):
        program = fx_onnx.export(model, (torch.ones(2),))
    assert [finding.id for finding in program.findings] == ["FX1117"]
    (place,) = [finding.place for finding in program.findings]
    assert place.endswith(f"test_python_state.py:{Counting.forward.__code__.co_firstlineno + 1}")


@pytest.mark.parametrize("model", [InDict, InList, Appended, InTuple, Nested, InSet, InDeque])
def test_a_number_in_a_list_a_tuple_or_a_dict(model: type[nn.Module]) -> None:
    with pytest.warns(fx_onnx.OnnxExporterWarning, match=r"changes a Python number in 'state' of"):
        program = fx_onnx.export(Outer(model()).eval(), (torch.ones(2),))
    assert [finding.id for finding in program.findings] == ["FX1117"]
    (place,) = [finding.place for finding in program.findings]
    assert place.endswith(f"test_python_state.py:{model.forward.__code__.co_firstlineno + 1}")


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (Assigned, "the tensor 'state'"),
        (ComputedOnce, "the tensor 'state'"),
        (Longer, "the Python value 'state'"),
        (New, "the tensor 'state'"),
    ],
)
def test_a_tensor_or_a_string(model: type[nn.Module], kind: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = fx_onnx.export(Outer(model()).eval(), (torch.arange(2.0),))
    (finding,) = program.findings
    assert finding.id == "FX1117" and f"The forward changes {kind} of inner ({model.__name__})" in finding.text
    assert [str(each.message) for each in caught] == [f"{finding.text} [fx-onnx explain FX1117]"]  # and none of torch
    assert finding.place.split(":")[0].endswith("test_python_state.py")


class CountsInPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls, self.more = torch.zeros(2), [torch.zeros(2)]

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        self.more[0] += 2
        return x + self.calls * self.more[0]


COUNTS = {"calls": 0}
TOTAL = 0


class Counter:
    def __init__(self) -> None:
        self.value = 0


class InArray(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state = np.zeros(2)

    def forward(self, x: Tensor) -> Tensor:
        self.state[0] += 1
        return x * float(self.state[0])


class InObject(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state = Counter()

    def forward(self, x: Tensor) -> Tensor:
        self.state.value += 1
        return x * self.state.value


class InClass(nn.Module):
    state = 0

    def forward(self, x: Tensor) -> Tensor:
        InClass.state += 1
        return x * self.state


class InGlobalDict(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        COUNTS["calls"] += 1
        return x * COUNTS["calls"]


class InGlobalNumber(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        global TOTAL  # noqa: PLW0603
        TOTAL += 1
        return x * TOTAL


class InIterator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state = iter([1, 2, 3, 4, 5, 6, 7, 8])

    def forward(self, x: Tensor) -> Tensor:
        return x * next(self.state)


class NewNumber(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        self.state = getattr(self, "state", 0) + 1
        return x * self.state


class FromTheThirdCall(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state = 0

    def forward(self, x: Tensor) -> Tensor:
        self.state += 1
        return x if self.state < 4 else x * 2


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (InArray, "the NumPy array 'state' of inner (InArray)"),
        (InObject, "a Python number in 'state' of inner (InObject)"),
        (InClass, "the Python number 'state' of the class InClass"),
        (InGlobalDict, f"a Python number in 'COUNTS' of {__name__} (InGlobalDict)"),
        (InGlobalNumber, f"the Python number 'TOTAL' of {__name__} (InGlobalNumber)"),
        (InIterator, "a Python number in 'state' of inner (InIterator)"),
        (NewNumber, "the Python number 'state' of inner (NewNumber)"),
        (FromTheThirdCall, "the Python number 'state' of inner (FromTheThirdCall)"),
    ],
)
def test_values_in_other_places(model: type[nn.Module], what: str) -> None:
    with pytest.warns(fx_onnx.OnnxExporterWarning, match="FX1117"):
        program = fx_onnx.export(Outer(model()).eval(), (torch.ones(2),))
    (finding,) = program.findings
    assert finding.text.startswith(f"The forward changes {what}, on which the results of the next call may depend")
    assert finding.place.startswith(f"{__file__}:")


class Random(nn.Module):
    def __init__(self, draw: Callable[[], float]) -> None:
        super().__init__()
        self.draw = draw

    def forward(self, x: Tensor) -> Tensor:
        number = self.draw()
        return x * number if self.training else x


@pytest.mark.parametrize("draw", [random.random, np.random.rand])
def test_numbers_of_random_generators(draw: Callable[[], float]) -> None:
    model, name = Random(draw), "random" if draw is random.random else "numpy.random"
    with pytest.warns(fx_onnx.OnnxExporterWarning, match=f"may depend on numbers of {name}, and .*FX1117"):
        fx_onnx.export(model.train(), (torch.ones(2),), training=fx_onnx.TrainingMode.PRESERVE)


def test_a_write_that_depends_on_no_input_starts_from_the_value_before_the_export() -> None:
    model = CountsInPlace().eval()
    program = fx_onnx.export(model, (torch.ones(2),))
    assert (model.calls.tolist(), model.more[0].tolist()) == ([0, 0], [0, 0])
    program.state = {}
    results = [program(torch.ones(2))[0].tolist() for _ in range(3)]
    assert results == [model(torch.ones(2)).tolist() for _ in range(3)] == [[3, 3], [9, 9], [19, 19]]


def test_a_write_into_a_large_tensor_is_refused() -> None:
    model = CountsInPlace().eval()
    model.calls = torch.zeros(2**20 + 1)
    with pytest.raises(fx_onnx.CaptureError, match=r"the tensor 'calls' of CountsInPlace.*register it as a buffer"):
        fx_onnx.export(model, (torch.ones(1),))


def test_attributes_that_the_forward_creates_are_removed() -> None:
    model = New().eval()
    with pytest.warns(fx_onnx.OnnxExporterWarning, match="FX1117"):
        fx_onnx.export(model, (torch.ones(2),))
    assert not hasattr(model, "state") and not hasattr(model, "called")


class Deep(nn.Module):
    def __init__(self, truncates: bool) -> None:
        super().__init__()
        self.state: Any = {"a": [({"b": [[1]]},)]}
        self.truncates = truncates

    def forward(self, x: Tensor) -> Tensor:
        self.state["a"][0][0]["b"][0].append(len(self.state["a"]))
        self.state["a"].append(1)
        return x[: int(x.shape[0] * 0.7)] if self.truncates else x + 1


@pytest.mark.parametrize("strict", [False, True])
def test_containers_are_the_same_objects_with_the_same_items(strict: bool) -> None:
    model = Deep(truncates=strict).eval()
    outer, inner = model.state, model.state["a"][0][0]["b"][0]
    program = fx_onnx.export(model, (torch.ones(5),), dynamic_shapes=({0: "n"},))
    notes = {stage.name: stage.note for stage in program.export_facts.stages}
    assert ("strict mode" in notes["capture"]) is strict
    assert model.state is outer and model.state["a"][0][0]["b"][0] is inner
    assert model.state == {"a": [({"b": [[1]]},)]}


def test_a_tensor_that_is_written_in_place_is_a_state_and_stays_as_it_was() -> None:
    model = Outer(InPlace()).eval()
    program = fx_onnx.export(model, (torch.ones(2),))
    assert program.findings == []
    assert [value.name for value in program.model.graph.outputs][1:] == ["inner.state_out"]
    assert model.inner.state.tolist() == [0, 0]


@pytest.mark.parametrize(
    "model",
    [Outer(Counting(uses=False)), Sizes(), Buffer(), Recorded(), Positions()],
    ids=["counter", "sizes", "buffer", "sizes in a dict", "a table"],
)
def test_a_number_that_changes_no_result(model: nn.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", fx_onnx.OnnxExporterWarning)
        fx_onnx.export(model.eval(), (torch.ones(2, 4),), dynamic_shapes=({0: "n"},))


def test_weights_without_data() -> None:
    model = Outer(Counting(uses=True)).eval().to("meta")
    with pytest.warns(fx_onnx.OnnxExporterWarning, match=r"'calls' of inner \(Counting\)"):
        fx_onnx.export(model, (torch.ones(2, device="meta"),))


def test_a_buffer_of_packed_floats() -> None:
    """torch copies such numbers, but does not compare them."""
    model = nn.Linear(2, 2).eval()
    model.register_buffer("packed", torch.zeros(3, dtype=torch.uint8).view(torch.float4_e2m1fn_x2))
    fx_onnx.export(model, (torch.ones(1, 2),))
    model.register_forward_hook(lambda module, args, result: (result, module.packed))
    packed = fx_onnx.export(model, (torch.ones(1, 2),))(torch.ones(1, 2))[1]
    assert torch.equal(packed, torch.zeros(3, dtype=torch.uint8))


class Endless(tuple[int, ...]):
    def __len__(self) -> int:
        raise NotImplementedError


def test_a_container_whose_length_raises() -> None:
    model = Sizes()
    model.numbers = Endless([1, 2])  # type: ignore[assignment]
    assert not fx_onnx.export(model.eval(), (torch.ones(2, 3),)).findings


class Replaced(nn.Module):
    def __init__(self, uses: bool) -> None:
        super().__init__()
        self.inner, self.uses = nn.Sequential(nn.Hardtanh(), nn.Dropout(0.5)), uses

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x) if self.uses else x
        self.inner = nn.Sequential(nn.ReLU(), nn.Dropout(0.25))
        return y


def test_a_module_that_the_forward_replaces_is_one_change() -> None:
    (finding,) = fx_onnx.export(Outer(Replaced(True)).eval(), (torch.ones(2),)).findings
    assert finding.text.startswith("The forward changes the module 'inner' of inner (Replaced), on which")
    assert finding.text.endswith("Replace the module before the export.")
    assert not fx_onnx.export(Outer(Replaced(False)).eval(), (torch.ones(2),)).findings


class Shared(torch.nn.Module):
    """Has one module under two names, for which torch.export calls proxies."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function, self.activation, self.calls = function, torch.nn.ReLU(), 0
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 3), self.activation)
        self.register_buffer("is_ready", torch.tensor(False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Calls the function with the module."""
        return self.function(self, self.layers(self.activation(x)))


def _counts(module: Any, x: torch.Tensor) -> torch.Tensor:
    module.calls += 1
    return x + module.calls


def _changes_what_it_read(module: Any, x: torch.Tensor) -> torch.Tensor:
    x = x if module.is_ready else x * 2
    module.is_ready.fill_(True)
    return x


def _branches(module: Any, x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 2 else x * 2


def test_a_module_under_two_names_is_watched() -> None:
    x = torch.rand(2, 3)
    with pytest.warns(fx_onnx.OnnxExporterWarning, match="The forward changes the Python number 'calls' of Shared"):
        fx_onnx.export(Shared(_counts).eval(), (x,))
    with pytest.raises(fx_onnx.CaptureError, match=r"branches on the value of 'is_ready'.* and changes it later"):
        fx_onnx.export(Shared(_changes_what_it_read).eval(), (x,))
    module = Shared(_branches).eval()
    program = fx_onnx.export(module, (x,))
    for given in (x, x * 100, x - 100):
        assert_close(program(given), module(given))
