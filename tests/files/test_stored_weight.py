"""A weight in a safetensors file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir

from fx_onnx.files.stored_weight import StoredWeight


def test_values_names_and_runs(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32)
    (tmp_path / "w.bin").write_bytes(b"head" + values.tobytes())
    shape = ir.Shape((3, 2), frozen=True)
    weight = StoredWeight("w.bin", 4, 24, ir.DataType.FLOAT, shape=shape, name="w", base_dir=tmp_path)
    assert weight.numpy().tolist() == [[0, 1], [2, 3], [4, 5]]
    assert weight.named("v").name == "v"
    assert weight.run(2, (2, 2), "part").numpy().tolist() == [[2, 3], [4, 5]]
