"""Registers container classes with torch's pytree, and describes the structure of arguments and results.

torch.export takes a class as a container only if the class is registered with pytree. ``register`` does this for
dataclasses, by torch.export's own function, and for the cache classes of transformers. transformers has a function for
this too, but it registers only one of the classes, it names a tensor by its kind and then its layer, and it loses the
count of tokens that a sliding window has seen.

A cache's children are its layers, by number. A layer's children are its tensors, by attribute
(`past_key_values[0].key`). All other attributes are context, which must be the same in every call. Sizes are not
context: they are computed from the tensors when a cache is rebuilt, so that a program takes caches of every length.

A registration is permanent, because torch looks it up again whenever the exported program is called or saved. One by
the user is kept. One by transformers is replaced once an export takes or returns a cache of that class, so that a model
has the same inputs whether or not transformers exported one before. Structures that its registration described are
still rebuilt.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from fx_onnx.sizes import symbolic_sizes
from fx_onnx.torch_internals.torch_private import pytree, replace_node

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
        caches = sys.modules.get(_CACHE_MODULE)
        classes = [getattr(caches, name) for name in _CACHE_BASES if hasattr(caches, name)]
        for cls in classes:  # the list grows
            _register_cache_class(cls)
            classes += cls.__subclasses__()
        while unknown := {type(leaf) for leaf in pytree.tree_leaves(tree, is_leaf=_is_replaced) if _can_register(leaf)}:
            for cls in unknown:
                if cls in pytree.SUPPORTED_NODES:
                    _replace_registration(cls)
                elif dataclasses.is_dataclass(cls):
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
        return {
            axis: f"{dim}_window" if axis in (2, -2) and isinstance(dim, str) else dim for axis, dim in axes.items()
        }
    return axes


def path_key(entry: Any) -> Any:
    """Returns the index, key or attribute name of one entry of a pytree path."""
    return next(getattr(entry, name) for name in ("idx", "key", "name") if hasattr(entry, name))


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One leaf of a structure.

    Attributes:
        path: The indices, keys and attribute names that lead to it.
        in_cache: Whether it is a part of a cache that this file describes, so that its path has names.
        in_any_cache: Whether it is a part of a cache, whoever registered the class.
    """

    path: tuple[Any, ...] = ()
    in_cache: bool = False
    in_any_cache: bool = False


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """Returns the tensors of a tree."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def leaves(spec: pytree.TreeSpec) -> list[Leaf]:
    """Returns the leaves of a structure."""
    is_own = _is_own(spec.context)
    is_cache = is_own or getattr(spec.type, "__name__", "").endswith("Cache")
    if spec.is_leaf():
        return [Leaf((), is_own, is_cache)]
    return [
        Leaf((key, *leaf.path), is_own or leaf.in_cache, is_cache or leaf.in_any_cache)
        for key, child in zip(_keys(spec), spec.children(), strict=True)
        for leaf in leaves(child)
    ]


def has_named_children(spec: pytree.TreeSpec) -> bool:
    """Returns whether the outermost container names its children: a dict, a dataclass, a named tuple or a cache."""
    return not spec.is_leaf() and not all(isinstance(key, int) for key in _keys(spec))


def _keys(spec: pytree.TreeSpec) -> list[Any]:
    """Returns the keys of a structure's direct children."""
    context = spec.context
    if _is_own(context):
        context = context["children"]
    elif isinstance(context, type) and pytree.is_namedtuple_class(context):
        context = context._fields  # type: ignore[attr-defined]
    elif isinstance(context, (list, tuple)):  # a defaultdict has (factory, keys), a dataclass may have (names, names)
        context = next((part for part in context if isinstance(part, list)), context)
    are_keys = isinstance(context, (list, tuple)) and len(context) == spec.num_children
    return list(context) if are_keys else list(range(spec.num_children))


# --- registration -----------------------------------------------------------------------------------------------------


def _can_register(leaf: Any) -> bool:
    cls = type(leaf)
    is_container = dataclasses.is_dataclass(cls) or (cls.__name__.endswith("Cache") and hasattr(leaf, "__dict__"))
    return is_container and (cls not in pytree.SUPPORTED_NODES or _is_replaced(leaf))


def _is_replaced(value: Any) -> bool:
    """Returns whether the value is a cache whose class transformers registered."""
    cls = type(value)
    node = pytree.SUPPORTED_NODES.get(cls) if cls.__name__.endswith("Cache") else None
    return node is not None and node.flatten_fn.__module__.partition(".")[0] == "transformers"


def _register_cache_class(cls: type) -> None:
    if cls in pytree.SUPPORTED_NODES:  # keep a registration by the user
        return
    pytree.register_pytree_node(
        cls,
        _flatten,
        lambda children, context: _unflatten(cls, children, context),
        serialized_type_name=_serialized_name(cls),
        flatten_with_keys_fn=_flatten_with_keys,
    )
    _registered.add(cls)


def _replace_registration(cls: type) -> None:
    earlier = pytree.SUPPORTED_NODES[cls].unflatten_fn

    def unflatten(children: Iterable[Any], context: Any) -> Any:
        return _unflatten(cls, children, context) if _is_own(context) else earlier(children, context)

    replace_node(pytree.NodeDef(cls, _flatten, unflatten, _flatten_with_keys), _serialized_name(cls))
    _registered.add(cls)


def _serialized_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _is_own(context: Any) -> bool:
    """Returns whether ``_flatten`` made the context of a structure."""
    return isinstance(context, dict) and context.keys() == {"children", "layers", "derived", "window", "context"}


def _flatten(state: Any) -> tuple[list[Any], dict[str, Any]]:
    """Returns the children and the context of a cache or layer.

    Attributes that hold tensors are children. The other attributes are context, encoded as JSON values.
    """
    attributes = dict(vars(state))
    window, layers = attributes.pop(_WINDOW, None), attributes.pop("layers", None)
    derived = [name for name in _DERIVED if name in attributes and _is_derived(name, attributes)]
    is_filled = isinstance(attributes.get("keys"), torch.Tensor)
    inner = [name for name in attributes if _has_tensors(attributes[name]) or (name in _TOKEN_COUNTS and is_filled)]
    parts = {name: attributes[name] for name in inner if name not in derived}
    context = {name: _encode(value) for name, value in attributes.items() if name not in (*derived, *parts)}
    children = dict(enumerate(layers or ())) | {_CHILD_NAMES.get(name, name): part for name, part in parts.items()}
    return list(children.values()), {
        "children": list(children),
        "layers": layers is not None,
        "derived": derived,
        "window": window is not None,
        "context": context,
    }


def _flatten_with_keys(state: Any) -> tuple[list[tuple[Any, Any]], dict[str, Any]]:
    children, context = _flatten(state)
    keys: list[Any] = [
        pytree.SequenceKey(key) if isinstance(key, int) else pytree.GetAttrKey(key) for key in context["children"]
    ]
    return list(zip(keys, children, strict=True)), context


def _unflatten(cls: type, children: Iterable[Any], context: dict[str, Any]) -> Any:
    state: Any = object.__new__(cls)
    parts = dict(zip(context["children"], children, strict=True))
    attributes = {name: _decode(value) for name, value in context["context"].items()}
    if context["layers"]:
        attributes["layers"] = [part for key, part in parts.items() if isinstance(key, int)]
    attributes |= {_ATTRIBUTE_NAMES.get(key, key): part for key, part in parts.items() if not isinstance(key, int)}
    keys, values = attributes.get("keys"), attributes.get("values")
    for name in context["derived"]:  # the leaves may be objects other than tensors, because pytree also maps specs
        attributes[name] = _DERIVED[name](keys, values) if isinstance(keys, torch.Tensor) else None
    if context["window"]:
        attributes[_WINDOW] = torch.full((), attributes["sliding_window"], dtype=torch.int64)
    vars(state).update(attributes)
    return state


def _is_derived(name: str, attributes: dict[str, Any]) -> bool:
    """Returns whether the attribute has the value that ``_DERIVED`` computes from the keys and values."""
    keys, values, own = attributes.get("keys"), attributes.get("values"), attributes[name]
    if not isinstance(keys, torch.Tensor) or not isinstance(values, torch.Tensor) or isinstance(own, torch.Tensor):
        return False
    is_kind = name in ("dtype", "device")
    return is_kind or (keys.dim() == 4 and symbolic_sizes.same_size(own, _DERIVED[name](keys, values)))


def _has_tensors(value: Any) -> bool:
    return type(value) in _registered or any(
        isinstance(leaf, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool))
        for leaf in pytree.tree_leaves(value)
    )


_CODECS: Mapping[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "list": (list, lambda value: list(map(_encode, value)), lambda encoded: list(map(_decode, encoded))),
    "tuple": (tuple, lambda value: list(map(_encode, value)), lambda encoded: tuple(map(_decode, encoded))),
    "dict": (
        dict,
        lambda value: [[_encode(key), _encode(item)] for key, item in value.items()],
        lambda encoded: {_decode(key): _decode(item) for key, item in encoded},
    ),
    "dtype": (torch.dtype, lambda value: str(value).removeprefix("torch."), lambda encoded: getattr(torch, encoded)),
    "device": (torch.device, str, torch.device),
    "type": (
        type,
        lambda value: [value.__module__, value.__qualname__],
        lambda encoded: getattr(importlib.import_module(encoded[0]), encoded[1]),
    ),
}
"""kind → the class that JSON lacks, how its values become JSON values, and the reverse."""


def _encode(value: Any) -> Any:
    """Returns the JSON value of a value without tensors; types that JSON lacks become ``{"kind": ..., "value": ...}``.

    Raises:
        TypeError: The type cannot be converted.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    for kind, (cls, encode, _) in _CODECS.items():
        if isinstance(value, cls):
            return {"kind": kind, "value": encode(value)}
    raise TypeError(f"A {type(value).__name__} cannot be a part of an input or output of an exported program.")


def _decode(value: Any) -> Any:
    """Returns the value of which ``_encode`` returned a JSON value."""
    return _CODECS[value["kind"]][2](value["value"]) if isinstance(value, dict) else value
