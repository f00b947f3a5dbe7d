"""Decompositions of histograms against torch."""

import pytest
import torch

from fx_onnx.decompositions.histogram import (
    histc,
    histogram,
    histogram_of_count,
    histogramdd,
    histogramdd_bin_edges,
)


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_histogram(density: bool, weighted: bool) -> None:
    x = torch.randn(3, 20)
    options = {"weight": torch.rand(3, 20) if weighted else None, "density": density}
    edges = torch.tensor([-1.0, -0.5, 0.2, 2.0])
    torch.testing.assert_close(histogram(x, edges, **options), tuple(torch.histogram(x, edges, **options)))


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("range", [None, [-1.0, 1.0], [2.0, 2.0]])
def test_histogram_of_count(density: bool, range: list[float] | None) -> None:
    x, weight = torch.randn(3, 20), torch.rand(3, 20)
    options = {"range": range, "weight": weight, "density": density}
    torch.testing.assert_close(histogram_of_count(x, 7, **options), tuple(torch.histogram(x, 7, **options)))


def test_edges_of_no_data() -> None:
    x = torch.randn(0)
    torch.testing.assert_close(histogram_of_count(x, 4), tuple(torch.histogram(x, 4)))
    torch.testing.assert_close(histc(x, 4), torch.histc(x, 4))


@pytest.mark.parametrize("limits", [(0, 0), (-1, 1), (2, 2)])
def test_histc(limits: tuple[float, float]) -> None:
    x = torch.tensor([-1.0, -0.3, 0.0, 0.2, 0.9999, 1.0, 3.0, 2.0])
    torch.testing.assert_close(histc(x, 5, *limits), torch.histc(x, 5, *limits))


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("range", [None, [-1.0, 1.0, -2.0, 2.0]])
def test_histogramdd(density: bool, range: list[float] | None) -> None:
    x, weight = torch.randn(3, 20, 2), torch.rand(3, 20)
    want = torch.histogramdd(x, [4, 5], range=range, weight=weight, density=density)
    edges = histogramdd_bin_edges(x, [4, 5], range=range)
    torch.testing.assert_close(edges, list(want.bin_edges))
    torch.testing.assert_close(histogramdd(x, edges, weight=weight, density=density), want.hist)
