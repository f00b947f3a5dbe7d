"""Every accepted spelling of model, arguments, names and dynamic shapes, read once into one frozen request.

The meaning is that of `torch.onnx.export(..., dynamo=True)` of torch 2.13. A dim given by name (a string) is
asked to be dynamic, not promised to be: it becomes `Dim.AUTO`, and one that the model fixes is reported and exported
as it is. `Dim` objects and `Dim.DYNAMIC` keep torch's meaning.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import AdditionalInputs, Dim, ExportedProgram, ShapesCollection

from fx_onnx.capture import pytrees
from fx_onnx.core.errors import ArgumentError
from fx_onnx.core.torch_private import pytree, storage_id

# torch.export has no public name for the type of Dim.AUTO, Dim.DYNAMIC and Dim.STATIC.
_DimHint = type(Dim.AUTO)


@dataclass(frozen=True)
class TensorInput:
    """What was asked of one tensor of the example arguments.

    Attributes:
        path: where it stands, in the forward's own names: `x`, `past[0]['key']`.
        axes: the axes asked to be dynamic in any form, each with the user's name for it, or None where it has none.
    """

    path: str
    axes: Mapping[int, str | None]


@dataclass(frozen=True)
class Request:
    """What the user asked to export.

    Attributes:
        model: the module, or the program that torch.export made of it.
        args: the example positional arguments.
        kwargs: the example keyword arguments, in the order they were given, which is that of the graph's inputs.
        dynamic_shapes: what `torch.export.export` takes: a dict by parameter name without strings, AdditionalInputs as
            they are, or None where nothing is dynamic or the model is an ExportedProgram.
        inputs: the example arguments' tensors in the order of the graph's inputs.
        input_names: names of the graph's first inputs.
        output_names: names of the graph's first outputs.
        output_axes: the `dynamic_axes` of outputs: output name to axis to dim name.
    """

    model: torch.nn.Module | ExportedProgram
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dynamic_shapes: Any | None
    inputs: tuple[TensorInput, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    output_axes: Mapping[str, Mapping[int, str]]


def parse_request(
    model: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_shapes: Any | None = None,
    dynamic_axes: Mapping[str, Any] | None = None,
) -> Request:
    """Reads the arguments of `export` into one request.

    Args:
        model: a torch.nn.Module or an ExportedProgram.
        args: a tuple, one tensor, or a tuple ending in a dict of keyword arguments where `kwargs` is not given.
        kwargs: keyword arguments.
        input_names: names for the graph's inputs in order; fewer are allowed.
        output_names: names for the graph's outputs in order; fewer are allowed.
        dynamic_shapes: every form torch.export takes, strings as dims, `input_names` as keys; what a dict leaves out
            is static. Axes given for a container (a whole cache) are those of every tensor in it that has them.
            Negative axes count from the last. Of an ExportedProgram it only names the dims.
        dynamic_axes: `{name: {axis: dim name}}` or `{name: [axis, ...]}`; the name is one of `input_names`, a parameter
            of the forward or one of `output_names`. Unnamed axes are called `name_dynamic_axes_1` and so on.

    Raises:
        ArgumentError: an argument is not one of these, or they contradict each other.
    """
    if dynamic_shapes and dynamic_axes:
        raise ArgumentError("Both dynamic_shapes and dynamic_axes are given; give dynamic_shapes alone.")
    _check_model(model)
    names_in, names_out = _names(input_names, output_names)
    args, kwargs = _split_keywords(args, kwargs)
    if isinstance(model, ExportedProgram):
        args, kwargs = (args, kwargs) if args or kwargs else model.example_inputs or ((), {})
        parameters = _program_parameters(model)
    else:
        pytrees.register((args, kwargs))
        _check_leaves(args, kwargs)
        parameters = _module_parameters(model, args, kwargs)
    axes_in, axes_out = _split_dynamic_axes(dynamic_axes or {}, names_out)
    spec = _Spec(parameters, names_in)
    spec.read(axes_in or _resolve(dynamic_shapes, model, args, kwargs), names_first=bool(axes_in))
    spec.check()
    passed_on = dynamic_shapes if isinstance(dynamic_shapes, AdditionalInputs) else spec.for_torch()
    if not isinstance(model, ExportedProgram):
        args, kwargs = _separate_storages(args, kwargs)
    return Request(
        model=model,
        args=args,
        kwargs=kwargs,
        dynamic_shapes=None if isinstance(model, ExportedProgram) else passed_on,
        inputs=spec.tensors(),
        input_names=names_in,
        output_names=names_out,
        output_axes=axes_out,
    )


# --- model, arguments and names ---------------------------------------------------------------------------------------


def _check_model(model: Any) -> None:
    kind = type(model).__name__
    if isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        raise ArgumentError(f"A {kind} cannot be exported; export the torch.nn.Module it was scripted or traced from.")
    if isinstance(model, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
        raise ArgumentError(f"A {kind} cannot be exported; export the module inside it, model.module.")
    if isinstance(model, (torch.nn.Module, ExportedProgram)):
        return
    if isinstance(model, type):
        raise ArgumentError(f"The model is the class {model.__name__}; give an instance of it.")
    if callable(model):
        raise ArgumentError("The model is a plain callable; wrap it in the forward of a torch.nn.Module.")
    raise ArgumentError(f"The model must be a torch.nn.Module or an ExportedProgram, not {kind}.")


def _names(input_names: Sequence[str] | None, output_names: Sequence[str] | None) -> tuple[tuple[str, ...], ...]:
    for option, names in (("input_names", input_names), ("output_names", output_names)):
        if isinstance(names, str) or not all(isinstance(name, str) and name for name in names or ()):
            raise ArgumentError(f"{option} must be a sequence of non-empty strings.")
    inputs, outputs = tuple(input_names or ()), tuple(output_names or ())
    doubled = [name for name, count in Counter(inputs + outputs).items() if count > 1]
    if doubled:
        raise ArgumentError(f"Names in input_names and output_names must differ, and these repeat: {_listed(doubled)}.")
    return inputs, outputs


def _split_keywords(args: Any, kwargs: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(args, torch.Tensor):
        args = (args,)
    if not isinstance(args, tuple):
        raise ArgumentError(f"args must be a tuple of the arguments or one tensor, not {type(args).__name__}.")
    if not kwargs and args and isinstance(args[-1], dict):
        args, kwargs = args[:-1], args[-1]
    kwargs = {} if kwargs is None else kwargs
    if not isinstance(kwargs, Mapping) or not all(isinstance(key, str) for key in kwargs):
        raise ArgumentError(
            "Keyword arguments must be a dict with strings as keys; where the forward itself takes a dict as its last "
            "positional argument, end args with an empty dict."
        )
    return tuple(args), dict(kwargs)


def _check_leaves(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for path, leaf in pytree.tree_flatten_with_path((args, kwargs))[0]:
        if leaf is None or isinstance(leaf, (torch.Tensor, bool, int, float, str, torch.ScriptObject)):
            continue
        kind = f"{type(leaf).__module__}.{type(leaf).__qualname__}"
        remedy = "bind it in the module instead, or register its class with torch.export.register_dataclass"
        if kind == "numpy.ndarray":
            remedy = "convert it with torch.from_numpy"
        place = ("args", "kwargs")[_key(path[0])] + pytree.keystr(path[1:])
        raise ArgumentError(f"{place} is a {kind}, which torch.export does not take; {remedy}.")


def _separate_storages(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Clones every tensor whose storage an earlier argument has.

    torch.export makes one fake tensor of a tensor given twice, so `x - y` would be captured as `y - y`.
    """
    seen: set[int] = set()

    def own(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout != torch.strided or not tensor.numel():
            return tensor
        storage = storage_id(tensor)
        if storage in seen:
            return tensor.detach().clone().requires_grad_(tensor.requires_grad)
        seen.add(storage)
        return tensor

    separated: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map_only(torch.Tensor, own, (args, kwargs))
    return separated


# --- the forward's parameters -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Parameters:
    """The example arguments by parameter, in signature order; those of `**kwargs` stand under their own names."""

    values: dict[str, Any]
    traced_order: tuple[str, ...]  # of the graph's inputs: positional ones, then keywords in the order they were given
    var_keyword: str | None = None


def _module_parameters(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Parameters:
    signature = inspect.signature(model.forward)
    try:
        values = dict(signature.bind(*args, **kwargs).arguments)
    except TypeError as error:
        hint = " (a dict that ends args is read as keyword arguments; follow it by {} if it is not)" if kwargs else ""
        raise ArgumentError(f"The arguments do not fit forward{signature}: {error}{hint}.") from error
    kinds = {parameter.kind: name for name, parameter in signature.parameters.items()}
    var_keyword = kinds.get(inspect.Parameter.VAR_KEYWORD)
    values |= values.pop(var_keyword, {}) if var_keyword else {}
    positional = (name for name in values if name not in kwargs)
    return _Parameters(values, (*positional, *kwargs), var_keyword)


def _program_parameters(program: ExportedProgram) -> _Parameters:
    """An ExportedProgram's arguments as its fake tensors, whose dynamic sizes are symbols."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    flat = [nodes[name].meta["val"] if name in nodes else None for name in _user_input_names(program)]
    args, kwargs = pytree.tree_unflatten(flat, program.call_spec.in_spec)
    names = getattr(program.module_call_graph[0].signature, "forward_arg_names", None)
    names = names or [f"args_{i}" for i in range(len(args))]
    values = dict(zip(names, args, strict=False)) | kwargs
    return _Parameters(values, tuple(values))


def _user_input_names(program: ExportedProgram) -> Iterator[str]:
    kind = torch.export.graph_signature.InputKind.USER_INPUT
    return (spec.arg.name for spec in program.graph_signature.input_specs if spec.kind == kind)


# --- dynamic axes and shapes ------------------------------------------------------------------------------------------


def _split_dynamic_axes(
    dynamic_axes: Mapping[str, Any], output_names: Sequence[str]
) -> tuple[dict[str, Mapping[int, str]], dict[str, Mapping[int, str]]]:
    """The entries of inputs and those of outputs, in dict form."""
    inputs: dict[str, Mapping[int, str]] = {}
    outputs: dict[str, Mapping[int, str]] = {}
    for name, axes in dynamic_axes.items():
        named = axes if isinstance(axes, Mapping) else _automatic_names(name, axes)
        if not all(isinstance(axis, int) and isinstance(dim, str) for axis, dim in named.items()):
            raise ArgumentError(f"dynamic_axes[{name!r}] must map axes to dim names or be a list of axes.")
        (outputs if name in output_names else inputs)[name] = dict(named)
    return inputs, outputs


def _automatic_names(name: str, axes: Any) -> dict[int, str]:
    if not isinstance(axes, Iterable) or isinstance(axes, str):
        raise ArgumentError(f"dynamic_axes[{name!r}] must map axes to dim names or be a list of axes.")
    return {axis: f"{name}_dynamic_axes_{i}" for i, axis in enumerate(axes, start=1)}


def _resolve(dynamic_shapes: Any, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not isinstance(dynamic_shapes, (ShapesCollection, AdditionalInputs)):
        return dynamic_shapes
    try:
        return dynamic_shapes.dynamic_shapes(model, args, kwargs)  # type: ignore[no-untyped-call]
    except (ValueError, TypeError) as error:
        raise ArgumentError(f"dynamic_shapes does not fit the arguments: {error}") from error


@dataclass
class _Leaf:
    """One input of the graph: a tensor, or an int asked to be dynamic; `dims` is what torch.export is told of it."""

    path: str
    value: Any
    dims: dict[int, Any] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def axes(self) -> dict[int, str | None]:
        asked = (axis for axis, dim in self.dims.items() if not isinstance(dim, int))
        return {axis: self.names.get(axis) for axis in asked}

    def ask(self, spec: Any) -> None:
        """Notes a spec of this tensor's dims: a mapping from axis to dim, or a sequence with one dim for each axis."""
        rank = self.value.ndim
        if not isinstance(spec, Mapping):
            if isinstance(spec, str) or not isinstance(spec, Sequence):
                raise ArgumentError(f"The dims of {self.path} must be a dict or a list, not {spec!r}.")
            if len(spec) != rank:
                raise ArgumentError(f"{self.path} has {rank} axes, but {len(spec)} dims are given for it.")
            spec = dict(enumerate(spec))
        for axis, dim in spec.items():
            if not isinstance(axis, int) or not -rank <= axis < rank:
                raise ArgumentError(f"{self.path} has {rank} axes, so its axis {axis!r} cannot be dynamic.")
            self._ask_one(axis % rank, dim)

    def _ask_one(self, axis: int, dim: Any) -> None:
        if axis in self.dims:
            raise ArgumentError(f"Axis {axis} of {self.path} is given twice in the dynamic shapes.")
        if isinstance(dim, str):
            self.names[axis], dim = dim, Dim.AUTO
        elif isinstance(dim, Dim):
            self.names[axis] = dim.__name__
        elif dim is None or (isinstance(dim, _DimHint) and dim.type == Dim.STATIC.type):
            return
        elif not isinstance(dim, (int, _DimHint)):
            raise ArgumentError(f"Axis {axis} of {self.path} must be a name, a Dim or an int, not {dim!r}.")
        self.dims[axis] = dim


class _Spec:
    """The dynamic shapes, laid over the example arguments."""

    def __init__(self, parameters: _Parameters, input_names: tuple[str, ...]) -> None:
        self.leaves: list[_Leaf] = []
        self._parameters = parameters
        self._input_names = input_names
        self._tree: dict[str, Any] = {}

    def read(self, spec: Any, *, names_first: bool) -> None:
        """Lays a spec in any form over the arguments.

        A key is a parameter or one of `input_names`; `names_first` decides for one that is both.
        """
        by_parameter, by_input = self._sort_keys(self._by_name(spec), names_first)
        for name in self._parameters.traced_order:
            self._tree[name] = self._lay(self._parameters.values[name], by_parameter.get(name), name)
        if len(self._input_names) > len(self.leaves):
            raise ArgumentError(
                f"input_names has {len(self._input_names)} names, but the model has {len(self.leaves)} inputs: "
                f"{_listed(leaf.path for leaf in self.leaves)}."
            )
        for number, dims in by_input.items():
            self._lay_leaf(self.leaves[number], dims)

    def for_torch(self) -> dict[str, Any] | None:
        """The spec as torch.export takes it, by parameter; None where nothing is dynamic."""
        asked = any(leaf.dims or not isinstance(leaf.value, torch.Tensor) for leaf in self.leaves)
        return self._tree if asked else None

    def tensors(self) -> tuple[TensorInput, ...]:
        """What was asked of each tensor, in the order of the graph's inputs."""
        tensors = (leaf for leaf in self.leaves if isinstance(leaf.value, torch.Tensor))
        return tuple(TensorInput(leaf.path, leaf.axes()) for leaf in tensors)

    def check(self) -> None:
        """Refuses one name on dims of different sizes."""
        first: dict[str, tuple[str, int]] = {}
        for leaf in self.leaves:
            for axis, name in leaf.names.items():
                place, size = f"{leaf.path}.shape[{axis}]", leaf.value.shape[axis]
                if not isinstance(size, int):  # an ExportedProgram's symbol
                    continue
                other, other_size = first.setdefault(name, (place, size))
                if size != other_size:
                    raise ArgumentError(
                        f"The dim name {name!r} stands for {other_size} at {other} and for {size} at {place}; "
                        "give them two names."
                    )

    def _by_name(self, spec: Any) -> dict[Any, Any]:
        """The spec as a dict, whose keys are parameters or inputs."""
        if spec is None:
            return {}
        var_keyword, names = self._parameters.var_keyword, list(self._parameters.values)
        if isinstance(spec, (tuple, list)):
            if spec and len(spec) != len(names):
                raise ArgumentError(
                    f"dynamic_shapes has {len(spec)} entries, but the forward is called with {len(names)} arguments: "
                    f"{_listed(names)}; give one each, None for a static one, or a dict by name."
                )
            return dict(zip(names, spec, strict=False))
        if not isinstance(spec, Mapping):
            raise ArgumentError(f"dynamic_shapes must be a dict, a tuple or a list, not {type(spec).__name__}.")
        given = dict(spec)
        if var_keyword in given and var_keyword not in names:
            given |= given.pop(var_keyword) or {}
        return given

    def _sort_keys(self, spec: dict[Any, Any], names_first: bool) -> tuple[dict[str, Any], dict[int, Any]]:
        by_parameter: dict[str, Any] = {}
        by_input: dict[int, Any] = {}
        for key, dims in spec.items():
            is_name, is_parameter = key in self._input_names, key in self._parameters.values
            if is_parameter and not (is_name and names_first):
                by_parameter[key] = dims
            elif is_name:
                by_input[self._input_names.index(key)] = dims
            else:
                known = _listed(dict.fromkeys([*self._parameters.values, *self._input_names]))
                raise ArgumentError(f"The dynamic shapes name {key!r}, which is none of the inputs {known}.")
        return by_parameter, by_input

    def _lay(self, value: Any, spec: Any, path: str) -> Any:
        """Lays a spec over one argument; returns the spec of it that torch.export takes."""
        if (parts := _children(value)) is None:
            return self._lay_new_leaf(value, spec, path)
        specs = _for_all(parts, spec, value) or _match(parts, spec, path)
        laid = [self._lay(part, specs[key], f"{path}[{key!r}]") for key, part in parts.items()]
        return _like(value, laid)

    def _lay_new_leaf(self, value: Any, spec: Any, path: str) -> Any:
        leaf = _Leaf(path, value)
        if isinstance(value, torch.Tensor):
            self.leaves.append(leaf)
            self._lay_leaf(leaf, spec)
            return leaf.dims
        if spec is None or (isinstance(spec, _DimHint) and spec.type == Dim.STATIC.type):
            return None
        if isinstance(value, (int, torch.SymInt)) and isinstance(spec, _DimHint):
            self.leaves.append(leaf)
            return spec
        raise ArgumentError(f"{path} is a {type(value).__name__}, not a tensor: {spec!r} cannot be its dynamic shape.")

    @staticmethod
    def _lay_leaf(leaf: _Leaf, spec: Any) -> None:
        if spec is not None:
            leaf.ask(spec)


# --- containers -------------------------------------------------------------------------------------------------------


def _children(value: Any) -> dict[Any, Any] | None:
    """The parts of a container by key, one level down; None for a leaf."""
    if pytree.tree_is_leaf(value):
        return None
    paths, _ = pytree.tree_flatten_with_path(value, is_leaf=lambda part: part is not value)
    return {_key(path[0]): part for path, part in paths}


def _key(entry: Any) -> Any:
    """A pytree path entry's index, key or attribute name."""
    return next(getattr(entry, name) for name in ("idx", "key", "name") if hasattr(entry, name))


def _for_all(parts: dict[Any, Any], spec: Any, value: Any) -> dict[Any, Any] | None:
    """The spec of each part where `spec` gives axes for all tensors in a container, such as a cache; else None.

    A tensor gets the axes it has; the counts of tokens that a cache keeps beside its tensors become dynamic.
    """
    if not isinstance(spec, Mapping) or not spec or not all(isinstance(axis, int) for axis in spec):
        return None
    tensors = [leaf for leaf in pytree.tree_leaves(list(parts.values())) if isinstance(leaf, torch.Tensor)]
    of_dims = all(dim is None or isinstance(dim, (str, Dim, _DimHint, int)) for dim in spec.values())
    if not of_dims or not any(-tensor.ndim <= axis < tensor.ndim for tensor in tensors for axis in spec):
        return None
    specs: dict[Any, Any] = {}
    for key, part in parts.items():
        axes = pytrees.axes_of_part(value, key, spec)
        if isinstance(part, torch.Tensor):
            specs[key] = {axis: dim for axis, dim in axes.items() if -part.ndim <= axis < part.ndim}
        elif pytree.tree_is_leaf(part):
            specs[key] = Dim.AUTO if pytrees.is_state(value) and type(part) is int else None
        else:
            has_some = any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(part))
            specs[key] = axes if has_some else None
    return specs


def _match(parts: dict[Any, Any], spec: Any, path: str) -> dict[Any, Any]:
    """The spec of each part: by key from a dict, which may leave parts out, or by position from a sequence."""
    if spec is None:
        return dict.fromkeys(parts)
    if isinstance(spec, Mapping):
        unknown = [key for key in spec if key not in parts]
        if unknown:
            raise ArgumentError(f"The dynamic shapes of {path} name {_listed(unknown)}, but it has {_listed(parts)}.")
        return {key: spec.get(key) for key in parts}
    if isinstance(spec, Sequence) and not isinstance(spec, str) and len(spec) == len(parts):
        return dict(zip(parts, spec, strict=True))
    raise ArgumentError(f"The dynamic shapes of {path} must match its {len(parts)} parts, but are {spec!r}.")


def _like(value: Any, parts: list[Any]) -> Any:
    """The parts in a container of the same kind; those of a class registered with pytree in the one it flattens to."""
    kind = type(value)
    if kind in pytree.BUILTIN_TYPES or pytree.is_namedtuple(value):
        _, tree = pytree.tree_flatten(value, is_leaf=lambda part: part is not value)
        return pytree.tree_unflatten(parts, tree)
    return type(pytree.SUPPORTED_NODES[kind].flatten_fn(value)[0])(parts)


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(str(name) for name in names) or "none"
