"""Tests of the modules that compute the features of images; their results are compared in ``test_images.py``."""

from __future__ import annotations

import torch
from torch.nn import functional

from fx_onnx.applications.genai.image_modules import _corners


def test_the_embedding_of_a_patch_lies_between_those_of_a_table() -> None:
    table = torch.randn(5 * 5, 3)
    for rows, columns in ((4, 6), (1, 2), (9, 5)):
        places = torch.cartesian_prod(torch.arange(rows), torch.arange(columns))
        indices, weights = _corners(places, torch.tensor([rows, columns]).expand(len(places), 2), 5)
        grid = table.T.reshape(1, 3, 5, 5)
        expected = functional.interpolate(grid, (rows, columns), mode="bilinear", align_corners=True)
        found = (table[indices] * weights[..., None]).sum(1)
        torch.testing.assert_close(found, expected.flatten(2)[0].T)
