"""The target webgpu: its published table, and the forms that it has kernels for."""

import torch

from tests.exporting import exported, operators


def test_a_node_without_a_kernel_is_noted_but_not_refused() -> None:
    program = exported(lambda x: (x > 0).nonzero(), torch.ones(2, 3), target="webgpu")
    assert [each.operator for each in program.supports("webgpu").missing] == ["NonZero"]
    assert exported(lambda x: x.relu() + 1, torch.ones(2, 3), target="webgpu").supports("webgpu").share == 1


def test_a_filled_tensor_of_a_dynamic_size() -> None:
    program = exported(
        lambda x: x.new_full(x.shape, 2.0) + x, torch.ones(2, 3), target="webgpu", dynamic_shapes={"x": {0: "n"}}
    )
    assert "ConstantOfShape" not in operators(program) and program(torch.ones(4, 3))[0].tolist() == [[3.0] * 3] * 4
