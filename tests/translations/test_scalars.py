"""Numbers read from tensors."""

import torch

import fx_onnx
from tests.harness import Case, cases, check, f32, i64


def first_rows(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    count = n.item()
    torch._check(count >= 0)
    torch._check(count <= x.shape[0])
    return x[:count] * 2


def ones_of(n: torch.Tensor) -> torch.Tensor:
    count = n.item()
    torch._check(count >= 0)
    return torch.ones(count, 2)


def scaled(x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    return x * factor.item()


@cases(
    [
        Case(first_rows, f32(4, 3), i64(low=2, high=2), dynamic=False),
        Case(ones_of, i64(low=2, high=5)),
        Case(scaled, f32(3), f32()),
        Case(scaled, f32(3), f32(1)),
    ]
)
def test_item(case: Case) -> None:
    check(case)


def test_boolean_as_an_output() -> None:
    """torch represents the boolean as an equation of a symbol; the program returns a 0-d boolean."""

    class Read(torch.nn.Module):
        def forward(self, flag: torch.Tensor) -> bool:
            return flag.item()

    program = fx_onnx.export(Read().eval(), (torch.tensor(True),), verbose=False)
    for flag in (True, False):
        assert torch.equal(program(torch.tensor(flag))[0], torch.tensor(flag))
