"""Equal exports write equal bytes: in several processes with other hash seeds and threads, and in several checkouts.

The first process exports twice, with runs of the modules between.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

MODEL = '''
import torch
from torch import nn


class Decoder(nn.Module):
    """A transformer's layer with a branch, which torch traces twice, and with data-dependent sizes."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 16)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 1)
        self.lstm = nn.LSTM(16, 16)

    def forward(self, ids):
        x = self.layers(self.embed(ids))
        x = torch.cond(x.sum() > 0, lambda x: x.sin() * x.shape[0], lambda x: x.cos() + 1, (x,))
        return self.lstm(x)[0].lerp(x, 0.5), (ids > 3).nonzero()


class Part(nn.Module):
    """Strict mode captures it, because the forward converts a size to a Python number."""

    def forward(self, x):
        return x[: int(0.7 * len(x))] * 2


class FoldedSum(nn.Module):
    """The last bits of a sum of 2**20 numbers depend on how many threads compute it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("values", torch.arange(2**20) * 7919 % 1009 / 1009, persistent=False)

    def forward(self, x):
        return x * (self.values @ self.values) + self.values.norm(3)
'''

SCRIPT = """
import hashlib
import sys
import warnings

import torch
import fx_onnx
from model import Decoder, FoldedSum, Part

warnings.simplefilter("ignore")
threads = torch.get_num_threads()


def export(model, x, *names):
    torch.manual_seed(0)
    return fx_onnx.export(model().eval(), (x,), dynamic_shapes=(dict(enumerate(names)),)).model_proto


ids, x = torch.ones(2, 5, dtype=torch.int64), torch.ones(5, 3)
first = [export(Decoder, ids, "batch", "time"), export(Part, x, "n")]
if sys.argv[2] == "1":
    Decoder()(ids), Part()(x)
    second = [export(Decoder, ids, "batch", "time"), export(Part, x, "n")]
    assert [p.SerializeToString() for p in first] == [p.SerializeToString() for p in second]
folded = export(FoldedSum, x, "n")
assert not any(node.op_type.startswith("Reduce") for node in folded.graph.node)
assert torch.get_num_threads() == threads
for proto in first:
    text = str(proto)
    assert "torch/nn/modules" in text or "int(0.7" in text
    assert "model.py" in text
    assert not any(word in text for word in ("eval_with_key", " at 0x", sys.argv[1], "site-packages"))
for proto in (*first, folded):
    print(hashlib.sha256(proto.SerializeToString()).hexdigest())
"""


def test_equal_exports_write_equal_bytes(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL, encoding="utf-8")
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    processes = []
    for seed in ("1", "2"):
        folder = tmp_path / f"checkout_{seed}"
        folder.mkdir()
        for name in ("model.py", "script.py"):
            shutil.copy(tmp_path / name, folder)
        settings = {**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": seed}
        settings["PYTHONSAFEPATH"] = ""  # the script imports its neighbour
        command = [sys.executable, "script.py", str(tmp_path), seed]
        processes.append(subprocess.Popen(command, cwd=folder, env=settings, stdout=subprocess.PIPE, text=True))
    hashes = [process.communicate()[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert len(hashes[0]) == 3
    assert hashes[0] == hashes[1]
