"""Exports an operator of your own: as operators of ONNX, or as one node of a domain that a runtime's extension has."""

import torch

import fx_onnx


@torch.library.custom_op("example::softsign", mutates_args=())
def softsign(x: torch.Tensor, scale: float) -> torch.Tensor:
    """Stands in for a kernel that is written in C++ or CUDA."""
    return x / (scale + x.abs())


@softsign.register_fake
def _(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.empty_like(x)  # the shape and dtype of the result, which torch.export needs


class Model(torch.nn.Module):
    """Calls the operator."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, 8) to (batch, 8)."""
        return softsign(self.linear(x), 2.0)


def as_onnx_operators(op, x, scale):
    """Emits x / (scale + abs(x))."""
    return op.Div(x, op.Add(scale, op.Abs(x)))


def as_one_node(op, x, scale):
    """Emits a node that only a runtime with an extension can run."""
    return op.emit("Softsign", x, domain="example", version=1, scale=scale)


model, x = Model().eval(), torch.randn(2, 8)
for translation in (as_onnx_operators, as_one_node):
    program = fx_onnx.export(model, (x,), custom_translation_table={softsign: translation})
    print(translation.__name__, [f"{node.domain or 'ai.onnx'}.{node.op_type}" for node in program.model.graph])
    if translation is as_onnx_operators:
        torch.testing.assert_close(program(x)[0], model(x))
