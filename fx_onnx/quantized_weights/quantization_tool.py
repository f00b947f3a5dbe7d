"""ONNX Runtime's own tool of quantization (``onnxruntime.quantization``): it observes ranges and rounds weights.

This file chooses what the tool quantizes:

- Layers are Conv, ConvTranspose, Gemm and MatMul with a constant weight. Only their inputs are rounded, and the results
  of convolutions. The result of a product with a weight stays a float, because normalization and softmax after it
  need the resolution; but a runtime may take scales by channel only between quantized numbers.
- Operators between convolutions, such as Add and MaxPool, compute with integers too, so the runtime converts nothing
  there.
- Weights have 7 bits for runtimes that add two products in 16 bits on x64 processors without VNNI: 2 * 255 * 64 fits,
  so they are exact on all processors.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from torch import Tensor

from fx_onnx.files.save import save
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model.metadata import module_scopes
from fx_onnx.onnx_model.tolerances import relative_distance
from fx_onnx.program.session import LoadedModel
from fx_onnx.targets.target import Target

__all__ = ["DTYPES", "RANGES", "Inputs", "QuantizationTool", "form_of"]

DTYPES = {"int8-static": ("QUInt8", "QInt8"), "a16w8": ("QUInt16", "QInt8"), "a16w4": ("QUInt16", "QInt4")}
"""The name of a precision → the dtypes of activations and weights, as names of ``QuantType``."""
RANGES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "minmax": ("MinMax", {}),
    "percentile": ("Percentile", {"symmetric": False, "percentile": 99.99}),
}
"""The name of a way to find ranges → ONNX Runtime's name of it, and its options."""

_CONVOLUTIONS = ("Conv", "ConvTranspose")
_PRODUCTS = ("Gemm", "MatMul")
_BETWEEN = frozenset(
    {
        *("Relu", "Clip", "Add", "Concat", "MaxPool", "AveragePool", "GlobalAveragePool", "Resize"),
        *("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Split", "Slice"),
    }
)
"""Operators that compute with integers if all that they read comes from a convolution that does."""

Inputs = Mapping[str, Tensor]


def _session_of_integers(model: str | bytes) -> Any:
    """Returns a session with the default options of ONNX Runtime, which computes with integers."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@dataclass(frozen=True)
class _Form:
    """How numbers are rounded.

    Attributes:
        activations: the name of a ``QuantType``.
        weights: that of weights, which have a scale for each channel.
        has_zero_points: whether activations have a zero point, and biases are integers.
        narrow: whether weights have 7 bits.
        rounds_products: whether the results of products with a weight are rounded.
    """

    activations: str
    weights: str
    has_zero_points: bool = True
    narrow: bool = False
    rounds_products: bool = False


def form_of(precision: str, target: Target) -> _Form:
    """Returns the form that a target computes, as its passes of legalization tell."""
    passes = {row.name for row in target.legalizations}
    activations, weights = DTYPES[precision]
    if "legalize_asymmetric_quantization" in passes:
        return _Form(activations.replace("QU", "Q"), weights, has_zero_points=False)
    if "legalize_dequantization_by_channel" in passes:
        return _Form(activations, weights, rounds_products=True)
    saturates = "legalize_signed_quantization" in passes or target.name == "openvino"
    return _Form(activations, weights, narrow=precision == "int8-static" and saturates)


class QuantizationTool:
    """ONNX Runtime's tool, and the model in the file that it reads.

    Attributes:
        unfit: the layers that it does not quantize: those in the bodies of control flow, products with the weight of an
            embedding, which is transposed for them, and grouped transposed convolutions, whose biases it refuses. NPUs
            take no computed bias.
    """

    def __init__(self, model: ir.Model, folder: Path, form: _Form) -> None:
        """Writes the model to the folder."""
        from onnxruntime.quantization.quant_utils import load_model_with_shape_infer

        self._folder, self._form, self._observed = folder, form, dict[str, Any]()
        save(model, folder / "model.onnx", external_data=True, durable=False)
        self._model = load_model_with_shape_infer(folder / "model.onnx")
        for number, node in enumerate(self._model.graph.node):
            node.name = node.name or f"node_{number}"
        self._weights = {tensor.name for tensor in self._model.graph.initializer if tensor.data_type == _FLOAT}
        self._weights -= {value.name for value in self._model.graph.input}
        transposed = {node.output[0] for node in self._model.graph.node if _is_transposed(node, self._weights)}
        inner = chain.from_iterable(body.node for body in _bodies(self._model.graph))
        self.unfit = [_path(node) for node in inner if self._is_layer(node)]
        self.unfit += [_path(node) for node in self._model.graph.node if transposed.intersection(node.input[1:2])]

    def layers(self) -> dict[str, str]:
        """Returns the layers with a weight of float32: the name of the node → that of the layer.

        Raises:
            ArgumentError: there is none.
        """
        nodes = [node for node in self._model.graph.node if self._is_layer(node)]
        fitting = {node.name: _path(node) for node in nodes if self._fits(node)}
        self.unfit += [_path(node) for node in nodes if node.name not in fitting]
        if not fitting:
            raise ArgumentError(
                "The program has no layer that can be quantized: a convolution or a product with a float32 weight.",
                id=MessageId.COMMAND_OPTION,
            )
        return fitting

    def _fits(self, node: onnx.NodeProto) -> bool:
        has_computed_bias = not self._weights.issuperset(filter(None, node.input[2:]))
        return not _is_grouped(node) and not (self._form.rounds_products and has_computed_bias)

    def activations(self) -> set[str]:
        """Returns the names of what the layers read."""
        return {node.input[0] for node in self._model.graph.node if self._is_layer(node)}

    def _is_layer(self, node: onnx.NodeProto) -> bool:
        is_product = node.op_type in (*_CONVOLUTIONS, *_PRODUCTS) and not node.domain
        return is_product and node.input[1] in self._weights and node.input[0] not in self._weights

    def observe(self, inputs: Sequence[Inputs], ranges: str, layers: Collection[str]) -> None:
        """Finds the ranges of what layers and the operators between them read and return."""
        from onnxruntime import quantization

        method, options = RANGES[ranges]
        operators = {node.op_type for node in self._model.graph.node if node.name in self._nodes(layers)}
        observer = quantization.create_calibrator(
            self._folder / "model.onnx",
            sorted(operators),
            augmented_model_path=str(self._folder / "observed.onnx"),
            calibrate_method=quantization.CalibrationMethod[method],
            use_external_data_format=True,
            extra_options=options,
        )
        try:
            with redirect_stdout(io.StringIO()):  # it prints each step
                for feed in inputs:
                    observer.collect_data(_Reader(feed))
                self._observed = dict(observer.compute_data().items())
        except (ValueError, MemoryError) as error:  # of the histogram of a percentile
            raise ArgumentError(f"ONNX Runtime's tool finds no ranges ({error}); use ranges='minmax'.") from error

    def varying(self, layers: Mapping[str, str]) -> dict[str, str]:
        """Returns the layers without those whose input, or result of a convolution, is one number in all runs.

        Its range has no width, so that all later values would become this number.

        Raises:
            ArgumentError: there is none.
        """
        nodes = [node for node in self._model.graph.node if node.name in layers]
        constant = {node.name for node in nodes if self._is_constant(node.input[0]) or self._is_fixed(node)}
        self.unfit += [path for name, path in layers.items() if name in constant]
        if constant.issuperset(layers):
            raise ArgumentError("All layers get or return one number for all calibration inputs; give other ones.")
        return {name: path for name, path in layers.items() if name not in constant}

    def _is_fixed(self, node: onnx.NodeProto) -> bool:
        return node.op_type not in _PRODUCTS and any(map(self._is_constant, node.output))

    def _is_constant(self, name: str) -> bool:
        return name in self._observed and bool(np.equal(*self._observed[name].range_value).all())

    def quantized(self, layers: Collection[str]) -> ir.Model:
        """Returns the model with these layers, and what is between them, on integers."""
        from onnxruntime import quantization

        form, nodes = self._form, self._nodes(layers)
        tool = quantization.QDQQuantizer(
            copy.deepcopy(self._model),
            per_channel=True,
            reduce_range=form.narrow,
            weight_qType=quantization.QuantType[form.weights],
            activation_qType=quantization.QuantType[form.activations],
            tensors_range=copy.deepcopy(self._observed),
            nodes_to_quantize=[*nodes],
            nodes_to_exclude=[],
            op_types_to_quantize=sorted({node.op_type for node in self._model.graph.node if node.name in nodes}),
            extra_options={
                "ActivationSymmetric": not form.has_zero_points,
                "QuantizeBias": form.has_zero_points,
                "OpTypesToExcludeOutputQuantization": [] if form.rounds_products else [*_PRODUCTS],
            },
        )
        tool.quantize_model()
        model = ir.serde.deserialize_model(tool.model.model)
        model.graph.sort()
        _add_types(model.graph)
        return model

    def distance(self, model: ir.Model, inputs: Sequence[Inputs], expected: Sequence[tuple[Tensor, ...]]) -> float:
        """Returns how far the results of a model are from what is expected.

        ONNX Runtime's CPU provider does not load all models with int8 activations if it computes with integers.
        """
        with LoadedModel(model, _session_of_integers if self._form.narrow else None) as loaded:
            results = [loaded.run(feed) for feed in inputs[: len(expected)]]
        return max(map(relative_distance, results, expected))

    def _nodes(self, layers: Collection[str]) -> dict[str, None]:
        """Returns the names of layers, and of the operators that read nothing but results of convolutions."""
        nodes, integers = dict.fromkeys(layers), set[str]()
        for node in self._model.graph.node:
            reads = [name for name in node.input if name and name not in self._weights]
            if node.name in layers:
                is_between = node.op_type in _CONVOLUTIONS
            else:
                is_between = node.op_type in _BETWEEN and bool(reads) and integers.issuperset(reads)
                is_between = is_between and not self._is_fixed(node)
            if is_between:
                nodes[node.name] = None
                integers.update(node.output)
        return nodes


_FLOAT = onnx.TensorProto.FLOAT


def _add_types(graph: ir.Graph) -> None:
    """Gives the values around new nodes their types. The tool renames a value before a graph output."""
    nodes = [node for node in graph if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    values: Any
    dtypes: Any
    for node in (*reversed(nodes), *nodes):
        values, (_, scale, zero_point) = (node.inputs[0], node.outputs[0]), node.inputs
        shape = next((value.shape for value in values if value.shape is not None), None)
        dtypes = (scale, zero_point) if node.op_type == "QuantizeLinear" else (zero_point, scale)
        for value, of_dtype in zip(values, dtypes, strict=True):
            value.shape, value.dtype = shape, of_dtype.dtype


def _is_transposed(node: onnx.NodeProto, weights: Collection[str]) -> bool:
    return node.op_type == "Transpose" and node.input[0] in weights


def _is_grouped(node: onnx.NodeProto) -> bool:
    is_transposed = node.op_type == "ConvTranspose"
    return is_transposed and any(attribute.name == "group" and attribute.i > 1 for attribute in node.attribute)


def _bodies(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yields the bodies of control flow."""
    for attribute in chain.from_iterable(node.attribute for node in graph.node):
        if attribute.HasField("g"):
            yield attribute.g
            yield from _bodies(attribute.g)


class _Reader:
    """Gives one input to the observer."""

    def __init__(self, feed: Inputs) -> None:
        self._feeds: Iterator[Any] = iter([{name: tensor.contiguous().numpy() for name, tensor in feed.items()}])

    def get_next(self) -> Any:
        """Returns the input, and then None."""
        return next(self._feeds, None)


def _path(node: onnx.NodeProto) -> str:
    """Returns the path of the module that a node is part of, or its name."""
    scopes = module_scopes({entry.key: entry.value for entry in node.metadata_props})
    return scopes[-1][0] if scopes and scopes[-1][0] else node.name
