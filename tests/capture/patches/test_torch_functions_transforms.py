"""Transforms of torch.func inside forward export with dynamic dims; one within vmap is refused in a sentence."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap

import fx_onnx
from fx_onnx.capture.patches import torch_functions
from fx_onnx.capture.patches.patching import apply_patches
from tests.capture.sample_modules import Function
from tests.compare import assert_close


def cubes(x: Tensor) -> Tensor:
    """Returns the sum of the cubes."""
    return (x**3).sum()


def columns(x: Tensor) -> Tensor:
    """(rows, columns) to (columns,)."""
    return (x**2).sum(0)


TRANSFORMS = {
    "grad": lambda x: grad(cubes)(x),
    "grad of two arguments": lambda x: grad(lambda y, z: (y * z**2).sum(), argnums=(0, 1))(x, x + 1),
    "grad with results": lambda x: grad(lambda y: (cubes(y), y + 1), has_aux=True)(x),
    "grad with an outer value": lambda x: grad(lambda y: (y * x).sum())(x),
    "grad of grad": lambda x: grad(lambda y: cubes(grad(cubes)(y)))(x),
    "grad_and_value": lambda x: grad_and_value(cubes)(x),
    "vjp": lambda x: vjp(torch.sin, x)[1](torch.ones_like(x)),
    "jvp": lambda x: jvp(torch.sin, (x,), (torch.ones_like(x),)),
    "jvp of a linear function": lambda x: jvp(lambda y: 2 * y, (x,), (x,)),
    "jvp of a constant": lambda x: jvp(lambda y: y.detach() * 2, (x,), (x,)),
    "jvp of grad": lambda x: jvp(grad(cubes), (x,), (torch.ones_like(x),)),
    "jacrev": lambda x: jacrev(columns)(x),
    "jacrev with dynamic results": lambda x: jacrev(torch.sin)(x),
    "jacfwd": lambda x: jacfwd(columns)(x),
    "vmap to the last axis": lambda x: vmap(torch.sin, in_dims=1, out_dims=-1)(x),
    "vmap of two results": lambda x: vmap(lambda y: (y.outer(y), y.sum()), out_dims=(1, 0))(x),
    "vmap to axis 1": lambda x: vmap(lambda y: y @ x.T, out_dims=1)(x),
}


@pytest.mark.parametrize("function", TRANSFORMS.values(), ids=TRANSFORMS)
def test_transforms(function: object) -> None:
    program = fx_onnx.export(Function(function).eval(), (torch.rand(3, 4),), dynamic_shapes=({0: "rows"},))
    for rows in (3, 5):
        x = torch.rand(rows, 4)
        assert_close(program(x), torch.utils._pytree.tree_leaves(function(x)))


def test_hessian() -> None:
    x = torch.rand(2, 3)
    program = fx_onnx.export(Function(lambda x: hessian(cubes)(x)).eval(), (x,))
    assert_close(program(x), hessian(cubes)(x))


class Made(nn.Module):
    """Makes the transform before the capture."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(4))
        self.grad = grad(lambda x: ((x * self.scale) ** 2).sum())

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 4) to (rows, 4)."""
        return self.grad(x)


def test_a_transform_made_before_the_capture() -> None:
    module = Made().eval()
    program = fx_onnx.export(module, (torch.rand(3, 4),), dynamic_shapes=({0: "rows"},))
    x = torch.rand(5, 4)
    assert_close(program(x), module(x))


@pytest.mark.parametrize("function", [lambda x: vmap(grad(cubes))(x), lambda x: vmap(jacrev(torch.sin))(x)])
def test_a_transform_within_vmap_is_refused(function: object) -> None:
    with pytest.raises(
        fx_onnx.CaptureError, match=r"within vmap cannot be captured \(.*test_torch_functions_transforms.py:"
    ):
        fx_onnx.export(Function(function).eval(), (torch.rand(3, 4),))
    assert torch._C._functorch.peek_interpreter_stack() is None


def test_the_wrappers_are_replaced_together_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    transforms = torch._functorch.eager_transforms
    wrap, create = transforms._wrap_all_tensors, transforms._create_differentiable
    with apply_patches(torch_functions.PATCHES):
        with transforms.grad_increment_nesting():
            assert transforms._wrap_all_tensors is not wrap and transforms._create_differentiable is not create
        assert transforms._wrap_all_tensors is wrap
    monkeypatch.delattr(transforms, "_wrap_all_tensors")
    with apply_patches(torch_functions.PATCHES), transforms.grad_increment_nesting():
        assert transforms._create_differentiable is create
