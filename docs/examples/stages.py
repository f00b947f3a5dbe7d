"""Prints what a small model looks like after each stage of the pipeline.

python docs/examples/stages.py

A stage that does not change this model prints nothing. docs/architecture.md shows the output.
"""

import difflib
from collections.abc import Iterator
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor, fx, nn

from fx_onnx import pipeline
from fx_onnx.program.export_log import ExportLog
from fx_onnx.requests.request import parse_request


class Example(nn.Module):
    """Writes in place, computes a constant, and calls an operator that ONNX does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 4) to (batch, 4)."""
        y = self.linear(x)
        y.relu_()
        scale = 1 / (1 + torch.arange(4))
        return torch.lerp(x, y, 0.25) * scale


def main() -> None:
    """Prints the text of every stage that changes the model."""
    for name, text in texts():
        print(f"after {name}\n\n{text}\n")


def texts() -> Iterator[tuple[str, str]]:
    """Yields the name of each stage that changes the model, with the whole text, or with the lines that changed."""
    torch.manual_seed(0)
    request = parse_request(Example().eval(), (torch.ones(2, 4),), dynamic_shapes=({0: "batch"},), output_names=["z"])
    job: Any = pipeline.Job(request, pipeline.ExportOptions(), ExportLog())
    before = ""
    for stage in pipeline.STAGES:
        if stage.applies(job.options):
            job = stage.run(job)
            text = text_of(job)
            if text != before:
                yield stage.name, changes(before, text)
            before = text


def changes(before: str, after: str) -> str:
    """Returns the lines that differ, marked by - and +; the whole text if no line is the same."""
    old, new = before.splitlines(), after.splitlines()
    if not set(old) & set(new):
        return after
    return "\n".join(line for line in difflib.ndiff(old, new) if line.startswith(("-", "+")))


def text_of(job: Any) -> str:
    """Returns the program of a job as text: an FX graph, or the nodes of an ONNX model."""
    if isinstance(job, pipeline.OnnxJob):
        return onnx_text(job.program.model)
    graph = job.aten.graph if isinstance(job, pipeline.AtenJob) else job.captured.exported_program.graph
    return "\n".join(fx_line(node) for node in graph.nodes)


def fx_line(node: fx.Node) -> str:
    """Returns one line for an FX node: ``relu [s0, 4] = aten.relu.default(linear)``."""
    value = node.meta.get("val")
    shape = f" {list(value.shape)}" if isinstance(value, Tensor) else ""
    if node.op == "placeholder":
        return f"{node.name}{shape}"
    if node.op == "get_attr":
        return f"{node.name}{shape} = constant"
    arguments = [*map(str, node.args), *(f"{key}={each}" for key, each in node.kwargs.items() if each is not None)]
    if node.op == "output":
        return f"return {', '.join(arguments)}"
    return f"{node.name}{shape} = {node.target}({', '.join(arguments)})"


def onnx_text(model: ir.Model) -> str:
    """Returns the graph's inputs, initializers, nodes and outputs, one a line."""
    lines = [f"input {typed(value)}" for value in model.graph.inputs]
    lines += [f"weight {typed(value)}" for value in model.graph.initializers.values()]
    for node in model.graph:
        arguments = [value.name if value else "" for value in node.inputs]
        arguments += [f"{key}={attribute.value}" for key, attribute in node.attributes.items()]
        lines.append(f"{', '.join(map(typed, node.outputs))} = {node.op_type}({', '.join(map(str, arguments))})")
    return "\n".join([*lines, *(f"output {value.name}" for value in model.graph.outputs)])


def typed(value: ir.Value) -> str:
    """Returns a value's name and dims: ``x [batch, 4]``."""
    return str(value.name) if value.shape is None else f"{value.name} [{', '.join(map(str, value.shape))}]"


if __name__ == "__main__":
    main()
