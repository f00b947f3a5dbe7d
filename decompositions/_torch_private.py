"""The private and experimental names of torch that decompositions use: no other file of this folder uses one.

Each function gives the reason, and the result when a version of torch no longer has the name. It looks the name up at
the first call, because some of these modules are slow to import: symbolic_shapes loads sympy.
"""

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def statically_known_true(condition: Any) -> bool:
    """Returns whether a comparison of sizes holds for every value of their symbols.

    ``bool(condition)`` would specialize a symbolic size, because torch.export adds a guard for it. No public function
    answers without a guard. When the name is gone, the result is False for symbolic comparisons. False is always safe:
    the caller then takes the general path.
    """
    return _statically_known_true()(condition)


@functools.cache
def _statically_known_true() -> Callable[[Any], bool]:
    """Returns torch's function, or ``_is_true`` when torch has none."""
    try:
        module = importlib.import_module("torch.fx.experimental.symbolic_shapes")
        function: Callable[[Any], bool] = module.statically_known_true
    except (ImportError, AttributeError):
        return _is_true
    return function


def _is_true(condition: Any) -> bool:
    """Returns whether the condition is the plain boolean True."""
    return isinstance(condition, bool) and condition


def depends_on_data(number: Any) -> bool:
    """Returns whether a symbolic number depends on data; without torch's function the answer is always yes."""
    module = importlib.import_module("torch.fx.experimental.symbolic_shapes")
    return bool(getattr(module, "free_unbacked_symbols", lambda _: True)(number))


def while_loop_operator(
    condition: Callable[..., Tensor],
    body: Callable[..., tuple[Tensor, ...]],
    carry: tuple[Tensor, ...],
    constants: tuple[Tensor, ...],
) -> tuple[Tensor, ...]:
    """Returns the carry after ``carry = body(*carry, *constants)`` while ``condition(*carry, *constants)`` is true.

    The operator is a prototype of torch, and the only loop with a condition that torch.export can capture.

    Raises:
        NotImplementedError: the installed torch has no such operator.
    """
    operator = getattr(torch.ops.higher_order, "while_loop", None)
    if operator is None:
        raise NotImplementedError(
            f"torch {torch.__version__} has no operator higher_order.while_loop. Use a version of torch that has it."
        )
    result: tuple[Tensor, ...] = operator(condition, body, carry, constants)
    return result


def register_quantized_decomposed() -> None:
    """Registers ``torch.ops.quantized_decomposed``, the operators of PT2E quantization; only this private module does.

    When the module is gone, its operators are missing, and the registry skips their decompositions.
    """
    try:
        importlib.import_module("torch.ao.quantization.fx._decomposed")
    except ImportError:
        return


def schema_name(target: Any) -> str:
    """Returns the name of an operator overload without the overload, such as ``aten::add``; "" for anything else.

    ``OpOverload.name()`` is public, but includes the overload. When the attribute is gone, the result is "".
    """
    return getattr(getattr(target, "_schema", None), "name", "")


def schema_argument_names(target: Any) -> list[str]:
    """Returns the names of the parameters of an operator overload, in order.

    No public function returns the schema. When the attribute is gone, the list is empty.
    """
    return [argument.name for argument in getattr(getattr(target, "_schema", None), "arguments", ())]
