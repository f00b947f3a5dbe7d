"""Reads the arguments of ``export`` once, in every accepted form, into one frozen Request.

The arguments mean the same as in `torch.onnx.export` of torch 2.13.
"""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import AdditionalInputs, ExportedProgram
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.nn.utils.rnn import PackedSequence

from fx_onnx.extension_points import rooms
from fx_onnx.messages.arguments import check_mapping, check_names, counted
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model import dtypes
from fx_onnx.onnx_model.weights import is_subclass, memory_key
from fx_onnx.requests import pytrees
from fx_onnx.requests.dynamic_shapes import (
    DynamicShapes,
    TensorRequest,
    resolve_dynamic_shapes,
    split_dynamic_axes,
)
from fx_onnx.requests.export_modes import TrainingMode
from fx_onnx.requests.forward_parameters import (
    last_dict_is_argument,
    module_parameters,
    positional_arguments,
    program_arguments,
    program_parameters,
    sorted_by_signature,
)
from fx_onnx.requests.scripts import InterpretedModule, is_script
from fx_onnx.requests.user_outputs import is_graph_output
from fx_onnx.torch_internals.dynamo_private import uncompiled
from fx_onnx.torch_internals.torch_private import OpOverload, pytree


@dataclass(frozen=True)
class WeightNames:
    """The names of the module's weights. Tied weights count as one.

    Attributes:
        places: The place of each name in the order of the state_dict.
        new: The user's names by place; there may be fewer names than weights.
    """

    places: Mapping[str, int] = field(default_factory=dict)
    new: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """What the user asked to export.

    Attributes:
        model: The module, or an ExportedProgram that the user captured. A TorchScript module or function is a
            ScriptedModule here.
        args: The example positional arguments. A float that was requested as dynamic is a 0-d float64 tensor here.
        kwargs: The example keyword arguments, in the order in which they were given. The graph's inputs have this
            order.
        float_leaves: The places of the dynamic floats among the leaves of ``(args, kwargs)``.
        dynamic_shapes: The dynamic shapes in the form that `torch.export.export` takes: a dict by parameter name
            without strings, or an AdditionalInputs as the user gave it. None if nothing is dynamic.
        inputs: What was requested of each tensor among the example arguments, in the order of the graph's inputs.
        input_names: Names of the graph's first inputs.
        weights: The weights of the module.
        output_names: Names of the graph's first outputs.
        output_axes: The `dynamic_axes` of outputs: output name to axis to dim name.
        training: The mode in which the module is captured; None for its own mode.
        max_data_paths: The largest number of paths through a forward that branches on data.
    """

    model: torch.nn.Module | ExportedProgram
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dynamic_shapes: Any | None
    inputs: tuple[TensorRequest, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    output_axes: Mapping[str, Mapping[int, str]]
    float_leaves: tuple[int, ...] = ()
    training: TrainingMode | None = None
    weights: WeightNames = WeightNames()
    max_data_paths: int = 16

    @property
    def keeps_training_forms(self) -> bool:
        """Whether the module is captured to be trained: in training mode, which the caller asks for or preserves."""
        if self.training is not TrainingMode.PRESERVE or isinstance(self.model, ExportedProgram):
            return self.training is TrainingMode.TRAINING
        return any(module.training for module in self.model.modules())

    @property
    def reference(self) -> Callable[..., Any] | None:
        """What to compare the results with: the TorchScript model, or None for the captured module."""
        return self.model.run_script if isinstance(self.model, InterpretedModule) else None

    def with_floats(self, given: tuple[Any, Any]) -> tuple[Any, Any]:
        """Returns arguments with numbers where the user gave floats, which the request holds as 0-d tensors."""
        leaves, tree = pytree.tree_flatten(given)
        leaves = [leaf.item() if index in self.float_leaves else leaf for index, leaf in enumerate(leaves)]
        arguments: tuple[Any, Any] = pytree.tree_unflatten(leaves, tree)
        return arguments


def parse_request(
    model: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_shapes: Any | None = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    training: TrainingMode | None = None,
    in_signature_order: bool = False,
) -> Request:
    """Reads the arguments of `export` into one request.

    Args:
        model: A torch.nn.Module, a TorchScript module or function, or an ExportedProgram.
        args: A tuple, one tensor, or, if `kwargs` is not given, a tuple that ends in a dict of keyword arguments. A
            list is one argument, or if the forward takes no list, it is read as a tuple. The dict is a positional
            argument instead if none of its keys is a parameter and a parameter needs a value.
        kwargs: Keyword arguments.
        input_names: Names for the graph's inputs, in order, and then for the weights, in the order of the state_dict.
            There may be fewer names than inputs.
        output_names: Names for the graph's outputs, in order. There may be fewer names than outputs.
        dynamic_shapes: Any form that torch.export takes. Strings may be dims, and `input_names` may be keys. An input
            that a dict omits is static. `Dim.DYNAMIC` for an int or a float makes it a 0-d input. Axes given for a
            container (such as a cache) apply to every tensor in it that has them. Negative axes count from the last.
            For an ExportedProgram, `dynamic_shapes` only names the dims, and narrows their ranges.
        dynamic_axes: `{name: {axis: dim name}}` or `{name: [axis, ...]}`, where the name is one of `input_names`, a
            parameter of the forward or one of `output_names`. Axes in a list are named `NAME_dynamic_axes_1` and so on.
        training: The mode in which to capture the module; None for its own mode.
        in_signature_order: Whether the inputs of keyword arguments have the order of the forward's parameters, as in
            the TorchScript exporter, instead of the order in which they are given.

    Raises:
        ArgumentError: An argument has none of these forms, or the arguments contradict each other.
    """
    check_mapping("kwargs", kwargs, "argument names and example values")
    check_mapping("dynamic_axes", dynamic_axes, "names and axes")
    model = _checked_model(model, training)
    names_in, names_out = _checked_names(model, input_names, output_names)
    args, kwargs = _split_keywords(model, args, kwargs)
    if isinstance(model, ExportedProgram):
        args, kwargs = program_arguments(model, *(args, kwargs) if args or kwargs else model.example_inputs or ((), {}))
        parameters = program_parameters(model)
    else:
        kwargs = sorted_by_signature(model, kwargs) if in_signature_order else kwargs
        pytrees.register((args, kwargs))
        _check_leaves(args, kwargs)
        parameters = module_parameters(model, args, kwargs)
    axes_in, axes_out = split_dynamic_axes(dynamic_axes or {}, names_out)
    spec = resolve_dynamic_shapes(dynamic_shapes, model, args, kwargs)
    if spec and dynamic_axes:
        raise ArgumentError(
            "Both dynamic_shapes and dynamic_axes are given; give dynamic_shapes alone.", id=MessageId.DYNAMIC_SHAPES
        )
    shapes = DynamicShapes(axes_in or spec, parameters, names_in, from_dynamic_axes=bool(axes_in))
    for_torch = dynamic_shapes if isinstance(dynamic_shapes, AdditionalInputs) else shapes.for_torch()
    if shapes.floats:
        leaves, tree = pytree.tree_flatten((args, kwargs))
        args, kwargs = pytree.tree_unflatten([shapes.floats.get(i, leaf) for i, leaf in enumerate(leaves)], tree)
    return Request(
        model=model,
        args=args,
        kwargs=dict(kwargs),
        dynamic_shapes=for_torch,
        inputs=shapes.tensors(),
        input_names=names_in[: len(shapes.inputs)],
        weights=_weight_names(model, names_in, names_out, shapes),
        output_names=names_out,
        output_axes=axes_out,
        float_leaves=tuple(shapes.floats),
        training=training,
    )


def _checked_model(model: Any, training: TrainingMode | None) -> Any:
    """Returns the model without what only runs it: torch.compile, replicas. A TorchScript one is a ScriptedModule."""
    model = uncompiled(model)
    if is_script(model):
        return rooms.find("models", "TorchScript")(model)
    if isinstance(model, (torch.nn.DataParallel, DistributedDataParallel)):
        model = _one_replica(model)
    if isinstance(model, ExportedProgram) and training is not None and training is not TrainingMode.PRESERVE:
        raise ArgumentError(
            f"training={training.name} is not possible for an ExportedProgram, because its capture fixed the mode; "
            "leave out training, or give the module.",
            id=MessageId.MODEL,
        )
    if isinstance(model, torch.nn.Module):
        weights = (*model.named_parameters(), *model.named_buffers())
        lazy = next((name for name, tensor in weights if is_lazy(tensor)), None)
        if lazy is not None:
            raise ArgumentError(
                f"{lazy!r} of the model is not initialized, because a lazy module gets its shapes when it first runs; "
                "run the model once before the export.",
                id=MessageId.MODEL,
            )
    if isinstance(model, (torch.nn.Module, ExportedProgram)):
        return model
    text = f"The model must be a torch.nn.Module or an ExportedProgram, not {type(model).__name__}."
    if isinstance(model, type):
        text = f"The model is the class {model.__name__}; give an instance of it."
    elif callable(model):
        text = "The model is a plain callable; wrap it in the forward of a torch.nn.Module."
    raise ArgumentError(text, id=MessageId.MODEL)


def _one_replica(parallel: Any) -> torch.nn.Module:
    """Returns a module that runs the module inside a parallel one once, instead of once on each device.

    It has the class name and the signature of the module inside. Its names of weights, its mode and its hooks are those
    of the parallel module.
    """
    inner = uncompiled(parallel.module)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    signature, own = inspect.signature(inner.forward), inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    vars(forward)["__signature__"] = signature.replace(parameters=[own, *signature.parameters.values()])
    members = {"forward": forward, "__module__": type(inner).__module__}
    replica: torch.nn.Module = type(type(inner).__name__, (torch.nn.Module,), members)()
    vars(replica).update({name: copy.copy(vars(parallel)[name]) for name in vars(replica)})
    replica.module = inner
    return replica


def _checked_names(
    model: torch.nn.Module | ExportedProgram, input_names: Sequence[str] | None, output_names: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the names as tuples.

    Raises:
        ArgumentError: A name is repeated, or an ExportedProgram has fewer outputs than names. A write in place may
            still add an output: the new value of a buffer or an input.
    """
    inputs, outputs = check_names("input_names", input_names), check_names("output_names", output_names)
    repeated = [name for name, count in Counter(inputs + outputs).items() if count > 1]
    if repeated:
        raise ArgumentError(
            f"The names in input_names and output_names must differ; repeated: {', '.join(repeated)}.",
            id=MessageId.NAMES,
        )
    if isinstance(model, ExportedProgram):
        count = sum(map(is_graph_output, model.graph_signature.output_specs))
        operators = [node.target for node in model.graph.nodes if isinstance(node.target, OpOverload)]
        if len(outputs) > count and not any(operator._schema.is_mutable for operator in operators):
            raise ArgumentError(
                f"output_names has {counted(len(outputs), 'name')}, but the model has {counted(count, 'output')}.",
                id=MessageId.NAMES,
            )
    return inputs, outputs


def _weight_names(
    model: torch.nn.Module | ExportedProgram,
    names: tuple[str, ...],
    output_names: tuple[str, ...],
    shapes: DynamicShapes,
) -> WeightNames:
    """Returns the names of the weights, whose new names are those in ``names`` after the inputs.

    Warns if some arguments are constants, because the caller may mean these.

    Raises:
        ArgumentError: There are more names than inputs and weights, or another value gets the name of a weight.
    """
    state = model.state_dict if isinstance(model, ExportedProgram) else model.state_dict(keep_vars=True)
    known: dict[Any, int] = {}
    places = {name: known.setdefault(_identity(tensor), len(known)) for name, tensor in state.items()}
    inputs = [leaf.path for leaf in shapes.inputs]
    if len(names) > len(inputs) + len(known):
        raise ArgumentError(
            f"input_names has {counted(len(names), 'name')}, but the model has {counted(len(inputs), 'input')}: "
            f"{', '.join(inputs) or 'none'}, and {counted(len(known), 'weight')}.",
            id=MessageId.NAMES,
        )
    new = names[len(inputs) :]
    taken = [name for name in (*names, *output_names) if places.get(name, -1) >= len(new)]
    if taken:
        raise ArgumentError(
            f"{taken[0]!r} in input_names or output_names is the name of a weight, which keeps its name in the "
            "state_dict; choose another one.",
            id=MessageId.NAMES,
        )
    if new and shapes.constants:
        warn(
            f"input_names gives {new[0]!r} to the weight {next(iter(places))!r}, because the constant "
            f"{shapes.constants[0]} is no input; give names for the inputs only: {', '.join(inputs) or 'none'}.",
            MessageId.NAMES,
        )
    return WeightNames(places, new)


def _identity(tensor: Any) -> Any:
    """Returns a key that is equal for tied weights; a tensor without elements is tied to none."""
    is_plain = isinstance(tensor, torch.Tensor) and tensor.numel() and not is_subclass(tensor)
    return memory_key(tensor) if is_plain else id(tensor)


def _split_keywords(model: Any, args: Any, kwargs: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not isinstance(args, (tuple, list, torch.Tensor, Mapping)):
        raise ArgumentError(
            "args must be a tuple of the arguments, a list, one tensor, or a dict of keyword arguments, "
            f"not a {type(args).__name__}.",
            id=MessageId.ARGUMENTS_OF_FORWARD,
        )
    if isinstance(args, list):
        args = positional_arguments(model, args, kwargs or {})
    args = args if isinstance(args, tuple) else (args,)
    if not kwargs and args and isinstance(args[-1], Mapping) and not last_dict_is_argument(model, args):
        args, kwargs = args[:-1], args[-1]
    if not all(isinstance(key, str) for key in kwargs or ()):
        raise ArgumentError(
            "Keyword arguments must be a dict with strings as keys; if the forward itself takes a dict as its last "
            "positional argument, add an empty dict at the end of args.",
            id=MessageId.ARGUMENTS_OF_FORWARD,
        )
    return args, dict(kwargs or {})


def _is_whole(value: Any) -> bool:
    """Returns whether a container is refused as one argument."""
    return isinstance(value, PackedSequence) or pytrees.is_quantized_layer(value)


def _check_leaves(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises an ArgumentError for an argument that torch.export cannot take, or whose elements are packed."""
    leaves, _ = pytree.tree_flatten_with_path((args, kwargs), is_leaf=_is_whole)
    for path, leaf in leaves:
        name = ("args", "kwargs")[pytrees.path_key(path[0])] + pytree.keystr(path[1:])
        if isinstance(leaf, torch.Tensor) and (leaf.layout != torch.strided or leaf.is_quantized or leaf.is_nested):
            raise ArgumentError(
                f"{name} is a sparse, nested or quantized tensor, which an input of an ONNX model cannot be; give a "
                "dense tensor.",
                id=MessageId.ARGUMENT_TYPE,
            )
        if isinstance(leaf, torch.Tensor) and dtypes.is_packed(leaf.dtype):
            raise ArgumentError(
                f"{name} is {leaf.dtype}, whose elements torch does not copy; pass its bytes, "
                "tensor.view(torch.uint8), and view them as this dtype in the forward.",
                id=MessageId.DTYPE,
            )
        if pytrees.is_quantized_layer(leaf):
            raise ArgumentError(
                f"{name} is a layer of a QuantizedCache, which an exported program cannot take; give a DynamicCache.",
                id=MessageId.ARGUMENT_TYPE,
            )
        if not isinstance(leaf, (torch.Tensor, bool, int, float, str, torch.ScriptObject, type(None))):
            kind = f"{type(leaf).__module__}.{type(leaf).__qualname__}"
            remedy = "make it an attribute of the module"
            if kind == "numpy.ndarray":
                remedy = "convert it with torch.from_numpy"
            elif isinstance(leaf, PackedSequence):
                remedy = "give the padded sequences and their lengths, and call pack_padded_sequence in the forward"
            elif not isinstance(leaf, torch.nn.Module):
                remedy += ", or register its class with torch.export.register_dataclass"
            raise ArgumentError(
                f"{name} is a {kind}, which an input of an ONNX model cannot be; {remedy}.",
                id=MessageId.ARGUMENT_TYPE,
            )
