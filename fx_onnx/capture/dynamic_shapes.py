"""Reads ``dynamic_shapes`` in every form that torch.export accepts, and matches it with the example arguments.

A dim given by name (a string) is a request, not a guarantee: it becomes `Dim.AUTO`. If the model fixes the dim, the
export keeps it static and warns. `Dim` objects and `Dim.DYNAMIC` keep torch's meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import AdditionalInputs, Dim, ShapesCollection

from fx_onnx.capture import pytrees
from fx_onnx.capture.dim_expressions import AxisText
from fx_onnx.capture.forward_parameters import ForwardParameters
from fx_onnx.core.arguments import check_dim_name, did_you_mean, is_dim_word, shown
from fx_onnx.core.errors import ArgumentError
from fx_onnx.core.findings import warn
from fx_onnx.core.messages import MessageId
from fx_onnx.core.names import Names
from fx_onnx.core.torch_private import pytree

# torch.export has no public name for the type of Dim.AUTO, Dim.DYNAMIC and Dim.STATIC.
_DimHint = type(Dim.AUTO)


@dataclass(frozen=True)
class TensorRequest:
    """The axes of one example tensor that the user requested as dynamic.

    Attributes:
        path: Where the tensor is among the arguments, in the forward's own names: `x`, `past[0]['key']`.
        axes: Every axis requested as dynamic in any form, with the user's name for its dim, or None if it has no name.
    """

    path: str
    axes: Mapping[int, str | None]


def resolve_dynamic_shapes(dynamic_shapes: Any, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Converts ShapesCollection and AdditionalInputs into plain dynamic shapes; returns every other form unchanged.

    Raises:
        ArgumentError: torch finds that the object does not fit the arguments.
    """
    if not isinstance(dynamic_shapes, (ShapesCollection, AdditionalInputs)):
        return dynamic_shapes
    try:
        return dynamic_shapes.dynamic_shapes(model, args, kwargs)  # type: ignore[no-untyped-call]
    except (ValueError, TypeError) as error:
        raise ArgumentError(
            f"dynamic_shapes does not fit the arguments: {error}", id=MessageId.DYNAMIC_SHAPES
        ) from error


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

    def dynamic_axes(self) -> dict[int, str | None]:
        """Returns the axes requested as dynamic, each with its name or None."""
        dynamic = (axis for axis, dim in self.dims.items() if not isinstance(dim, int))
        return {axis: self.names.get(axis) for axis in dynamic}

    def add(self, spec: Any) -> None:
        """Adds a spec of this tensor's dims: a mapping from axis to dim, or a sequence with one dim for each axis."""
        if spec is None:
            return
        rank = self.value.ndim
        if not isinstance(spec, Mapping):
            if isinstance(spec, str) or not isinstance(spec, Sequence):
                raise ArgumentError(
                    f"The dims of {self.path} must be a dict or a list, not {shown(spec)}.", id=MessageId.DYNAMIC_SHAPES
                )
            if len(spec) != rank:
                raise ArgumentError(
                    f"{self.path} has {rank} axes, but {len(spec)} dims are given for it.", id=MessageId.DYNAMIC_SHAPES
                )
            spec = dict(enumerate(spec))
        for axis, dim in spec.items():
            if not isinstance(axis, int) or not -rank <= axis < rank:
                raise ArgumentError(
                    f"{self.path} has {rank} axes, so its axis {axis!r} cannot be dynamic.", id=MessageId.DYNAMIC_SHAPES
                )
            self._add_dim(axis % rank, dim)

    def _add_dim(self, axis: int, dim: Any) -> None:
        if axis in self.dims:
            raise ArgumentError(
                f"Axis {axis} of {self.path} is given twice in the dynamic shapes.", id=MessageId.DYNAMIC_SHAPES
            )
        if isinstance(dim, AxisText) and dim.isdecimal():
            if self.value.shape[axis] != int(dim):
                raise ArgumentError(
                    f"Axis {axis} of {self.path} has size {self.value.shape[axis]} in the example, but dynamic_axes "
                    f"gives it the size {dim!r} instead of a name.",
                    id=MessageId.DYNAMIC_SHAPES,
                )
            return
        if isinstance(dim, str):
            if not isinstance(dim, AxisText):
                check_dim_name("The dim name", dim, id=MessageId.DYNAMIC_SHAPES)
            self.names[axis], dim = dim, Dim.AUTO
        elif isinstance(dim, Dim):
            self._check_range(axis, dim)
            self.names[axis] = dim.__name__
        elif dim is None or _is_static_hint(dim):
            return
        elif isinstance(dim, int) and not isinstance(dim, bool):
            self._check_size(axis, dim)
        elif not isinstance(dim, _DimHint):
            raise ArgumentError(
                f"Axis {axis} of {self.path} must be a name, a Dim or an int, not {shown(dim)}.",
                id=MessageId.DYNAMIC_SHAPES,
            )
        self.dims[axis] = dim

    def _check_size(self, axis: int, dim: int) -> None:
        """Checks that an int, which makes a dim static, is the size in the example."""
        size = self.value.shape[axis]
        if isinstance(size, int) and size != dim:
            raise ArgumentError(
                f"Axis {axis} of {self.path} has size {size} in the example, but dynamic_shapes makes it the static "
                f"size {dim}; give a name for a dynamic dim.",
                id=MessageId.DYNAMIC_SHAPES,
            )

    def _check_range(self, axis: int, dim: Any) -> None:
        """Checks that the example is in the range of a Dim. A Dim that is computed from another one has no range."""
        size, low, high = self.value.shape[axis], getattr(dim, "min", None), getattr(dim, "max", None)
        if isinstance(size, int) and isinstance(low, int) and isinstance(high, int) and not low <= size <= high:
            raise ArgumentError(
                f"Axis {axis} of {self.path} has size {size} in the example, but the Dim {dim.__name__!r} allows "
                f"{low} to {high}.",
                id=MessageId.DYNAMIC_SHAPES,
            )


class DynamicShapes:
    """The dynamic shapes of a request, matched with the example arguments."""

    def __init__(
        self, spec: Any, parameters: ForwardParameters, input_names: tuple[str, ...], *, from_dynamic_axes: bool
    ) -> None:
        """Matches a spec in any form with the arguments.

        Args:
            spec: A dict by parameter or input name, a sequence with one entry for each argument, or None.
            parameters: The example arguments.
            input_names: The user's names for the graph's inputs, which may be keys of ``spec``.
            from_dynamic_axes: Whether ``spec`` comes from `dynamic_axes`. A key that is both an input name and a
                parameter then means the input, and one name for dims of different sizes is split into several names.

        Raises:
            ArgumentError: The spec does not match the arguments.
        """
        self._inputs: list[_Input] = []
        self._leaf_count = 0
        self._float_leaves: list[int] = []
        self._constants: list[str] = []
        self._parameters = parameters
        self._input_names = input_names
        by_parameter, by_input = self._split_keys(self._keyed(spec), prefer_input_names=from_dynamic_axes)
        self._by_parameter = {
            name: self._match(parameters.values[name], by_parameter.get(name), name) for name in parameters.input_order
        }
        for number, dims in by_input.items():
            self._named_input(number).add(dims)
        if from_dynamic_axes:
            self._split_names_by_size()
        self._check_sizes_of_names()

    @property
    def input_paths(self) -> list[str]:
        """Where each input of the graph is among the arguments, in the forward's own names."""
        return [each.path for each in self._inputs]

    @property
    def constants(self) -> list[str]:
        """Where each argument that is no input is, such as None or a bool, in the forward's own names."""
        return self._constants

    def for_torch(self) -> dict[str, Any] | None:
        """Returns the spec in torch.export's form, a dict by parameter; None if nothing is dynamic."""
        given = any(each.dims or not isinstance(each.value, torch.Tensor) for each in self._inputs)
        return self._by_parameter if given else None

    def tensors(self) -> tuple[TensorRequest, ...]:
        """Returns what was requested of each tensor, in the order of the graph's inputs."""
        tensors = (each for each in self._inputs if isinstance(each.value, torch.Tensor))
        return tuple(TensorRequest(each.path, each.dynamic_axes()) for each in tensors)

    def float_leaves(self) -> tuple[int, ...]:
        """Returns the places of the floats that were requested as dynamic, among the leaves of all arguments."""
        return tuple(self._float_leaves)

    def _split_names_by_size(self) -> None:
        """Gives one name to dims of one size only: dims of a second size get a new name, with a warning.

        torch.onnx.export ignores the names in `dynamic_axes` where it decides which dims are equal. Code written for it
        may give one name to dims that differ.
        """
        used = Names(name for each in self._inputs for name in each.names.values())
        by_size: dict[str, dict[Any, str]] = {}
        for each in self._inputs:
            for axis, name in each.names.items():
                size, known = each.value.shape[axis], by_size.setdefault(name, {})
                if not isinstance(size, int):  # a symbol of an ExportedProgram
                    continue
                if size not in known:
                    known[size] = used.unique(_as_word(name)) if known else name
                    if known[size] != name:
                        warn(
                            f"dynamic_axes calls dims of different sizes {name!r}; {each.path}.shape[{axis}], of size "
                            f"{size}, is called {known[size]!r}.",
                            MessageId.DIM_NAME,
                        )
                each.names[axis] = known[size]

    def _check_sizes_of_names(self) -> None:
        """Raises an ArgumentError if one name is given to dims of different sizes."""
        first: dict[str, tuple[str, int]] = {}
        for each in self._inputs:
            for axis, name in each.names.items():
                place, size = f"{each.path}.shape[{axis}]", each.value.shape[axis]
                if not isinstance(size, int):  # a symbol of an ExportedProgram
                    continue
                other, other_size = first.setdefault(name, (place, size))
                if size != other_size:
                    raise ArgumentError(
                        f"The dim name {name!r} has size {other_size} at {other} and size {size} at {place}; "
                        "use two names.",
                        id=MessageId.DYNAMIC_SHAPES,
                    )

    def _keyed(self, spec: Any) -> dict[Any, Any]:
        """Returns the spec as a dict, whose keys are parameters or input names."""
        if spec is None:
            return {}
        var_keyword, names = self._parameters.var_keyword, list(self._parameters.values)
        if isinstance(spec, (tuple, list)):
            spec = self._with_nested_arguments(spec)
            if spec and len(spec) != len(names):
                arguments = self._argument_names()
                raise ArgumentError(
                    f"dynamic_shapes has {len(spec)} entries, but the forward is called with {len(arguments)} "
                    f"{'argument' if len(arguments) == 1 else 'arguments'}: {_listed(arguments)}; give one entry for "
                    "each (None for a static one), or a dict by name.",
                    id=MessageId.DYNAMIC_SHAPES,
                )
            return dict(zip(names, spec, strict=False))
        if not isinstance(spec, Mapping):
            raise ArgumentError(
                f"dynamic_shapes must be a dict, a tuple or a list, not {type(spec).__name__}.",
                id=MessageId.DYNAMIC_SHAPES,
            )
        given = dict(spec)
        if var_keyword in given and var_keyword not in names:
            given |= given.pop(var_keyword) or {}
        return given

    def _argument_names(self) -> list[str]:
        """Returns the names of the arguments, one for each argument of ``*args``."""
        names = []
        for name, value in self._parameters.values.items():
            starred = name == self._parameters.var_positional
            names += [f"{name}[{place}]" for place in range(len(value))] if starred else [name]
        return names

    def _with_nested_arguments(self, spec: Sequence[Any]) -> Sequence[Any]:
        """Returns a sequence with one entry for ``*args``, also if it has one for each argument of these."""
        var_positional, values = self._parameters.var_positional, self._parameters.values
        if var_positional is None or len(spec) == len(values):
            return spec
        first, count = list(values).index(var_positional), len(values[var_positional])
        if len(spec) != len(values) - 1 + count:
            return spec
        return [*spec[:first], tuple(spec[first : first + count]), *spec[first + count :]]

    def _split_keys(self, spec: dict[Any, Any], *, prefer_input_names: bool) -> tuple[dict[str, Any], dict[int, Any]]:
        """Returns the entries by parameter name and the entries by input number."""
        by_parameter: dict[str, Any] = {}
        by_input: dict[int, Any] = {}
        for key, dims in spec.items():
            is_input_name, is_parameter = key in self._input_names, key in self._parameters.values
            if is_parameter and not (is_input_name and prefer_input_names):
                by_parameter[key] = dims
            elif is_input_name:
                by_input[self._input_names.index(key)] = dims
            else:
                known = _listed(dict.fromkeys([*self._parameters.values, *self._input_names]))
                if prefer_input_names:  # dynamic_axes; torch.onnx warns too
                    reason = f"which is neither in output_names nor one of the inputs {known}"
                    hint = did_you_mean(key, [*self._parameters.values, *self._input_names]) or "."
                    warn(f"dynamic_axes has no effect for {key!r}, {reason}{hint}", MessageId.DYNAMIC_SHAPES)
                    continue
                raise ArgumentError(
                    f"The dynamic shapes have an entry for {key!r}, which is not one of the inputs {known}"
                    f"{self._hint(key, spec) or '.'}",
                    id=MessageId.DYNAMIC_SHAPES,
                )
        return by_parameter, by_input

    def _named_input(self, number: int) -> _Input:
        """Returns the input that has the name with this number in ``input_names``.

        Raises:
            ArgumentError: The name is one of those after the inputs, which are for the weights.
        """
        if number < len(self._inputs):
            return self._inputs[number]
        raise ArgumentError(
            f"The dynamic shapes have an entry for {self._input_names[number]!r}, which input_names gives to a weight, "
            f"because the inputs are {_listed(self.input_paths)}; the sizes of a weight are static.",
            id=MessageId.DYNAMIC_SHAPES,
        )

    def _hint(self, key: Any, spec: dict[Any, Any]) -> str:
        """Returns a clause with what was probably meant: axes of the only input, or a name of an input."""
        if all(isinstance(each, int) for each in spec) and len(self._parameters.values) == 1:
            return f"; for the axes of {_listed(self._parameters.values)}, give dynamic_shapes=({spec!r},)."
        return did_you_mean(key, [*self._parameters.values, *self._input_names])

    def _match(self, value: Any, spec: Any, path: str) -> Any:
        """Matches a spec with one argument; returns the argument's spec in torch.export's form."""
        if (parts := _children(value)) is None:
            return self._match_leaf(value, spec, path)
        specs = _specs_of_whole_container(parts, spec, value) or _specs_of_parts(parts, spec, path)
        matched = [self._match(part, specs[key], f"{path}[{key!r}]") for key, part in parts.items()]
        return _container_like(value, matched)

    def _match_leaf(self, value: Any, spec: Any, path: str) -> Any:
        place, leaf = self._leaf_count, _Input(path, value)
        self._leaf_count += 1
        if isinstance(value, torch.Tensor):
            self._inputs.append(leaf)
            leaf.add(spec)
            return leaf.dims  # the same dict, so that an entry by input name, which is added later, is in it too
        if spec is None or _is_static_hint(spec):
            self._constants.append(path)
            return None
        if isinstance(value, (int, torch.SymInt)) and isinstance(spec, _DimHint):
            self._inputs.append(leaf)
            return spec
        if isinstance(value, float) and isinstance(spec, _DimHint):
            self._float_leaves.append(place)
            self._inputs.append(_Input(path, as_float_input(value)))
            return {}
        raise ArgumentError(
            f"{path} is a {type(value).__name__}, not a tensor: {spec!r} cannot be its dynamic shape.",
            id=MessageId.DYNAMIC_SHAPES,
        )


def _as_word(name: str) -> str:
    """Returns a name that can get a number at its end; ``a + b_1`` would mean another size."""
    return name if is_dim_word(name) else re.sub(r"\W+", "_", name).strip("_") or "dim"


def as_float_input(value: float) -> torch.Tensor:
    """Returns the 0-d tensor that replaces a float, which torch.export would make a constant."""
    return torch.tensor(value, dtype=torch.float64)


def _is_static_hint(dim: Any) -> bool:
    return isinstance(dim, _DimHint) and dim.type == Dim.STATIC.type


# --- containers -------------------------------------------------------------------------------------------------------


def _children(value: Any) -> dict[Any, Any] | None:
    """Returns the direct parts of a container by key; None for a leaf."""
    if pytree.tree_is_leaf(value):
        return None
    paths, _ = pytree.tree_flatten_with_path(value, is_leaf=lambda part: part is not value)
    return {pytrees.path_key(path[0]): part for path, part in paths}


def _specs_of_whole_container(parts: dict[Any, Any], spec: Any, value: Any) -> dict[Any, Any] | None:
    """Distributes axes given for a whole container, such as a cache, to its parts; None if ``spec`` has another form.

    A tensor gets only the axes that exist for its rank. The token counts that a cache keeps beside its tensors become
    dynamic.
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
            specs[key] = Dim.AUTO if pytrees.is_cache_part(value) and type(part) is int else None
        else:
            has_some = any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(part))
            specs[key] = axes if has_some else None
    return specs


def _specs_of_parts(parts: dict[Any, Any], spec: Any, path: str) -> dict[Any, Any]:
    """Returns the spec of each part: by key from a dict, which may omit parts, or by position from a sequence."""
    if spec is None:
        return dict.fromkeys(parts)
    if isinstance(spec, Mapping):
        unknown = [key for key in spec if key not in parts]
        if unknown:
            raise ArgumentError(
                f"The dynamic shapes of {path} have entries for {_listed(unknown)}, but it has {_listed(parts)}.",
                id=MessageId.DYNAMIC_SHAPES,
            )
        return {key: spec.get(key) for key in parts}
    if isinstance(spec, Sequence) and not isinstance(spec, str) and len(spec) == len(parts):
        return dict(zip(parts, spec, strict=True))
    raise ArgumentError(
        f"The dynamic shapes of {path} must match its {len(parts)} parts, but are {spec!r}.",
        id=MessageId.DYNAMIC_SHAPES,
    )


def _container_like(value: Any, parts: list[Any]) -> Any:
    """Puts the parts into a container of the same kind.

    For a class registered with pytree, torch.export expects the list or tuple that the class flattens to.
    """
    kind = type(value)
    if kind in pytree.BUILTIN_TYPES or pytree.is_namedtuple(value):
        _, tree = pytree.tree_flatten(value, is_leaf=lambda part: part is not value)
        return pytree.tree_unflatten(parts, tree)
    return type(pytree.SUPPORTED_NODES[kind].flatten_fn(value)[0])(parts)


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(str(name) for name in names) or "none"
