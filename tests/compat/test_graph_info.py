"""find_mismatch: the smallest part that differs, the tree, and the files of a part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.compat.graph_info import find_mismatch
from fx_onnx.verification import VerificationOptions

X = torch.randn(2, 6)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Any:
        x = x.clone()
        x[:, 0].add_(1.0)  # a write in place
        left, right = self.first(x).chunk(2, 1)
        y = torch.cond(left.sum() > 0, lambda a: a + 1, lambda a: a - 1, (left,))
        return self.second(torch.selu(y) + right.sigmoid()).tanh()


@pytest.fixture
def wrong_selu() -> Iterator[None]:
    fx_onnx.register_custom_op_symbolic("aten::selu", lambda g, x: g.op("Elu", x), 9)
    yield
    fx_onnx.unregister_custom_op_symbolic("aten::selu", 9)


def test_a_model_that_agrees(capsys: pytest.CaptureFixture[str]) -> None:
    found = find_mismatch(Net(), (X,))
    assert not found.has_mismatch()
    assert found.all_mismatch_leaf_graph_info() == []
    assert found.upper_graph_info is None
    found.pretty_print_mismatch()
    assert capsys.readouterr().out == "No part differs.\n"


@pytest.mark.usefixtures("wrong_selu")
def test_the_operator_that_differs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    module = Net().train()
    found = find_mismatch(module, X, options=VerificationOptions(rtol=1e-4, atol=1e-5), verbose=True)
    assert module.training
    (leaf,) = found.all_mismatch_leaf_graph_info()
    assert leaf.essential_node_kinds() == {"aten.selu.default"}
    assert (leaf.essential_node_count(), len(leaf.input_args), len(leaf.pt_outs)) == (1, 1, 1)
    assert found.find_partition(leaf.id) is leaf
    assert found.find_partition("no") is None
    tree = capsys.readouterr().out
    assert tree.startswith(f"whole: {found.essential_node_count()} calls, differs\n  0: ")
    assert f"{leaf.id}: aten.selu.default, differs" in tree
    found.pretty_print_mismatch(graph=True)
    text = capsys.readouterr().out
    assert f"{leaf.id}: aten.selu.default" in text
    assert "graph():" in text
    _check_repro(Path(leaf.export_repro(tmp_path, "selu")), leaf)
    found.clear()
    assert not found.has_mismatch()


def _check_repro(folder: Path, leaf: Any) -> None:
    assert folder.name == "test_selu"
    arrays = {
        kind: onnx.numpy_helper.to_array(onnx.load_tensor(folder / "test_data_set_0" / f"{kind}_0.pb"))
        for kind in ("input", "output")
    }
    np.testing.assert_array_equal(arrays["output"], leaf.pt_outs[0].numpy())
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: arrays["input"]})
    assert not np.allclose(found, arrays["output"], rtol=1e-4, atol=1e-5)
