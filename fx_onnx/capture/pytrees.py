"""Classes that torch.export does not know as containers, registered with its pytree when an export meets them.

Dataclasses are registered with torch.export's own function. The caches of transformers are registered here, if the user
has imported it: transformers' own function knows only one of them, names its tensors by kind before layer, and forgets
how many tokens a sliding window has seen. A cache's children are its layers by number, a layer's are its tensors by
attribute (`past_key_values[0].key`); everything else is context, which must be the same in every call. Sizes are no
context: they are read from the tensors again, so that a program takes caches of every length.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from fx_onnx.core import symbolic_sizes
from fx_onnx.core.torch_private import pytree

_CACHES = "transformers.cache_utils"
_SHORT = {"keys": "key", "values": "value"}
_LONG = {short: long for long, short in _SHORT.items()}

# Attributes of a layer that its keys and values tell.
_DERIVED = {
    "dtype": lambda keys, values: keys.dtype,
    "device": lambda keys, values: keys.device,
    "batch_size": lambda keys, values: keys.shape[0],
    "num_heads": lambda keys, values: keys.shape[1],
    "k_head_dim": lambda keys, values: keys.shape[-1],
    "v_head_dim": lambda keys, values: values.shape[-1],
}
_COUNTS = ("cumulative_length", "cumulative_length_int")  # of tokens, more than the layer holds
_FIXED = ("conv_states", "recurrent_states")  # attributes of a layer of linear attention
_WINDOW = "_sliding_window_tensor"  # a tensor of the number `sliding_window`

_registered: set[type] = set()


def register(tree: Any) -> None:
    """Registers the caches of transformers, if it is imported, and every dataclass in the tree."""
    if (caches := sys.modules.get(_CACHES)) is not None:
        for name in ("Cache", "CacheLayerMixin", "LinearAttentionCacheLayerMixin", "DummyLayer"):
            for cls in _with_subclasses(getattr(caches, name)):
                _register_state(cls)
    while unknown := {type(leaf) for leaf in pytree.tree_leaves(tree) if _can_register(leaf)}:
        for cls in unknown:
            if dataclasses.is_dataclass(cls):
                torch.export.register_dataclass(cls)
            else:
                _register_state(cls)


def is_state(value: Any) -> bool:
    """Whether this module made a container of the value's class: a cache or one of its layers."""
    return type(value) in _registered


def axes_of_part(value: Any, key: Any, axes: Mapping[int, Any]) -> Mapping[int, Any]:
    """The dims that were given for a whole cache, as they are for one part of it.

    Layers with a sliding window hold fewer tokens than those without: their dim is `NAME_window`. The states of linear
    attention and of convolutions have no axis but the batch that any length of the past changes.
    """
    if is_state(value) and key in _FIXED:
        return {axis: dim for axis, dim in axes.items() if axis == 0}
    if is_state(value) and getattr(value, "is_sliding", False) is True:
        held = [axis for axis in (2, -2) if isinstance(axes.get(axis), str)]
        return {**axes, **{axis: f"{axes[axis]}_window" for axis in held}}
    return axes


def names(spec: pytree.TreeSpec) -> list[tuple[Any, ...]]:
    """The path to each leaf of a structure, by index, key or attribute."""
    if spec.is_leaf():
        return [()]
    own = _keys(spec)
    return [(key, *rest) for key, child in zip(own, spec.children(), strict=True) for rest in names(child)]


def states(spec: pytree.TreeSpec) -> list[bool]:
    """For each leaf of a structure, whether it is a part of a cache."""
    inside = spec.type in _registered
    return [inside] if spec.is_leaf() else [inside or part for child in spec.children() for part in states(child)]


def is_keyed(spec: pytree.TreeSpec) -> bool:
    """Whether the outermost container has names for its parts: a dict, a dataclass, a named tuple, a cache."""
    return not spec.is_leaf() and not all(isinstance(key, int) for key in _keys(spec))


def _keys(spec: pytree.TreeSpec) -> list[Any]:
    """The keys of a structure's children."""
    count, context = spec.num_children, spec.context
    if spec.type in _registered:
        return list(context["children"])
    if isinstance(context, type) and pytree.is_namedtuple_class(context):
        return list(context._fields)  # type: ignore[attr-defined]
    if dataclasses.is_dataclass(spec.type) and isinstance(context, (list, tuple)):
        context = context[0] if context and isinstance(context[0], list) else context  # register_dataclass: with None's
    elif spec.type.__name__ == "defaultdict":
        context = context[1]
    if isinstance(context, (list, tuple)) and len(context) == count:
        return list(context)
    return list(range(count))


# --- registration -----------------------------------------------------------------------------------------------------


def _with_subclasses(cls: type) -> Iterator[type]:
    yield cls
    subclasses: list[type] = cls.__subclasses__()
    for subclass in subclasses:
        yield from _with_subclasses(subclass)


def _can_register(leaf: Any) -> bool:
    cls = type(leaf)
    if cls in pytree.SUPPORTED_NODES:
        return False
    return dataclasses.is_dataclass(cls) or (cls.__name__.endswith("Cache") and hasattr(leaf, "__dict__"))


def _register_state(cls: type) -> None:
    if cls in pytree.SUPPORTED_NODES:  # the user's own registration stays
        return
    pytree.register_pytree_node(
        cls,
        _flatten,
        lambda children, context: _unflatten(cls, children, context),
        serialized_type_name=f"{cls.__module__}.{cls.__qualname__}",
        flatten_with_keys_fn=_flatten_with_keys,
    )
    _registered.add(cls)


def _flatten(state: Any) -> tuple[list[Any], dict[str, Any]]:
    """The attributes that hold tensors are children; the others, as JSON has them, are context."""
    attributes = dict(vars(state))
    window = attributes.pop(_WINDOW, None)
    derived = [name for name in _DERIVED if name in attributes and _is_derived(name, attributes)]
    for name in derived:
        del attributes[name]
    layers = attributes.pop("layers", None)
    parts: dict[Any, Any] = dict(enumerate(layers)) if layers is not None else {}
    counted = isinstance(attributes.get("keys"), torch.Tensor)
    for name in list(attributes):
        value = attributes[name]
        if _has_tensors(value) or (name in _COUNTS and counted):
            parts[_SHORT.get(name, name)] = attributes.pop(name)
    context = {name: _encode(value) for name, value in attributes.items()}
    shape = {"children": list(parts), "layers": layers is not None, "derived": derived, "window": window is not None}
    return list(parts.values()), {**shape, "context": context}


def _flatten_with_keys(state: Any) -> tuple[list[tuple[Any, Any]], dict[str, Any]]:
    children, context = _flatten(state)
    keys: list[Any] = [
        pytree.SequenceKey(key) if isinstance(key, int) else pytree.GetAttrKey(key) for key in context["children"]
    ]
    return list(zip(keys, children, strict=True)), context


def _unflatten(cls: type, children: Iterable[Any], context: dict[str, Any]) -> Any:
    state: Any = object.__new__(cls)
    attributes = vars(state)
    parts = dict(zip(context["children"], children, strict=True))
    attributes.update({name: _decode(value) for name, value in context["context"].items()})
    if context["layers"]:
        attributes["layers"] = [part for key, part in parts.items() if isinstance(key, int)]
    attributes.update({_LONG.get(key, key): part for key, part in parts.items() if not isinstance(key, int)})
    keys, values = attributes.get("keys"), attributes.get("values")
    for name in context["derived"]:  # pytree also puts other things than tensors in the place of leaves
        attributes[name] = _DERIVED[name](keys, values) if isinstance(keys, torch.Tensor) else None
    if context["window"]:
        attributes[_WINDOW] = torch.full((), attributes["sliding_window"], dtype=torch.int64)
    return state


def _is_derived(name: str, attributes: dict[str, Any]) -> bool:
    keys, values, own = attributes.get("keys"), attributes.get("values"), attributes[name]
    if not isinstance(keys, torch.Tensor) or not isinstance(values, torch.Tensor) or isinstance(own, torch.Tensor):
        return False
    if name in ("dtype", "device"):
        return True
    return keys.dim() == 4 and symbolic_sizes.same_size(own, _DERIVED[name](keys, values))


def _has_tensors(value: Any) -> bool:
    return type(value) in _registered or any(
        isinstance(leaf, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool))
        for leaf in pytree.tree_leaves(value)
    )


def _encode(value: Any) -> Any:
    """A value without tensors as JSON has it, with what JSON lacks under a mark.

    Raises:
        TypeError: it has no such form.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return {"kind": type(value).__name__, "value": [_encode(item) for item in value]}
    if isinstance(value, dict):
        return {"kind": "dict", "value": [[_encode(key), _encode(item)] for key, item in value.items()]}
    if isinstance(value, (torch.dtype, torch.device)):
        return {"kind": type(value).__name__, "value": str(value).removeprefix("torch.")}
    if isinstance(value, type):
        return {"kind": "type", "value": [value.__module__, value.__qualname__]}
    raise TypeError(f"A {type(value).__name__} cannot be a part of an input or output of an exported program.")


def _decode(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    kind, inner = value["kind"], value["value"]
    if kind == "dict":
        return {_decode(key): _decode(item) for key, item in inner}
    if kind == "dtype":
        return getattr(torch, inner)
    if kind == "device":
        return torch.device(inner)
    if kind == "type":
        return getattr(importlib.import_module(inner[0]), inner[1])
    items = [_decode(item) for item in inner]
    return items if kind == "list" else tuple(items)
