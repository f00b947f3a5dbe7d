"""A backend of transformers' exporters, in transformers 5.20 and newer: this import registers the format ``fx_onnx``.

The model is captured by the base class of all exporters. The patches that transformers' own ONNX exporter makes for
torch.onnx, for the captured graph, the translations and the finished model are not applied.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from transformers.exporters.auto import register_backend
from transformers.exporters.configs import DynamoConfig, ExportFormat, OnnxConfig
from transformers.exporters.exporter_dynamo import DynamoExporter
from transformers.exporters.exporter_onnx import OnnxExporter
from transformers.exporters.metadata import ExportMetadata, record_output_structure
from transformers.exporters.onnxruntime_fusions import fuse_for_onnxruntime
from transformers.exporters.runners.runner_onnx import OnnxModelRunner
from transformers.exporters.utils import disambiguate_io_names, patch_model_outputs, quantize_converted_model

from fx_onnx.export import export
from fx_onnx.integrations.onnxscript_fusions import write_nodes_for_fusions
from fx_onnx.messages.errors import ArgumentError

if TYPE_CHECKING:
    import onnx_ir as ir
    from transformers import PreTrainedModel

__all__ = ["FORMAT", "FxOnnxConfig", "FxOnnxExporter"]

FORMAT = "fx_onnx"


@dataclass
class FxOnnxConfig(DynamoConfig):
    """The options of an export, besides those of every export of transformers.

    Args:
        opset_version: as for ``fx_onnx.export``.
        optimize: as for ``fx_onnx.export``.
        target: as for ``fx_onnx.export``.
        verify: as for ``fx_onnx.export``.
        ort_fusions: the provider of ONNX Runtime for which transformers fuses the model, as in ``OnnxConfig``.
    """

    export_format: str = FORMAT
    opset_version: int | None = None
    optimize: bool = True
    target: str | None = None
    verify: bool = False
    ort_fusions: Literal["cpu", "cuda", "webgpu", "dml"] | None = None

    def __post_init__(self) -> None:
        OnnxConfig(optimize=self.optimize, ort_fusions=self.ort_fusions)  # checks both
        if self.ort_fusions is not None and self.target is not None and not self.target.startswith("onnxruntime"):
            raise ArgumentError(f"ort_fusions writes operators of ONNX Runtime, which {self.target!r} does not have.")


class FxOnnxExporter(OnnxExporter):
    """Exports a model of transformers through fx_onnx, with the files and the runner of transformers' ONNX exports."""

    export_format = FORMAT
    config_class = FxOnnxConfig
    required_packages: ClassVar = ["torch", "onnx", "fx_onnx"]
    tested_versions: ClassVar[dict[str, str]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.export_format = ExportFormat.ONNX  # of what it writes, which loads without fx_onnx too

    def export_program(
        self, model: PreTrainedModel, sample_inputs: MutableMapping[str, Any], config: FxOnnxConfig
    ) -> tuple[ir.Model, ExportMetadata]:
        """Returns the model, whose inputs and outputs have the names that the runner expects, and its metadata."""
        config = replace(config, export_format=ExportFormat.ONNX)  # for which the quantizers ask
        with patch_model_outputs(model) as (input_names, output_names, traced_outputs):
            captured, metadata = DynamoExporter.export_program(self, model, sample_inputs, config=config)
        input_names, output_names = disambiguate_io_names(input_names, output_names)
        program = export(
            captured, input_names=input_names, output_names=output_names, opset_version=config.opset_version,
            optimize=config.optimize, target=config.target, verify=config.verify,
        )  # fmt: skip
        if config.ort_fusions is not None:
            write_nodes_for_fusions(program.model)
            fuse_for_onnxruntime(program.model, config.ort_fusions)
        record_output_structure(metadata, traced_outputs[-1])
        return quantize_converted_model(program.model, sample_inputs, config), metadata


register_backend(FxOnnxExporter, OnnxModelRunner)
