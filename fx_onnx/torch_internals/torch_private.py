"""The private and experimental names of torch that the package uses. No other file of ``fx_onnx`` touches one.

``import fx_onnx`` must not load dynamo, sympy or the experimental modules, so each name in ``NAMES`` is resolved on
first use. If torch no longer has a name, the export that needs it raises an ``ImportError`` which names both. The
functions below wrap private attributes; the docstring of each says what happens without the attribute.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fx_onnx.torch_internals.threads import CAPTURE_LOCK, in_this_thread

if TYPE_CHECKING:
    from torch import _reshape_from_tensor as reshape_from_tensor
    from torch._dispatch.python import enable_python_dispatcher
    from torch._higher_order_ops import associative_scan, scan
    from torch._library.custom_ops import CustomOpDef
    from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        FakeTensor,
        FakeTensorMode,
        unset_fake_temporarily,
    )
    from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode
    from torch.fx.experimental.symbolic_shapes import (
        GuardOnDataDependentSymNode,
        compute_unbacked_bindings,
        free_unbacked_symbols,
        statically_known_true,
    )
    from torch.utils import _pytree as pytree
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._sympy.functions import Mod

__all__ = [
    "CHECKS",
    "NAMES",
    "TYPE_INFERENCE",
    "CustomOpDef",
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorMode",
    "GuardOnDataDependentSymNode",
    "HigherOrderOperator",
    "Mod",
    "OpOverload",
    "OpOverloadPacket",
    "ProxyTorchDispatchMode",
    "TorchDispatchMode",
    "argument_kinds",
    "associative_scan",
    "compiled_kernel",
    "compute_unbacked_bindings",
    "control_flow_settings",
    "enable_python_dispatcher",
    "free_unbacked_symbols",
    "has_composite_kernel",
    "implement_in_mode",
    "is_context_of",
    "is_wrapped",
    "kernel_keys",
    "known_item",
    "list_python_builtins",
    "operator_name",
    "operator_names",
    "operator_of",
    "python_kernels",
    "pytree",
    "registered_symbolics",
    "remember_item",
    "replace_node",
    "replaced_kernels",
    "reshape_from_tensor",
    "scan",
    "size_oblivious",
    "skip_undecided",
    "statically_known_true",
    "storage_id",
    "storage_ids",
    "symbolic_expression",
    "tensor_min_max",
    "torch_composes",
    "torch_decompositions",
    "unrecorded",
    "unset_fake_temporarily",
    "without_function_modes",
]


class PrivateName(NamedTuple):
    """A name of torch without a public equivalent.

    Attributes:
        path: the dotted name.
        reason: why no public name does the job.
    """

    path: str
    reason: str


_SYMBOLIC_SHAPES = "torch.fx.experimental.symbolic_shapes"
_FAKE_TENSOR = "torch._subclasses.fake_tensor"

NAMES: dict[str, PrivateName] = {
    "OpOverload": PrivateName("torch._ops.OpOverload", "the class of every ATen target; torch.ops has instances only"),
    "OpOverloadPacket": PrivateName("torch._ops.OpOverloadPacket", "the class of torch.ops.aten.add, a user's key"),
    "HigherOrderOperator": PrivateName("torch._ops.HigherOrderOperator", "the class of cond, scan and while_loop"),
    "CustomOpDef": PrivateName("torch._library.custom_ops.CustomOpDef", "the result type of torch.library.custom_op"),
    "FakeTensor": PrivateName(f"{_FAKE_TENSOR}.FakeTensor", "the tensors in the metadata of captured graphs"),
    "FakeTensorMode": PrivateName(f"{_FAKE_TENSOR}.FakeTensorMode", "decompositions are traced under this mode"),
    "unset_fake_temporarily": PrivateName(
        f"{_FAKE_TENSOR}.unset_fake_temporarily", "real tensors are computed while a caller's fake mode is active"
    ),
    "enable_python_dispatcher": PrivateName(
        "torch._dispatch.python.enable_python_dispatcher", "without it, torch cannot infer some symbolic sizes"
    ),
    "ProxyTorchDispatchMode": PrivateName(
        "torch.fx.experimental.proxy_tensor.ProxyTorchDispatchMode",
        "torch shows symbolic arithmetic to subclasses of this mode only",
    ),
    "TorchDispatchMode": PrivateName(
        "torch.utils._python_dispatch.TorchDispatchMode", "no public class sees the operators below autograd"
    ),
    "compute_unbacked_bindings": PrivateName(
        f"{_SYMBOLIC_SHAPES}.compute_unbacked_bindings", "it tells which data-dependent sizes a traced call creates"
    ),
    "free_unbacked_symbols": PrivateName(
        f"{_SYMBOLIC_SHAPES}.free_unbacked_symbols", "it tells which sizes of a tensor depend on data"
    ),
    "statically_known_true": PrivateName(
        f"{_SYMBOLIC_SHAPES}.statically_known_true", "it decides a condition on sizes without recording a guard"
    ),
    "GuardOnDataDependentSymNode": PrivateName(
        f"{_SYMBOLIC_SHAPES}.GuardOnDataDependentSymNode", "a forward may catch this error of a condition on data"
    ),
    "DataDependentOutputException": PrivateName(
        f"{_FAKE_TENSOR}.DataDependentOutputException", "a forward may catch this error of a number from data"
    ),
    "DynamicOutputShapeException": PrivateName(
        f"{_FAKE_TENSOR}.DynamicOutputShapeException", "a forward may catch this error of a size from data"
    ),
    "Mod": PrivateName("torch.utils._sympy.functions.Mod", "torch writes divisibility conditions with it"),
    "pytree": PrivateName("torch.utils._pytree", "torch.export's call_spec is of this pytree"),
    "reshape_from_tensor": PrivateName("torch._reshape_from_tensor", "torch.onnx.operators has it by another name"),
    "scan": PrivateName("torch._higher_order_ops.scan", "torch itself exports cond and while_loop only"),
    "associative_scan": PrivateName(
        "torch._higher_order_ops.associative_scan", "torch itself exports cond and while_loop only"
    ),
}


def _load(path: str) -> Any:
    """Returns what a dotted name of torch names.

    Raises:
        ImportError: this torch does not have the name.
    """
    module, _, name = path.rpartition(".")
    try:
        owner = importlib.import_module(module)
        return getattr(owner, name) if hasattr(owner, name) else importlib.import_module(path)
    except ImportError as error:
        raise ImportError(
            f"fx_onnx needs {path}, which torch {torch.__version__} lacks; install a version of torch that "
            "the page Install lists."
        ) from error


if not TYPE_CHECKING:  # a type checker would accept any name of a module with __getattr__

    def __getattr__(name: str) -> Any:
        if name not in NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value = _load(NAMES[name].path)
        return value


# ---------------------------------------------------------------- operators

CHECKS: frozenset[Any] = frozenset(
    getattr(torch, name) for name in ("_check", "_check_is_size") if hasattr(torch, name)
)
"""The functions that state a condition on sizes; they stay as calls in captured graphs.

``torch._check`` is documented. ``torch._check_is_size`` is deprecated, so it is looked up only where torch has it.
"""


def operator_of(definition: CustomOpDef) -> OpOverload:
    """Returns the operator that ``torch.library.custom_op`` registered; only a private attribute holds it.

    Without the attribute, a ``custom_translation_table`` cannot have the function as a key: AttributeError.
    """
    return definition._opoverload


def operator_name(target: Any) -> str:
    """Returns the name of an FX target that is an operator: ``aten::add.Tensor``, ``wrap_with_autocast``.

    Returns an empty string for a Python function. ``name()`` does not replace the attribute, because other callables
    have a ``name`` of a different kind.
    """
    name = getattr(target, "_name", "")
    return name if isinstance(name, str) else ""


def operator_names() -> list[str]:
    """Returns the qualified names of all operators that torch knows, such as ``aten::add.Tensor``, sorted.

    ``torch.ops`` lists only the operators that somebody has asked for. Only tools and tests call this function, so a
    torch without the private name fails there and not in an export.
    """
    return sorted(torch._C._dispatch_get_all_op_names())


def has_composite_kernel(operator: OpOverload) -> bool:
    """Returns whether torch itself composes the operator from others in C++; no public function tells.

    An operator with a kernel of its own for the CPU, such as silu_backward, is not composed there. Without torch's
    function, no operator counts as composed, and torch's Python decompositions apply.
    """
    query = getattr(torch._C, "_dispatch_has_kernel_for_dispatch_key", None)
    if query is None:
        return False
    return bool(query(operator.name(), "CompositeImplicitAutograd")) and not query(operator.name(), "CPU")


def torch_decompositions() -> Mapping[Any, Callable[..., Any]]:
    """Returns PyTorch's decompositions: the public table of torch.export and the larger private one below it.

    Without the private table, the public one remains, which covers the core operators only.
    """
    try:
        everything = _load("torch._decomp.global_decomposition_table")["post_autograd"]
    except (ImportError, KeyError):
        everything = {}
    return {**everything, **dict(torch.export.default_decompositions().items())}


def torch_composes(whether: bool) -> AbstractContextManager[Any]:
    """Returns a context in which torch does, or does not, replace composite operators by their parts.

    torch replaces them at the dispatch keys of autograd, which the context includes or excludes. No public switch
    exists. Without the private one the tracer cannot keep ``linear`` and ``matmul`` whole: AttributeError.
    """
    guard: AbstractContextManager[Any] = torch._C._SetExcludeDispatchKeyGuard(
        torch._C.DispatchKey.AutogradFunctionality, not whether
    )
    return guard


def kernel_keys() -> tuple[Any, Any]:
    """Returns the dispatch keys of composite kernels and of shape (meta) kernels, for ``replaced_kernels``."""
    return torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Meta


def python_kernels(operator: OpOverload) -> dict[Any, Callable[..., Any]]:
    """Returns the kernels that an operator has in Python, by dispatch key. Fake tensors look kernels up here.

    Without the attribute, the sizes that ``capture.patches.dynamic_sizes`` keeps symbolic cannot be kept:
    AttributeError.
    """
    kernels: dict[Any, Callable[..., Any]] = operator.py_kernels
    return kernels


def compiled_kernel(operator: OpOverload, key: Any) -> Callable[..., Any]:
    """Returns the kernel that an operator has in C++ for a dispatch key; AttributeError as for ``python_kernels``."""
    return functools.partial(operator._op_dk, key)


@contextmanager
def replaced_kernels(kernels: Mapping[tuple[OpOverload, Any], Callable[..., Any]]) -> Iterator[None]:
    """Replaces kernels of operators, by operator and dispatch key, in the current thread until the context ends.

    ``torch.library`` can add a kernel but cannot remove one, so the dict of kernels is changed directly. Other threads
    call the kernel that the operator had: the one in Python, or the one in C++. With symbolic sizes, fake tensors
    prefer a decomposition to a shape kernel, so a new shape kernel replaces it too.
    """
    table: dict[Any, Callable[..., Any]] = torch._decomp.decomposition_table
    with CAPTURE_LOCK:
        before = {operator: dict(python_kernels(operator)) for operator, _ in kernels}
        decompositions = {operator: table[operator] for operator in before if operator in table}
        try:
            for (operator, key), kernel in kernels.items():
                if key is torch._C.DispatchKey.Meta and operator in table:
                    table[operator] = in_this_thread(kernel, decompositions[operator])
            for (operator, key), kernel in kernels.items():
                original = before[operator].get(key) or compiled_kernel(operator, key)
                python_kernels(operator)[key] = in_this_thread(kernel, original)
                operator._dispatch_cache.clear()
            yield
        finally:
            table.update(decompositions)
            for operator, own in before.items():
                python_kernels(operator).clear()
                python_kernels(operator).update(own)
                operator._dispatch_cache.clear()


def implement_in_mode(operator: HigherOrderOperator, mode: type[Any], function: Callable[..., Any]) -> None:
    """Makes ``function`` the implementation of a higher-order operator under a dispatch mode.

    Without ``py_impl``, the tracer cannot see loops: AttributeError.
    """
    operator.py_impl(mode)(function)


# ---------------------------------------------------------------- tensors and sizes


TYPE_INFERENCE: tuple[Any, str] = torch._C, "_jit_pass_onnx_node_shape_type_inference"
"""The place of the type inference of TorchScript's nodes, which symbolic functions call for domains of their own."""


def argument_kinds(symbolic: Any) -> Any:
    """Returns what ``parse_args`` converts each argument to, such as ``t``; nothing without torch's attribute."""
    return getattr(symbolic, "_arg_descriptors", ())


def is_context_of(context: Any, function: type[torch.autograd.Function]) -> bool:
    """Returns whether ``apply`` of this function made the context; without the attribute, raises an AttributeError."""
    return type(context) is function._backward_cls


def without_function_modes() -> AbstractContextManager[None]:
    """Returns a context in which no mode sees the functions of torch; without torch's guard they see them: slower."""
    return getattr(torch._C, "DisableTorchFunction", nullcontext)()


def storage_id(tensor: torch.Tensor) -> int:
    """Returns a number that is equal for two living tensors exactly if they share a storage.

    ``data_ptr()`` is 0 for fake and meta tensors. Without the attribute, nothing else tells their storages apart:
    AttributeError.
    """
    identity: int = tensor.untyped_storage()._cdata
    return identity


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Returns whether a transform of ``torch.func``, such as vmap, has wrapped a tensor, so that it has no number.

    Without torch's function: AttributeError.
    """
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def storage_ids(values: Any) -> set[int]:
    """Returns the ``storage_id`` of each tensor in a structure; one that a transform has wrapped has none."""
    tensors = (value for value in pytree.tree_leaves(values) if isinstance(value, torch.Tensor))
    return {storage_id(tensor) for tensor in tensors if not is_wrapped(tensor)}


def known_item(tensor: FakeTensor) -> Any:
    """Returns the number that a fake 0-d tensor remembers, which ``item()`` returns; None if it remembers none.

    Without the attribute of torch no tensor remembers one, and each ``item()`` is a number that depends on data.
    """
    return getattr(tensor, "item_memo", None)


def remember_item(tensor: FakeTensor, number: torch.SymInt) -> None:
    """Lets a fake 0-d tensor remember its number until it is written; see ``known_item``."""
    tensor.item_memo = number


def symbolic_expression(number: torch.SymInt | torch.SymFloat | torch.SymBool) -> Any:
    """Returns the sympy expression of a symbolic number, after the replacements that the capture found.

    Without the attribute, no symbolic size can be emitted: AttributeError.
    """
    return number.node.expr


def size_oblivious() -> AbstractContextManager[Any]:
    """Returns a context in which torch treats sizes 0 and 1 like any other size. No public switch exists.

    Without the private switch: ImportError or AttributeError, because dims would become static silently.
    """
    context: AbstractContextManager[Any] = _load("torch.fx.experimental._config").patch(backed_size_oblivious=True)
    return context


# ---------------------------------------------------------------- capture


def replace_node(node: Any, serialized_name: str) -> None:
    """Replaces the registration of a class with pytree by ``node``, a ``NodeDef``; pytree itself refuses a second one.

    Saved structures with the earlier name still find the class. Without the tables of torch: AttributeError.
    """
    cls = node.type
    pytree.SUPPORTED_NODES[cls] = node
    serialized = pytree.SUPPORTED_SERIALIZED_TYPES[cls]
    pytree.SUPPORTED_SERIALIZED_TYPES[cls] = serialized._replace(serialized_type_name=serialized_name)
    pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE[serialized_name] = cls
    _load("torch.fx._pytree").SUPPORTED_NODES.pop(cls, None)


def control_flow_settings() -> Callable[[], AbstractContextManager[Any]]:
    """Returns what makes the context in which torch compiles ``torch.cond`` and its like for an eager run.

    torch's own context also saves and restores a flag of torch.fx that is not thread-safe. This one is without effect
    if dynamo lacks the settings; then torch may refuse a branch without operators while another thread captures.
    """
    try:
        settings = _load("torch._dynamo.config")
    except ImportError:
        return nullcontext
    names = {name: True for name in ("allow_empty_graphs", "capture_scalar_outputs") if hasattr(settings, name)}
    return functools.partial(settings.patch, **names) if names else nullcontext


def tensor_min_max() -> Callable[..., Any] | None:
    """Returns the function with which torch.export replaces ``max`` and ``min``; no public switch stops that.

    Returns None without it; then other threads call the replacements.
    """
    try:
        function: Callable[..., Any] = _load("torch._export.non_strict_utils._tensor_min_max")
    except (ImportError, AttributeError):
        return None
    return function


@contextmanager
def unrecorded(values: Any = None) -> Iterator[None]:
    """Runs operators on fake tensors without recording them, to learn what a block of code returns.

    The fake tensors are those of the running capture, or of ``values``. Symbols that operators create are forgotten.
    torch's kernels in Python run, because some in C++ need numbers for sizes. Without torch's context managers:
    ImportError or AttributeError.
    """
    mode = _load("torch._guards.detect_fake_mode")(values)
    shape_env = getattr(mode, "shape_env", None)
    with (
        _load("torch.fx.experimental.proxy_tensor.disable_proxy_modes_tracing")(),
        _load("torch._dispatch.python.enable_python_dispatcher")(),
        shape_env.ignore_fresh_unbacked_symbols() if shape_env is not None else nullcontext(),
    ):
        yield


@contextmanager
def skip_undecided() -> Iterator[None]:
    """Leaves a block that runs operators on fake tensors where it branches on a value, and forgets its symbols.

    Without the functions and attributes of torch: ImportError or AttributeError.
    """
    shape_env = getattr(_load("torch._guards.detect_fake_mode")(), "shape_env", None)
    pending = [] if shape_env is None else shape_env.pending_fresh_unbacked_symbols
    count = len(pending)
    try:
        yield
    except (_load(NAMES["GuardOnDataDependentSymNode"].path), _load(NAMES["DataDependentOutputException"].path)):
        del pending[count:]


def list_python_builtins() -> None:
    """Makes dynamo list the functions that it knows now.

    It does so once, and must not list a patched ``len`` as one of Python's builtins, or a patched function of torch as
    one of torch's. Does nothing if dynamo keeps no such lists.
    """
    try:
        rules = _load("torch._dynamo.trace_rules")
        rules.is_builtin_callable(len)
        rules.get_torch_obj_rule_map()
    except (ImportError, AttributeError):
        return


def registered_symbolics() -> dict[str, Mapping[int, Callable[..., Any]]]:
    """Returns the functions that ``torch.onnx.register_custom_op_symbolic`` registered: name → opset → function.

    Without the module, or without its registry, which has no public reader: an empty dict. Such functions then have no
    effect, and those that are registered with fx_onnx still have.
    """
    registry: Any = getattr(sys.modules.get("torch.onnx._internal.torchscript_exporter.registration"), "registry", None)
    groups: Mapping[str, Any] = getattr(registry, "_registry", {})
    registered = {name: getattr(getattr(group, "_functions", None), "_overrides", {}) for name, group in groups.items()}
    return {name: functions for name, functions in registered.items() if functions}
