"""benchmarks/cuda.py without a GPU: small networks on the CPU, and what would be copied to a GPU."""

from __future__ import annotations

import pytest

from benchmarks import cuda
from tests.passes.checking import model


@pytest.mark.parametrize(
    ("nodes", "copied"),
    [
        ("r = Range(zero, n, one) c = Cast<to=1>(r) y = Add(x, c)", ["c"]),
        ("m = Mul(n, one) s = Unsqueeze(m, axes) y = Reshape(x, s)", []),
        ("c = Cast<to=10>(n) h = Cast<to=10>(x) m = Add(h, c) y = Cast<to=1>(m)", ["c"]),
        ("c = Cast<to=10>(n) m = Mul(c, half) w = Cast<to=1>(m) y = Add(x, w)", ["c"]),
    ],
)
def test_copies(nodes: str, copied: list[str]) -> None:
    """Sizes are read on the CPU; a node with a constant of 16 bits runs on the GPU."""
    constants = "<int64 zero = {0}, int64 one = {1}, int64[1] axes = {0}, float16 half = {1}>"
    text = f"g (float[N] x) => (float[N] y) {constants} {{ t = Shape(x) n = Squeeze(t, axes) {nodes} }}"
    assert cuda.copies(model(text)) == copied


def test_a_dry_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A dynamic decoder computes nothing on the CPU if its mask has four axes and its positions are given."""
    monkeypatch.setattr("sys.argv", ["cuda", "--dry-run", "--networks", "llama", "--opsets", "18,23"])
    cuda.main()
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if "fx_onnx" in line]
    assert len(rows) == 4
    assert all(float(row[3]) < 1e-5 and row[5].strip(" |") == "0" for row in rows)
