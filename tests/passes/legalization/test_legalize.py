"""The legalization stage as a whole."""

import onnx_ir as ir
import torch

import fx_onnx
from fx_onnx.passes.legalization.legalize import LEGALIZATIONS, legalize
from tests.passes.checking import model, run


def test_names_are_unique() -> None:
    """Two legalizations never share a name."""
    assert len({each.name for each in LEGALIZATIONS}) == len(LEGALIZATIONS)


def test_all_passes_run() -> None:
    """One model needs a float64 rewrite, a random draw, a Pad with axes and Casts; after the stage it runs."""
    program = model(
        """g (double[2,3] x, bool[2,3] c, float[1,1,4,4] i) =>
          (double[2,3] e, bool[2,3] w, float[A] r, float[B,C,D,E] p)
          <int64[8] pads = {0,0,1,1,0,0,1,1}> {
            e = Elu(x)
            w = Where(c, c, c)
            r = RandomUniform<shape=[5]>()
            q = Pad(i, pads)
            p = MaxPool<kernel_shape=[3,3]>(q)
          }""",
        opset=23,
    )
    assert legalize(program) is program
    operators = [node.op_type for node in program.graph]
    assert not {"Elu", "RandomUniform"} & set(operators)
    assert operators.count("Cast") >= 3
    x, c, i = torch.randn(2, 3, dtype=torch.float64), torch.rand(2, 3) > 0.5, -torch.rand(1, 1, 4, 4) - 1
    e, w, r, p = run(program, [x, c, i])
    torch.testing.assert_close(e, torch.nn.functional.elu(x))
    assert w.equal(c)
    assert r.shape == (5,)
    torch.testing.assert_close(p, torch.nn.functional.max_pool2d(torch.nn.functional.pad(i, (1, 1, 1, 1)), 3, 1))
    assert isinstance(program, ir.Model)


def test_no_constant_without_a_consumer_stays() -> None:
    """A node in bfloat16 reads the float32 copy of a constant; the bfloat16 one leaves the model, optimized or not."""

    class Clamped(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.where(x > 0.5, x.clamp(-1, 1) ** 2.5, 0.25)

    x = torch.rand(2, 4, dtype=torch.bfloat16)
    for optimize in (False, True):
        program = fx_onnx.export(Clamped().eval(), (x,), optimize=optimize)
        initializers = program.model.graph.initializers.values()
        assert all(value.uses() for value in initializers)
        torch.testing.assert_close(program(x)[0], Clamped()(x))
