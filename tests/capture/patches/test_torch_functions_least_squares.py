"""torch.linalg.lstsq exports with every driver: more equations than unknowns, fewer, in batches, with dynamic sizes."""

from __future__ import annotations

import pytest
import torch

import fx_onnx


class Solves(torch.nn.Module):
    def __init__(self, driver: str | None) -> None:
        super().__init__()
        self.driver = driver

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.linalg.lstsq(a, b, driver=self.driver))


@pytest.mark.parametrize(
    ("driver", "shape"), [(None, (5, 3)), (None, (2, 3, 5)), ("gels", (4, 3)), ("gelsd", (5, 3)), ("gelss", (3, 3))]
)
def test_all_results_are_those_of_torch(driver: str | None, shape: tuple[int, ...]) -> None:
    a, b, model = torch.randn(shape), torch.randn(*shape[:-1], 2), Solves(driver).eval()
    results = fx_onnx.export(model, (a, b))(a, b)
    for got, expected in zip(results, model(a, b), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    assert torch.linalg.lstsq.__module__ == "torch._C._linalg"


def test_a_batch_of_vectors() -> None:
    a, b, model = torch.randn(2, 4, 3), torch.randn(2, 4), Solves("gelsd").eval()
    results, expected = fx_onnx.export(model, (a, b))(a, b), model(a, b)
    assert expected[1].shape == (2, 1)
    torch.testing.assert_close(results, expected, rtol=1e-4, atol=1e-4)


def test_a_vector_and_a_dynamic_number_of_equations() -> None:
    class Fit(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch.linalg.lstsq(a, b.unsqueeze(-1)).solution.squeeze(-1)

    rows = {0: "rows"}
    program = fx_onnx.export(Fit().eval(), (torch.randn(5, 3), torch.randn(5)), dynamic_shapes=(rows, rows))
    a, b = torch.randn(9, 3), torch.randn(9)
    torch.testing.assert_close(program(a, b)[0], Fit()(a, b), rtol=1e-4, atol=1e-4)
    assert program.model.graph.outputs[0].shape == (3,)


def test_the_shapes_agree_with_torch() -> None:
    """The shape function gives what torch computes."""
    for driver in ("gels", "gelsd", "gelss", "gelsy"):
        for shape, right in (
            ((5, 3), (5, 2)),
            ((3, 5), (3, 1)),
            ((4, 3), (4,)),
            ((2, 4, 3), (2, 4)),
            ((2, 3, 3), (2, 3)),
        ):
            a, b = torch.randn(shape), torch.randn(right)
            fake = torch.ops.fx_onnx.lstsq(a.to("meta"), b.to("meta"), driver=driver)
            real = torch.ops.fx_onnx.lstsq(a, b, driver=driver)
            assert [x.shape for x in fake] == [x.shape for x in real]
