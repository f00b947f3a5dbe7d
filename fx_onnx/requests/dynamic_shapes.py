"""Reads ``dynamic_shapes`` in every form that torch.export accepts, and ``dynamic_axes``, for the example arguments.

A dim given by name (a string) is a request, not a guarantee: it becomes `Dim.AUTO`. If the model fixes the dim, the
export keeps it static and warns. `Dim` objects and `Dim.DYNAMIC` keep torch's meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import torch
from torch.export import AdditionalInputs, Dim, ShapesCollection

from fx_onnx.messages.arguments import check_dim_name, check_name, counted, did_you_mean, is_dim_word, shown
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model.names import Names
from fx_onnx.requests import pytrees
from fx_onnx.requests.dim_expressions import AxisText, dim_expression
from fx_onnx.requests.forward_parameters import ForwardParameters
from fx_onnx.torch_internals.torch_private import pytree

# torch.export has no public name for the type of Dim.AUTO, Dim.DYNAMIC and Dim.STATIC.
_DimHint = type(Dim.AUTO)


def _wrong(message: str) -> ArgumentError:
    return ArgumentError(message, id=MessageId.DYNAMIC_SHAPES)


# --- the forms --------------------------------------------------------------------------------------------------------


def split_dynamic_axes(
    dynamic_axes: Mapping[str, Any], output_names: Sequence[str]
) -> tuple[dict[str, Mapping[int, str]], dict[str, Mapping[int, str]]]:
    """Returns the entries of inputs and the entries of outputs, each as ``{name: {axis: dim name}}``.

    A list of axes gets automatic dim names: ``{"x": [0, 2]}`` names them ``x_dynamic_axes_1`` and ``x_dynamic_axes_2``.
    Any text may name a dim, as in torch.onnx. A number, such as ``{1: "1"}``, says that the axis has this size; the
    input must have it, and an output has the size that the model computes.

    Raises:
        ArgumentError: An entry is neither a dict from axes to names nor a list of axes.
    """
    inputs = {name: _named_axes(name, axes) for name, axes in dynamic_axes.items()}
    outputs = {name: inputs.pop(name) for name in output_names if name in inputs}
    return inputs, {
        name: {axis: dim for axis, dim in axes.items() if not dim.isdecimal()} for name, axes in outputs.items()
    }


def _named_axes(name: Any, axes: Any) -> Mapping[int, str]:
    """Returns the dim name, or the size as text, of each axis in one entry of ``dynamic_axes``."""
    check_name("A key of dynamic_axes", name)
    if isinstance(axes, Iterable) and not isinstance(axes, (str, Mapping)):
        prefix = re.sub(r"[^\w.:]", "_", name)  # a dim name allows fewer characters
        axes = {axis: f"{prefix}_dynamic_axes_{i}" for i, axis in enumerate(axes, start=1)}
    if not isinstance(axes, Mapping) or not all(isinstance(k, int) and isinstance(v, str) for k, v in axes.items()):
        raise _wrong(f"dynamic_axes[{name!r}] must map axes to dim names or be a list of axes.")
    for dim in axes.values():
        check_name("The dim name", dim)
        is_size = dim.isascii() and dim.isdecimal()
        # A program that reads the model would compute a number such as "-1" or "2 * 3".
        if not is_size and (dim.strip().lstrip("+-").isdigit() or dim_expression(dim, {}) is not None):
            raise _wrong(f"The dim name {dim!r} is a number; use a name such as 'batch_size'.")
    return {axis: AxisText(dim) for axis, dim in axes.items()}


def resolve_dynamic_shapes(dynamic_shapes: Any, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Converts ShapesCollection and AdditionalInputs into plain dynamic shapes; returns every other form unchanged.

    Raises:
        ArgumentError: It has another form, or torch finds that the object does not fit the arguments.
    """
    if not isinstance(dynamic_shapes, (ShapesCollection, AdditionalInputs)):
        if isinstance(dynamic_shapes, str) or not isinstance(dynamic_shapes, (type(None), Mapping, Sequence)):
            raise _wrong(f"dynamic_shapes must be a dict, a tuple or a list, not {shown(dynamic_shapes)}.")
        return dynamic_shapes
    try:
        return dynamic_shapes.dynamic_shapes(model, args, kwargs)  # type: ignore[no-untyped-call]
    except (ValueError, TypeError) as error:
        raise _wrong(f"dynamic_shapes does not fit the arguments: {error}") from error


# --- one input --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TensorRequest:
    """The axes of one example tensor that the user requested as dynamic.

    Attributes:
        path: Where the tensor is among the arguments, in the forward's own names: `x`, `past[0]['key']`.
        axes: Every axis requested as dynamic in any form, with the user's name for its dim, or None if it has no name.
    """

    path: str
    axes: Mapping[int, str | None]


@dataclass
class _Input:
    """One input of the graph: a tensor, or a number that was requested as dynamic.

    Attributes:
        path: Where the value is among the arguments.
        value: The example value.
        dims: The dim of each mentioned axis, in the form that torch.export takes.
        names: The user's names for dims, by axis.
    """

    path: str
    value: Any
    dims: dict[int, Any] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def add(self, spec: Any) -> None:
        """Adds a spec of this tensor's dims: a mapping from axis to dim, or a sequence with one dim for each axis."""
        rank = self.value.ndim
        if not isinstance(spec, (Mapping, Sequence, type(None))) or isinstance(spec, str):
            raise _wrong(f"The dims of {self.path} must be a dict or a list, not {shown(spec)}.")
        if isinstance(spec, Sequence) and len(spec) != rank:
            raise _wrong(f"{self.path} has {counted(rank, 'axis', 'axes')}, and its entry {counted(len(spec), 'dim')}.")
        for axis, dim in spec.items() if isinstance(spec, Mapping) else enumerate(spec or ()):
            if not isinstance(axis, int) or not -rank <= axis < rank:
                raise _wrong(f"{self.path} has {rank} axes, so its axis {axis!r} cannot be dynamic.")
            if axis % rank in self.dims:
                raise _wrong(f"Axis {axis % rank} of {self.path} is given twice in the dynamic shapes.")
            if dim is not None and not _is_static_hint(dim):
                self._add_dim(axis % rank, dim)

    def _add_dim(self, axis: int, dim: Any) -> None:
        match dim:
            case AxisText() if dim.isdecimal():
                self._check_size(axis, int(dim), int(dim), f"dynamic_axes gives it the size {dim!r} instead of a name")
                return
            case str():
                if not isinstance(dim, AxisText):
                    check_dim_name("The dim name", dim, id=MessageId.DYNAMIC_SHAPES)
                self.names[axis], dim = dim, Dim.AUTO
            case Dim():
                root, number, words = _root(dim, self.value.shape[axis])
                self._check_size(axis, root.min, root.max, f"the Dim {dim.__name__!r} allows {words}", number)
                self.names[axis] = dim.__name__
            case int() if not isinstance(dim, bool):
                static = f"dynamic_shapes makes it the static size {dim}; give a name for a dynamic dim"
                self._check_size(axis, dim, dim, static)
            case _ if not isinstance(dim, _DimHint):
                raise _wrong(f"Axis {axis} of {self.path} must be a name, a Dim or an int, not {shown(dim)}.")
        self.dims[axis] = dim

    def _check_size(self, axis: int, low: Any, high: Any, text: str, number: Any = None) -> None:
        """Checks that the size in the example, or the number from which a Dim computes it, is in a range."""
        size = self.value.shape[axis]
        value = size if number is None else number
        if isinstance(size, int) and (value != value // 1 or not low <= value <= high):
            raise _wrong(f"{self.path}.shape[{axis}] has size {size} in the example, but {text}.")


def _root(dim: Any, size: Any) -> tuple[Any, Any, str]:
    """Returns the Dim that has the range, such as h of ``2 * h``, its number for a size, and the sizes in words."""
    root = getattr(dim, "root", dim)
    words = f"{root.min} to {root.max}" if isinstance(root.max, int) else f"{root.min} or more"
    if root is dim or not isinstance(size, int):
        return root, size, words
    offset = dim.fn(0)
    return root, Fraction(size - offset, dim.fn(1) - offset), f"the sizes for integers {root.__name__} of {words}"


# --- all inputs -------------------------------------------------------------------------------------------------------


class DynamicShapes:
    """The dynamic shapes of a request, matched with the example arguments.

    Attributes:
        inputs: The inputs of the graph, in its order.
        constants: Where each argument that is no input is, such as None or a bool, in the forward's own names.
        floats: The place of each float that was requested as dynamic, among the leaves of all arguments → the 0-d
            tensor that replaces it, because torch.export would make the float a constant.
    """

    def __init__(
        self, spec: Any, parameters: ForwardParameters, input_names: tuple[str, ...], *, from_dynamic_axes: bool
    ) -> None:
        """Matches a spec in any form with the arguments.

        Args:
            spec: A dict by parameter or input name, a sequence with one entry for each argument, or None.
            parameters: The example arguments.
            input_names: The user's names for the graph's inputs, which may be keys of ``spec``.
            from_dynamic_axes: Whether ``spec`` comes from `dynamic_axes`. A key that is both an input name and a
                parameter then means the input.

        Raises:
            ArgumentError: The spec does not match the arguments.
        """
        self.inputs: list[_Input] = []
        self.constants: list[str] = []
        self.floats: dict[int, torch.Tensor] = {}
        values = parameters.values
        by_parameter: dict[str, Any] = {}
        by_input: dict[str, Any] = {}
        for key, dims in _keyed(spec, parameters).items():
            if key in values and not (from_dynamic_axes and key in input_names):
                by_parameter[key] = dims
            elif key in input_names:
                by_input[key] = dims
            else:
                _refuse_key(key, spec, [*values, *input_names], from_dynamic_axes, is_alone=len(values) == 1)
        self._by_parameter = {
            name: self._match(values[name], by_parameter.get(name), name) for name in parameters.input_order
        }
        named = dict(zip(input_names, self.inputs, strict=False))  # the names after those of the inputs are for weights
        for key, dims in by_input.items():
            if key not in named:
                raise _wrong(
                    f"The dynamic shapes have an entry for {key!r}, which input_names gives to a weight, because the "
                    f"inputs are {_listed(leaf.path for leaf in self.inputs)}; the sizes of a weight are static."
                )
            named[key].add(dims)
        self._name_dims()

    def for_torch(self) -> dict[str, Any] | None:
        """Returns the spec in torch.export's form, a dict by parameter; None if nothing is dynamic."""
        given = any(leaf.dims or not isinstance(leaf.value, torch.Tensor) for leaf in self.inputs)
        return self._by_parameter if given else None

    def tensors(self) -> tuple[TensorRequest, ...]:
        """Returns what was requested of each tensor, in the order of the graph's inputs."""
        return tuple(
            TensorRequest(
                leaf.path, {axis: leaf.names.get(axis) for axis, dim in leaf.dims.items() if not isinstance(dim, int)}
            )
            for leaf in self.inputs
            if isinstance(leaf.value, torch.Tensor)
        )

    def _name_dims(self) -> None:
        """Gives one name to dims of one size only; dims of a second size get a new name, with a warning.

        torch.onnx.export ignores the names where it decides which dims are equal. Code written for it may give one name
        to dims that differ. One `Dim` for such dims is an error of torch.export.

        Raises:
            ArgumentError: One `Dim` is given to dims of different sizes.
        """
        used = Names(name for leaf in self.inputs for name in leaf.names.values())
        known: dict[str, dict[int, tuple[str, str]]] = {}  # name → size → the name for it, the first place
        for leaf in self.inputs:
            for axis, name in leaf.names.items():
                size, text = leaf.value.shape[axis], f"{leaf.path}.shape[{axis}]"
                if not isinstance(size, int):  # a symbol of an ExportedProgram
                    continue
                sizes = known.setdefault(name, {})
                if sizes and size not in sizes:
                    sizes[size] = used.unique(_as_word(name)), text
                    if isinstance(leaf.dims[axis], Dim):
                        other, (_, first) = next(iter(sizes.items()))
                        raise _wrong(
                            f"The dim name {name!r} has size {other} at {first} and size {size} at {text}; use two "
                            "Dims."
                        )
                    warn(
                        f"{name!r} is the name of dims of different sizes; {text}, of size {size}, is called "
                        f"{sizes[size][0]!r}.",
                        MessageId.DIM_NAME,
                    )
                leaf.names[axis], _ = sizes.setdefault(size, (name, text))

    def _match(self, value: Any, spec: Any, path: str) -> Any:
        """Matches a spec with one argument; returns the argument's spec in torch.export's form.

        For a class registered with pytree, torch.export expects the list or tuple that the class flattens to.
        """
        if pytree.tree_is_leaf(value):
            return self._match_leaf(value, spec, path)
        children, tree = pytree.tree_flatten_with_path(value, is_leaf=lambda part: part is not value)
        parts = {pytrees.path_key(keys[0]): part for keys, part in children}
        specs = _specs_of_whole_container(parts, spec, value) or _specs_of_parts(parts, spec, path)
        matched = [self._match(part, specs[key], f"{path}[{key!r}]") for key, part in parts.items()]
        if type(value) in pytree.BUILTIN_TYPES or pytree.is_namedtuple(value):
            return pytree.tree_unflatten(matched, tree)
        return type(pytree.SUPPORTED_NODES[type(value)].flatten_fn(value)[0])(matched)

    def _match_leaf(self, value: Any, spec: Any, path: str) -> Any:
        if not isinstance(value, torch.Tensor) and (spec is None or _is_static_hint(spec)):
            self.constants.append(path)
            return None
        if isinstance(value, float) and isinstance(spec, _DimHint):
            index, value, spec = len(self.inputs) + len(self.constants), torch.tensor(value, dtype=torch.float64), None
            self.floats[index] = value
        leaf = _Input(path, value)
        self.inputs.append(leaf)
        if isinstance(value, torch.Tensor):
            leaf.add(spec)
            return leaf.dims  # the same dict, so that an entry by input name, which is added later, is in it too
        if isinstance(value, (int, torch.SymInt)) and isinstance(spec, _DimHint):
            return spec
        raise _wrong(f"{path} is a {type(value).__name__}, not a tensor: {spec!r} cannot be its dynamic shape.")


def _keyed(spec: Any, parameters: ForwardParameters) -> dict[Any, Any]:
    """Returns the spec as a dict, whose keys are parameters or input names.

    A sequence has one entry for ``*args``, or one for each argument of these.
    """
    values, starred = parameters.values, parameters.var_positional
    if isinstance(spec, Sequence):
        counts = {name: len(value) if name == starred else 1 for name, value in values.items()}
        if starred and len(spec) == sum(counts.values()) != len(values):
            first = list(values).index(starred)
            last = first + counts[starred]
            spec = [*spec[:first], tuple(spec[first:last]), *spec[last:]]
        if spec and len(spec) != len(values):
            names = [f"{name}[{i}]" if name == starred else name for name in values for i in range(counts[name])]
            raise _wrong(
                f"dynamic_shapes has {len(spec)} entries, but the forward is called with {len(names)} "
                f"{'argument' if len(names) == 1 else 'arguments'}: {_listed(names)}; give one entry for each (None "
                "for a static one), or a dict by name."
            )
        return dict(zip(values, spec, strict=False))
    given = dict(spec or {})
    if parameters.var_keyword not in (None, *values):
        given |= given.pop(parameters.var_keyword, None) or {}
    return given


def _refuse_key(key: Any, spec: Any, known: list[str], from_dynamic_axes: bool, *, is_alone: bool) -> None:
    """Raises an ArgumentError about a key that is no input, or warns if it comes from `dynamic_axes`, as torch.onnx.

    The sentence says what was probably meant: axes of the only input, or a name of an input.
    """
    names, hint = _listed(dict.fromkeys(known)), did_you_mean(key, known) or "."
    if from_dynamic_axes:
        reason = f"which is neither in output_names nor one of the inputs {names}"
        warn(f"dynamic_axes has no effect for {key!r}, {reason}{hint}", MessageId.DYNAMIC_SHAPES)
        return
    if is_alone and all(isinstance(key, int) for key in spec):
        hint = f"; for the axes of {known[0]}, give dynamic_shapes=({spec!r},)."
    raise _wrong(f"The dynamic shapes have an entry for {key!r}, which is not one of the inputs {names}{hint}")


def _as_word(name: str) -> str:
    """Returns a name that can get a number at its end; ``a + b_1`` would mean another size."""
    return name if is_dim_word(name) else re.sub(r"\W+", "_", name).strip("_") or "dim"


def _is_static_hint(dim: Any) -> bool:
    return isinstance(dim, _DimHint) and dim.type == Dim.STATIC.type


# --- containers -------------------------------------------------------------------------------------------------------


def _specs_of_whole_container(parts: dict[Any, Any], spec: Any, value: Any) -> dict[Any, Any] | None:
    """Returns the axes given for a whole container, such as a cache, for its parts; None for a spec of another form."""
    dims = (str, Dim, _DimHint, int, type(None))
    if not isinstance(spec, Mapping) or not all(isinstance(k, int) and isinstance(v, dims) for k, v in spec.items()):
        return None
    tensors = [leaf for leaf in pytree.tree_leaves(list(parts.values())) if isinstance(leaf, torch.Tensor)]
    if not any(-tensor.ndim <= axis < tensor.ndim for tensor in tensors for axis in spec):
        return None
    return {key: _spec_of_part(value, part, pytrees.axes_of_part(value, key, spec)) for key, part in parts.items()}


def _spec_of_part(value: Any, part: Any, axes: Mapping[int, Any]) -> Any:
    """Returns the spec of one part of a container.

    A tensor gets only the axes that exist for its rank. The token counts that a cache keeps beside its tensors become
    dynamic.
    """
    if isinstance(part, torch.Tensor):
        return {axis: dim for axis, dim in axes.items() if -part.ndim <= axis < part.ndim}
    if pytree.tree_is_leaf(part):
        return Dim.AUTO if pytrees.is_cache_part(value) and type(part) is int else None
    return axes if any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(part)) else None


def _specs_of_parts(parts: dict[Any, Any], spec: Any, path: str) -> dict[Any, Any]:
    """Returns the spec of each part: by key from a dict, which may omit parts, or by position from a sequence."""
    if isinstance(spec, Sequence) and not isinstance(spec, str) and len(spec) == len(parts):
        return dict(zip(parts, spec, strict=True))
    if not isinstance(spec, (Mapping, type(None))):
        raise _wrong(f"The dynamic shapes of {path} must match its {len(parts)} parts, but are {spec!r}.")
    given = dict.fromkeys(parts) | dict(spec or {})
    unknown = [key for key in given if key not in parts]
    if unknown:
        raise _wrong(f"The dynamic shapes of {path} have entries for {_listed(unknown)}, but it has {_listed(parts)}.")
    return given


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(str(name) for name in names) or "none"
