"""The first export of a process imports the translations of recurrences, whatever its dtype, opset and target."""

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import sys, torch, fx_onnx, fx_onnx.torch_internals.custom_ops
name, sizes, number, dtype, opset = sys.argv[1], eval(sys.argv[2]), eval(sys.argv[3]), sys.argv[4], int(sys.argv[5])
class Call(torch.nn.Module):
    def forward(self, *tensors):
        return getattr(torch.ops.fx_onnx, name)(*tensors, *number)
args = tuple(None if each is None else torch.rand(each, dtype=getattr(torch, dtype)) for each in sizes)
assert "fx_onnx.libraries.recurrences" not in sys.modules
program = fx_onnx.export(Call(), args, opset_version=opset, verbose=False)
want = Call()(*args)
got = program(*(each for each in args if each is not None))
torch.testing.assert_close(got, (want,) if isinstance(want, torch.Tensor) else want, rtol=1e-4, atol=1e-5)
"""


@pytest.mark.parametrize(
    ("name", "sizes", "number", "dtype", "opset"),
    [
        ("linear_attention", [(1, 3, 2, 4)] * 3 + [(1, 3, 2), None, (1, 2, 4, 4)], (0.5,), "float32", 20),
        ("linear_attention", [(1, 3, 2, 4)] * 3 + [(1, 3, 2), None, (1, 2, 4, 4)], (0.5,), "float64", 20),
        ("causal_conv1d", [(2, 3, 5), (3, 4), None, None], (), "float32", 20),
        ("rwkv", [(4,), (4,), (1, 3, 4), (1, 3, 4), (1, 4), (1, 4), (1, 4)], (), "float32", 18),
    ],
)
def test_the_first_export(name: str, sizes: object, number: object, dtype: str, opset: int) -> None:
    command = [sys.executable, "-W", "ignore", "-c", CODE, name, repr(sizes), repr(number), dtype, str(opset)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
