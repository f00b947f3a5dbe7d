"""Exports a tiny model of each type of transformers that optimum-onnx lists, and compares it with PyTorch.

    python -m benchmarks.application_types --client PYTHON [--only NAME...] [--kept FILE]

PYTHON is the interpreter of an environment with optimum-onnx 0.1.0, which tells its types and their tasks. The parts of
a model are made for each task. Those of one task, of a model with a head if there is one, are exported for the first
layout that has files for them, and compared. docs/applications.md tells the numbers.
"""

import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING, PreTrainedConfig

import fx_onnx
from benchmarks.application_models import command_line, outcomes, sam_config
from benchmarks.isolated import Failed, isolated
from fx_onnx.applications.layouts import LAYOUTS, Layout
from fx_onnx.applications.parts import Part
from fx_onnx.applications.source import find_row
from tests.models.families import FAMILIES, Family
from tests.models.small_configs import IMAGE, small_config

TASKS = {"semantic-segmentation": "image-segmentation", "time-series-forecasting": "time-series"}
"""The names of the client's tasks that are others here."""
PAST = "-with-past"
SECONDS = 150
READ = """
import json
import optimum.exporters.onnx.model_configs
from optimum.exporters.tasks import TasksManager
types = TasksManager._SUPPORTED_MODEL_TYPE
print(json.dumps({name: list(row["onnx"]) for name, row in types.items() if "onnx" in row}))
"""
OVERRIDES: dict[str, dict[str, Any]] = {
    "dpt": {"num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [16] * 4},
    "wav2vec2-conformer": {"vocab_size": 128},
}
"""Sizes of types that the table of families lacks, or that their heads need."""
OWN = {("sam", "feature-extraction"): "mask-generation", ("trocr", "feature-extraction"): "text-generation"}
"""The type and the client's task → the task here, which is another for this type only."""
SOUNDS = {"input_features", "input_values"}


def config_of(model_type: str) -> PreTrainedConfig:
    """Returns the config of a tiny model."""
    if model_type == "sam":
        return sam_config()
    family = _family(model_type)
    if model_type in OVERRIDES or family is None:
        config = small_config(CONFIG_MAPPING[model_type](), OVERRIDES.get(model_type))
    else:
        config = family.config()
    if getattr(config, "pad_token_id", 0) is None:
        config.pad_token_id = 0
    if family is not None and family.size != IMAGE and hasattr(config, "image_size"):
        config.image_size = family.size
    config.architectures = []  # transformers does not take None of a type with several classes for a task
    return config


def _family(model_type: str) -> Family | None:
    return next((each for each in FAMILIES if each.model_type == model_type), None)


def run(model_type: str, tasks: list[str], folder: Path) -> str:
    """Returns the outcome of a type: for how many tasks it has parts, and the largest difference of one export."""
    if model_type not in CONFIG_MAPPING:
        return "unknown to transformers 5"
    try:
        return isolated(partial(_run, model_type, tasks, folder), SECONDS)
    except Failed as error:
        return f"fails: {error}"


def _run(model_type: str, tasks: list[str], folder: Path) -> str:
    made, causes = dict[str, Any](), list[str]()
    for task in tasks:
        try:
            made[task] = _parts(model_type, OWN.get((model_type, task), task))
        except Exception as error:  # the model of transformers may be wrong, too
            causes.append(f"{task}: {str(error).splitlines()[0][:200]}")
    problems = "; ".join(causes)
    if not made:
        return f"fails: {problems}"
    chosen = next((name for name in made if not name.endswith("feature-extraction")), next(iter(made)))
    task, model, given, parts = made[chosen]
    layout = next(name for name, row in LAYOUTS.items() if all(_fits(row, part) for part in parts))
    files = fx_onnx.export_pretrained(model, folder / "out", task=task, layout=layout, inputs=given)
    difference = max(file.difference or 0 for file in files)
    end = f"; {problems}" if problems else ""
    return f"{len(made)} of {len(tasks)} tasks, {task} for {layout}: {difference:.1e}{end}"


def _fits(layout: Layout, part: Part) -> bool:
    return part.name in layout.files or (part.forms != () and layout.form not in part.forms)


def _parts(model_type: str, task: str) -> tuple[str, Any, dict[str, torch.Tensor], list[Part]]:
    """Returns a task, a model, the sounds that its feature extractor would make, and its parts."""
    config, family = config_of(model_type), _family(model_type)
    _, row = find_row(config, task, None)
    torch.manual_seed(0)
    model = getattr(transformers, row.auto).from_config(config).eval()
    made = family.inputs(model, 2, family.size) if family and family.kind in ("spectrogram", "transcription") else {}
    given = {name: made[name] for name in made if name in SOUNDS}
    return task, model, given, row.parts(model, row.outputs, given)


def main() -> None:
    """Prints the outcomes."""
    parser = command_line(__doc__)
    parser.add_argument("--client", required=True, help="the Python interpreter with optimum-onnx")
    options = parser.parse_args()
    done = subprocess.run([options.client, "-c", READ], capture_output=True, text=True, check=True)
    listed = json.loads(done.stdout.strip().splitlines()[-1])
    types = {
        name: list(dict.fromkeys(TASKS.get(each.removesuffix(PAST), each.removesuffix(PAST)) for each in tasks))
        for name, tasks in sorted(listed.items())
        if not options.only or name in options.only
    }
    outcomes({name: partial(run, name, tasks) for name, tasks in types.items()}, options.kept)


if __name__ == "__main__":
    main()
