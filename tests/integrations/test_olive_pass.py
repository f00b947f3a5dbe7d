"""The pass of Olive: a workflow exports a tiny model, quantizes it and evaluates it."""

from __future__ import annotations

from pathlib import Path

import pytest

olive = pytest.importorskip("olive", reason="olive-ai is not installed; it needs an environment of its own")

SCRIPT = """
import torch
from olive.data.registry import Registry


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))

    def forward(self, x):
        return self.layers(x)


def load(_):
    torch.manual_seed(0)
    return Network().eval()


class Rows(torch.utils.data.Dataset):
    def __init__(self):
        self.rows = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            self.labels = load(None)(self.rows).argmax(-1)

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return {"x": self.rows[index]}, self.labels[index]


@Registry.register_dataset()
def rows(**_):
    return Rows()


@Registry.register_post_process()
def most_likely(outputs, **_):
    return outputs.argmax(-1)
"""


def test_a_workflow_exports_quantizes_and_evaluates(tmp_path: Path) -> None:
    import onnx
    from olive.workflows import run

    from fx_onnx.integrations.olive_pass import package_config

    script = tmp_path / "network.py"
    script.write_text(SCRIPT)
    io = {
        "input_names": ["x"], "input_shapes": [[2, 8]], "input_types": ["float32"], "output_names": ["y"],
        "dynamic_axes": {"x": {"0": "batch"}},
    }  # fmt: skip
    accuracy = {
        "name": "accuracy", "type": "accuracy", "data_config": "rows",
        "sub_types": [{"name": "accuracy_score", "metric_config": {"task": "multiclass", "num_classes": 4}}],
    }  # fmt: skip
    data = {
        "name": "rows", "type": "DataContainer", "user_script": str(script),
        "load_dataset_config": {"type": "rows"}, "pre_process_data_config": {"type": "skip_pre_process"},
        "post_process_data_config": {"type": "most_likely"}, "dataloader_config": {"batch_size": 2},
    }  # fmt: skip
    output = run(
        {
            "input_model": {
                "type": "PyTorchModel", "model_loader": "load", "model_script": str(script), "io_config": io,
            },
            "data_configs": [data],
            "evaluators": {"all": {"type": "OnnxEvaluator", "metrics": [accuracy]}},
            "evaluator": "all",
            "evaluate_input_model": False,
            "passes": {"convert": {"type": "FxOnnxConversion"}, "quantize": {"type": "OnnxDynamicQuantization"}},
            "cache_dir": str(tmp_path / "cache"),
            "output_dir": str(tmp_path / "out"),
        },
        package_config=package_config(),
    )  # fmt: skip
    best = output.get_best_candidate()
    model = onnx.load(best.model_path)
    assert {"DynamicQuantizeLinear", "MatMulInteger"} <= {node.op_type for node in model.graph.node}
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert best.metrics_value["accuracy-accuracy_score"]["value"] >= 0.75
    (exported,) = [path for path in (tmp_path / "cache").rglob("*.onnx") if onnx.load(path).producer_name == "fx_onnx"]
    assert exported.stat().st_size > 0
