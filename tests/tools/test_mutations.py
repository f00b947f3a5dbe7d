"""The tool that damages files: its mutations are repeatable, and its watch sees what leaves the folder."""

from __future__ import annotations

import io
import json
import random
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tools import mutations

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify and /proc are of Linux")


def _files() -> dict[str, bytes]:
    array, archive = io.BytesIO(), io.BytesIO()
    np.save(array, np.arange(6))
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("model/data.pkl", b"12 weights.bin")
    return {"npy": array.getvalue(), "index": json.dumps({"a": [1, "x"]}).encode(), "pt2": archive.getvalue()}


@pytest.mark.parametrize("kind", ["npy", "index", "pt2"])
def test_a_number_makes_a_file_again(kind: str) -> None:
    valid = _files()[kind]
    made = [mutations.make(kind, number, valid) for number in range(40)]
    assert made == [mutations.make(kind, number, valid) for number in range(40)]
    assert len({*made}) > 30


def test_a_changed_member_has_a_right_checksum() -> None:
    changed = [mutations._in_archive(_files()["pt2"], random.Random(seed)) for seed in range(8)]
    assert all(zipfile.ZipFile(io.BytesIO(each)).testzip() is None for each in changed)


def test_a_message_keeps_its_form() -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[2] x) => (float[2] y) {y = Relu(x)}'
    )
    valid = model.SerializeToString()
    changed = [mutations.mutated_message(valid, random.Random(seed)) for seed in range(20)]
    assert all(isinstance(onnx.ModelProto.FromString(each), onnx.ModelProto) for each in changed)
    assert len({*changed}) > 10


def test_the_watch_sees_what_leaves_the_folder(tmp_path: Path) -> None:
    folder, outside = tmp_path / "model", tmp_path / mutations.OUTSIDE
    folder.mkdir()
    outside.mkdir()
    (outside / "secret.bin").write_bytes(b"1")
    watch = mutations.Watch(folder, outside)
    with watch.watching() as used:
        (folder / "a.txt").write_text("1", encoding="utf-8")
    assert used == []
    with watch.watching() as used:
        np.fromfile(folder / ".." / mutations.OUTSIDE / "secret.bin", np.uint8)
    assert used[-1] == f"the folder {mutations.OUTSIDE}"
    with watch.watching() as used:
        (tmp_path / "b.txt").write_text("1", encoding="utf-8")
    assert used == [f"open {tmp_path / 'b.txt'}"]
