"""Registers container classes with torch's pytree, and describes the structure of arguments and results.

torch.export takes a class as a container only if the class is registered with pytree. ``register`` does this for
dataclasses, by torch.export's own function, and for the cache classes of transformers. transformers has a function for
this too, but it registers only one of the classes, it names a tensor by its kind and then its layer, and it loses the
count of tokens that a sliding window has seen.

A cache's children are its layers, by number. A layer's children are its tensors, by attribute
(`past_key_values[0].key`). All other attributes are context, which must be the same in every call. Sizes are not
context: they are computed from the tensors when a cache is rebuilt, so that a program takes caches of every length.

A registration is permanent, because torch looks it up again whenever the exported program is called or saved.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from fx_onnx.core import symbolic_sizes
from fx_onnx.core.torch_private import pytree

_CACHE_MODULE = "transformers.cache_utils"
# The classes from which transformers derives its caches and layers. transformers 4 has only the first two.
_CACHE_BASES = ("Cache", "CacheLayerMixin", "LinearAttentionCacheLayerMixin", "DummyLayer")
_CHILD_NAMES = {"keys": "key", "values": "value"}  # attribute → name of the child
_ATTRIBUTE_NAMES = {child: attribute for attribute, child in _CHILD_NAMES.items()}

# Attributes of a layer that can be computed from its keys and values.
_DERIVED = {
    "dtype": lambda keys, values: keys.dtype,
    "device": lambda keys, values: keys.device,
    "batch_size": lambda keys, values: keys.shape[0],
    "num_heads": lambda keys, values: keys.shape[1],
    "k_head_dim": lambda keys, values: keys.shape[-1],
    "v_head_dim": lambda keys, values: values.shape[-1],
}
_TOKEN_COUNTS = ("cumulative_length", "cumulative_length_int")  # all tokens seen, including those dropped since
# Attributes of a layer beside keys and values → axis of keys (batch, heads, tokens, size) → the same axis of theirs.
_AXES: Mapping[str, Mapping[int, int]] = {
    "conv_states": {0: 0},
    "recurrent_states": {0: 0},
    "linear_cache": {0: 0},  # of MiniMax
    "indexer_keys": {0: 0, 2: 1, -2: 1},
    "indexer_position_ids": {0: 1, 2: 2, -2: 2},
}
_WINDOW = "_sliding_window_tensor"  # the attribute `sliding_window` as a tensor

_registered: set[type] = set()  # cache and layer classes that this file registered
_LOCK = threading.Lock()  # pytree refuses a second registration, so no other thread may register between look and act


def register(tree: Any) -> None:
    """Registers the cache classes of transformers, if it is imported, and every dataclass in the tree."""
    with _LOCK:
        if (caches := sys.modules.get(_CACHE_MODULE)) is not None:
            for name in _CACHE_BASES:
                for cls in _with_subclasses(getattr(caches, name)) if hasattr(caches, name) else ():
                    _register_cache_class(cls)
        while unknown := {type(leaf) for leaf in pytree.tree_leaves(tree) if _can_register(leaf)}:
            for cls in unknown:
                if dataclasses.is_dataclass(cls):
                    torch.export.register_dataclass(cls)
                else:
                    _register_cache_class(cls)


def is_cache_part(value: Any) -> bool:
    """Returns whether the value is a cache of transformers or one of its layers."""
    return type(value) in _registered


def is_quantized_layer(value: Any) -> bool:
    """Returns whether the value is a layer of a ``QuantizedCache``, of any backend."""
    return is_cache_part(value) and hasattr(value, "_dequantize")


def axes_of_part(value: Any, key: Any, axes: Mapping[int, Any]) -> Mapping[int, Any]:
    """Returns the dims that apply to one part of ``value``, when ``axes`` is given for a whole cache.

    A layer with a sliding window may hold fewer tokens than a layer without one, so its dim is `NAME_window`. In the
    states of linear attention and of convolutions only axis 0, the batch, is dynamic, because their other sizes do not
    depend on the length of the past. The keys of an indexer (batch, tokens, size) have no heads.
    """
    if is_cache_part(value) and key in _AXES:
        return {_AXES[key][axis]: dim for axis, dim in axes.items() if axis in _AXES[key]}
    if is_cache_part(value) and getattr(value, "is_sliding", False) is True:
        token_axes = [axis for axis in (2, -2) if isinstance(axes.get(axis), str)]
        return {**axes, **{axis: f"{axes[axis]}_window" for axis in token_axes}}
    return axes


def path_key(entry: Any) -> Any:
    """Returns the index, key or attribute name of one entry of a pytree path."""
    return next(getattr(entry, name) for name in ("idx", "key", "name") if hasattr(entry, name))


def leaf_paths(spec: pytree.TreeSpec) -> list[tuple[Any, ...]]:
    """Returns the path to each leaf of a structure: a tuple of indices, keys and attribute names."""
    if spec.is_leaf():
        return [()]
    keys = _keys(spec)
    return [(key, *rest) for key, child in zip(keys, spec.children(), strict=True) for rest in leaf_paths(child)]


def leaves_in_caches(spec: pytree.TreeSpec) -> list[bool]:
    """Returns, for each leaf of a structure, whether it is a part of a cache."""
    inside = spec.type in _registered
    if spec.is_leaf():
        return [inside]
    return [inside or in_cache for child in spec.children() for in_cache in leaves_in_caches(child)]


def has_named_children(spec: pytree.TreeSpec) -> bool:
    """Returns whether the outermost container names its children: a dict, a dataclass, a named tuple or a cache."""
    return not spec.is_leaf() and not all(isinstance(key, int) for key in _keys(spec))


def _keys(spec: pytree.TreeSpec) -> list[Any]:
    """Returns the keys of a structure's direct children."""
    count, context = spec.num_children, spec.context
    if spec.type in _registered:
        return list(context["children"])
    if isinstance(context, type) and pytree.is_namedtuple_class(context):
        return list(context._fields)  # type: ignore[attr-defined]
    if dataclasses.is_dataclass(spec.type) and isinstance(context, (list, tuple)):
        # The context of register_dataclass is either the field names, or (field names, names of fields that are None).
        context = context[0] if context and isinstance(context[0], list) else context
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


def _register_cache_class(cls: type) -> None:
    if cls in pytree.SUPPORTED_NODES:  # keep a registration by the user
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
    """Splits a cache or layer into children and context.

    Attributes that hold tensors are children. The other attributes are context, encoded as JSON values.
    """
    attributes = dict(vars(state))
    window = attributes.pop(_WINDOW, None)
    derived = [name for name in _DERIVED if name in attributes and _is_derived(name, attributes)]
    for name in derived:
        del attributes[name]
    layers = attributes.pop("layers", None)
    parts: dict[Any, Any] = dict(enumerate(layers)) if layers is not None else {}
    is_filled = isinstance(attributes.get("keys"), torch.Tensor)
    for name in list(attributes):
        value = attributes[name]
        if _has_tensors(value) or (name in _TOKEN_COUNTS and is_filled):
            parts[_CHILD_NAMES.get(name, name)] = attributes.pop(name)
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
    attributes.update({_ATTRIBUTE_NAMES.get(key, key): part for key, part in parts.items() if not isinstance(key, int)})
    keys, values = attributes.get("keys"), attributes.get("values")
    for name in context["derived"]:  # the leaves may be objects other than tensors, because pytree also maps specs
        attributes[name] = _DERIVED[name](keys, values) if isinstance(keys, torch.Tensor) else None
    if context["window"]:
        attributes[_WINDOW] = torch.full((), attributes["sliding_window"], dtype=torch.int64)
    return state


def _is_derived(name: str, attributes: dict[str, Any]) -> bool:
    """Returns whether the attribute has the value that ``_DERIVED`` computes from the keys and values."""
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
    """Converts a value without tensors to a JSON value; types that JSON lacks become ``{"kind": ..., "value": ...}``.

    Raises:
        TypeError: The type cannot be converted.
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
    """Reverses ``_encode``."""
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
