"""Compares a program with the TorchScript model that it was exported from."""

import torch
from torch.utils import _pytree as pytree


def agree(model, program, *args):
    """Checks that the program and the TorchScript model return the same for the arguments."""
    expected = pytree.tree_leaves(model(*args))
    for value, found in zip(expected, program(*args), strict=False):
        wanted = torch.as_tensor(value, dtype=None if isinstance(value, torch.Tensor) else found.dtype).detach()
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
