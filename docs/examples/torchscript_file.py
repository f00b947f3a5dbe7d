"""Exports a TorchScript file, of which no Python code is needed: the loop on data becomes a Loop."""

import torch

import fx_onnx


class Decoder(torch.nn.Module):
    """Repeats a layer as often as the second argument says."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        """(batch, 4) and () to (batch, 4)."""
        for _ in range(int(steps)):
            x = torch.tanh(self.linear(x))
        return x


torch.jit.script(Decoder().eval()).save("decoder.pt")  # someone else wrote this file

model = torch.jit.load("decoder.pt")
program = fx_onnx.export(
    model,
    (torch.randn(2, 4), torch.tensor(3)),
    dynamic_shapes={"x": {0: "batch"}, "steps": None},
)
print(program)
print([node.op_type for node in program.model.graph])

for steps in (0, 1, 10):
    args = (torch.randn(5, 4), torch.tensor(steps))
    torch.testing.assert_close(program(*args)[0], model(*args), rtol=1e-4, atol=1e-5)
    print(f"{steps} steps: right")
