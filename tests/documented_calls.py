"""The calls that PyTorch's pages on ONNX document, with the import changed, as short examples.

tests/test_documented_calls.py runs them, and ``make types`` checks them as the code of a user.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor, nn

import fx_onnx as onnx_exporter
from fx_onnx import (
    ExportableModule,
    InputObserver,
    JitScalarType,
    OnnxExporterError,
    ONNXProgram,
    OperatorExportTypes,
    TensorProtoDataType,
    TrainingMode,
    errors,
    ops,
    symbolic_helper,
    testing,
    utils,
)
from fx_onnx.operators import reshape_from_tensor_shape, shape_as_tensor
from fx_onnx.symbolic_helper import parse_args
from fx_onnx.verification import VerificationInfo, verify_onnx_program


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.linear = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.linear(torch.relu(self.conv(x)).mean((2, 3)))
        return result


IMAGES = torch.randn(2, 1, 8, 8)


def export_save_and_run(folder: Path) -> None:
    program = onnx_exporter.export(Net().eval(), (IMAGES,), dynamo=True)
    assert isinstance(program, ONNXProgram)
    program.optimize()
    program.save(folder / "net.onnx")
    onnx.checker.check_model(onnx.load(folder / "net.onnx"))
    (result,) = program(IMAGES)
    assert result.shape == (2, 2)
    program.save(str(folder / "external.onnx"), external_data=True, keep_initializers_as_inputs=True)
    program.save(folder / "bare.onnx", include_initializers=False)


def all_keywords(folder: Path) -> None:
    batch = torch.export.Dim("batch", min=1, max=64)
    program = onnx_exporter.export(
        Net().eval(),
        (IMAGES,),
        str(folder / "net.onnx"),
        kwargs=None,
        verbose=False,
        input_names=["images"],
        output_names=["scores"],
        opset_version=18,
        external_data=False,
        dynamic_shapes={"x": {0: batch}},
        report=True,
        optimize=True,
        verify=True,
        profile=True,
        dump_exported_program=True,
        artifacts_dir=folder,
        export_params=True,
        keep_initializers_as_inputs=False,
        training=TrainingMode.EVAL,
        operator_export_type=OperatorExportTypes.ONNX,
        do_constant_folding=True,
        custom_opsets={},
        export_modules_as_functions=False,
        autograd_inlining=True,
    )
    assert program.model_proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    onnx_exporter.export(
        Net().eval(),
        (IMAGES,),
        training=torch.onnx.TrainingMode.EVAL,
        operator_export_type=torch.onnx.OperatorExportTypes.ONNX,
    )


def dynamic_shapes(folder: Path) -> None:
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    auto = torch.export.Dim.AUTO
    shapes: list[Any] = [({0: "batch"}, {0: "batch"}), {"input": {0: auto}, "other": {0: auto}}]
    for shape in shapes:
        program = onnx_exporter.export(Sum(), (x,), kwargs={"other": y}, dynamic_shapes=shape)
        assert program(x[:1], y[:1])[0].shape == (1, 3)
    program = onnx_exporter.export(
        Sum(), (x, y), input_names=["a", "b"], dynamic_axes={"a": {0: "batch"}, "b": {0: "batch"}}
    )
    program.rename_axes({"batch": "rows"})
    assert program.model_proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "rows"


class Sum(nn.Module):
    def forward(self, input: Tensor, other: Tensor) -> Tensor:
        return input + other


def control_flow(folder: Path) -> None:
    class Branch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))
            return result

    x = torch.ones(3)
    program = onnx_exporter.export(Branch().eval(), (x,))
    torch.testing.assert_close(program(-x)[0], -x - 1)


def custom_translations(folder: Path) -> None:
    from onnxscript import opset20

    def relu(x: Any) -> Any:
        return opset20.Relu(x)

    table: dict[Callable[..., Any], Callable[..., Any]] = {torch.ops.aten.relu.default: relu}
    program = onnx_exporter.export(nn.ReLU(), (torch.randn(3),), custom_translation_table=table, opset_version=20)
    assert [node.op_type for node in program.model.graph] == ["Relu"]


def symbolic_functions(folder: Path) -> None:
    @parse_args("v")
    def selu(g: Any, x: Any) -> Any:
        assert symbolic_helper._is_value(x)
        assert JitScalarType.from_value(x) is JitScalarType.FLOAT
        return g.op("com.example::Selu", g.op("Cast", x, to_i=TensorProtoDataType.FLOAT))

    onnx_exporter.register_custom_op_symbolic("aten::selu", selu, 9)
    try:
        program = onnx_exporter.export(nn.SELU(), (torch.randn(3),), custom_opsets={"com.example": 2})
    finally:
        onnx_exporter.unregister_custom_op_symbolic("aten::selu", 9)
    assert {(entry.domain, entry.version) for entry in program.model_proto.opset_import} >= {("com.example", 2)}


def operators_of_onnx(folder: Path) -> None:
    class Operators(nn.Module):
        def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
            rotated = ops.rotary_embedding(x, cos, sin)
            attended, *_ = ops.attention(rotated, rotated, rotated, is_causal=True)
            return rotated, attended

    class Custom(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            one = ops.symbolic(
                "com.example::One", (x, None), {"alpha": 0.5}, dtype=x.dtype, shape=x.shape, version=1,
                metadata_props={"key": "value"},
            )  # fmt: skip
            (two,) = ops.symbolic_multi_out("com.example::Two", (one,), dtypes=(1,), shapes=([3],), version=1)
            return one, two

    x, angles = torch.randn(1, 2, 3, 4), torch.randn(1, 3, 2)
    program = onnx_exporter.export(Operators(), (x, angles, angles), opset_version=23)
    assert [node.op_type for node in program.model.graph] == ["RotaryEmbedding", "Attention"]
    program = onnx_exporter.export(Custom(), (torch.randn(3),))
    assert [node.op_type for node in program.model.graph] == ["One", "Two"]
    assert ops.aten_decompositions()


def shapes_as_tensors(folder: Path) -> None:
    class Reshape(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return reshape_from_tensor_shape(x, shape_as_tensor(x).flip(0))

    x = torch.randn(2, 3)
    program = onnx_exporter.export(Reshape(), (x,))
    torch.testing.assert_close(program(x)[0], x.reshape(3, 2))


def observed_inputs(folder: Path) -> None:
    model = Sum()
    observer = InputObserver()
    with observer(model):
        model(torch.randn(2, 3), torch.randn(2, 3))
        model(torch.randn(4, 3), torch.randn(4, 3))
    arguments = observer.infer_arguments()
    assert isinstance(arguments, tuple)
    program = onnx_exporter.export(model, arguments, dynamic_shapes=observer.infer_dynamic_shapes())
    rows = observer.check_discrepancies(program, progress_bar=False)
    assert max(row["abs"] for row in rows) == 0


def exportable_module(folder: Path) -> None:
    class Linear(ExportableModule):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.linear(x)
            return result

        def example_arguments(self) -> tuple[tuple[Any], dict[str, Any] | None]:
            return (torch.randn(2, 3),), None

        def input_names(self) -> list[str]:
            return ["features"]

    program = Linear().eval().to_onnx(dynamo=True)
    assert program.model_proto.graph.input[0].name == "features"


def methods_of_a_program(folder: Path) -> None:
    import onnxruntime

    module = Net().eval()
    program = onnx_exporter.export(module, (IMAGES,))

    def session(model: str | bytes) -> onnxruntime.InferenceSession:
        return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

    program.initialize_inference_session(session)
    expected = module(IMAGES)
    torch.testing.assert_close(program(IMAGES)[0], expected)
    torch.testing.assert_close(program.call_reference(IMAGES)[0], expected, rtol=1e-4, atol=1e-5)
    program.release()
    program.apply_weights({"linear.bias": torch.zeros(2)})
    names = [str(output.name) for output in program.model.graph.outputs]
    torch.testing.assert_close(program.compute_values(names, (IMAGES,))[0], expected - module.linear.bias)
    assert program.exported_program is not None


def verified(folder: Path) -> None:
    program = onnx_exporter.export(Net().eval(), (IMAGES,))
    testing.assert_onnx_program(program)
    testing.assert_onnx_program(
        program, rtol=1e-3, atol=1e-4, args=(IMAGES + 1,), kwargs={}, strategy=None, backend="reference"
    )
    for info in verify_onnx_program(program, (IMAGES,), compare_intermediates=True):
        assert info.max_abs_diff < 1e-4
        assert "max_rel_diff" in info.asdict()
    info = VerificationInfo.from_tensors("x", torch.ones(2), torch.tensor(np.ones(2, np.float32)))
    assert info.max_abs_diff == 0


def errors_and_the_flag(folder: Path) -> None:
    assert not onnx_exporter.is_in_onnx_export()
    try:
        onnx_exporter.export(nn.ReLU(), (torch.randn(3),), opset_version=99)
    except (OnnxExporterError, errors.UnsupportedOperatorError) as error:
        assert "opset_version" in str(error)
    else:
        raise AssertionError("opset 99 is refused")
    assert issubclass(errors.OnnxExporterWarning, UserWarning)
    assert issubclass(errors.SymbolicValueError, Exception)


def old_helpers(folder: Path) -> None:
    module = Net().train()
    with utils.exporter_context(module, TrainingMode.EVAL, False), utils.disable_apex_o2_state_dict_hook(module):
        assert not module.training
    with onnx_exporter.select_model_mode_for_export(module, TrainingMode.TRAINING), utils.setup_onnx_logging(False):
        assert list(utils.model_signature(module).parameters) == ["x"]
    assert utils.unconvertible_ops(module, (IMAGES,), training=TrainingMode.EVAL, opset_version=18)[1] == []
    utils.warn_on_static_input_change([[IMAGES], [IMAGES]])
    assert utils.unpack_quantized_tensor(IMAGES)[0] is IMAGES
    assert onnx_exporter.producer_name == "fx_onnx"
    assert onnx_exporter.producer_version == onnx_exporter.__version__


CALLS: tuple[Callable[[Path], None], ...] = (
    export_save_and_run, all_keywords, dynamic_shapes, control_flow, custom_translations, symbolic_functions,
    operators_of_onnx, shapes_as_tensors, observed_inputs, exportable_module, methods_of_a_program, verified,
    errors_and_the_flag, old_helpers,
)  # fmt: skip
