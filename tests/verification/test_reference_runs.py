"""Both sides run on copies of the arguments, without the buffers that an earlier call left."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.messages.errors import ArgumentError, VerificationError
from fx_onnx.verification.reference_runs import copied, expected_outputs, lifted_arguments, onnx_runner


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return x * self.scale + self.count


def exported(module: nn.Module) -> tuple[fx_onnx.ONNXProgram, torch.export.ExportedProgram]:
    program = fx_onnx.export(module.eval(), (torch.ones(2),))
    assert program.exported_program is not None
    return program, program.exported_program


@pytest.mark.parametrize("provider", [None, "CPUExecutionProvider"])
def test_each_run_starts_with_the_buffers_of_the_export(provider: str | None) -> None:
    program, _ = exported(Counter())
    program.state = {}
    program(torch.ones(2))
    run = onnx_runner(program, provider)
    for _ in range(2):
        assert run(torch.ones(2))[0].tolist() == [2, 2]
    assert program.state["count"].item() == 1  # the user's state is as before
    assert run(torch.zeros(2))[1].item() == 1


def test_a_provider_that_is_absent() -> None:
    with pytest.raises(ArgumentError, match=r"no provider 'NoProvider'.*CPUExecutionProvider"):
        onnx_runner(exported(Counter())[0], "NoProvider")


def test_the_module_and_its_buffers_are_as_before() -> None:
    module = Counter()
    _, program = exported(module)
    results, state = expected_outputs(program, (torch.ones(2),), {}, module)
    assert results[0].tolist() == [2, 2] and state["count"].item() == 1
    assert module.count.item() == 0
    with pytest.raises(VerificationError, match="The module returns 2 values, but its capture 1"):
        expected_outputs(program, (torch.ones(2),), {}, lambda x: (x, x))


class WritesWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.weight.mul_(0.5)
        return x * self.weight


class Renormalizes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3, max_norm=0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.embedding(x.long())


@pytest.mark.parametrize("model", [WritesWeight, Renormalizes])
def test_weights_that_the_forward_writes_are_as_before(model: type[nn.Module]) -> None:
    module = model()
    (before,) = (weight.detach().clone() for weight in module.parameters())
    program, _ = exported(module)
    assert program.verify() and program.verify(torch.zeros(2))
    (weight,) = module.parameters()
    assert torch.equal(weight, before)


class Steps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step = 1

    def forward(self, x: Tensor) -> Tensor:
        self.step += 1
        return x * self.step


class Kept(Steps):
    """Keeps its numbers in lists in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, list[int]] = {"steps": [1]}

    def forward(self, x: Tensor) -> Tensor:
        self.kept["steps"].append(1)
        return x * sum(self.kept["steps"])


STEPS = {"Python": Steps(), "a list": Kept(), "TorchScript": nn.Sequential(torch.jit.script(Steps()))}


@pytest.mark.parametrize("module", STEPS.values(), ids=STEPS)
def test_numbers_of_the_module_are_as_before(module: nn.Module) -> None:
    for _ in range(2):
        assert expected_outputs(None, (torch.ones(2),), {}, module)[0][0].tolist() == [2, 2]


def test_copies_share_memory_as_the_originals_do() -> None:
    memory = torch.zeros(4)
    first, second, other = copied((memory[:3], memory[1:], torch.zeros(1)))
    first[1] = 5
    assert second[0] == 5 and memory.sum() == 0 and other.item() == 0


def test_lifted_arguments_copy_all_but_parameters() -> None:
    _, program = exported(Counter())
    scale, count, x = lifted_arguments(program, (torch.ones(2),), {})
    assert scale is program.state_dict["scale"] and count is not program.state_dict["count"] and x.tolist() == [1, 1]
