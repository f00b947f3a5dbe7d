"""The supported opset versions, and checks of them."""

from numbers import Integral

from fx_onnx.messages.arguments import shown
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId

MINIMUM_NATIVE_OPSET, MAXIMUM_OPSET = 18, 28
"""The first and the last native opset: the versions to which ATen operators are translated directly."""
DEFAULT_OPSET = 20
OLDEST_OPSET = 7
"""The oldest opset to which a model can be converted, one step at a time."""
OLDEST_OPSET_WITH_FUNCTIONS = 15
"""The oldest opset whose IR version (8) has local functions."""
OLDEST_OPSET_WITHOUT_INITIALIZER_INPUTS = 9
"""The oldest opset whose IR version (4) allows initializers that are not inputs of the graph."""

# Source: the table in ONNX's Versioning document.
_IR_VERSIONS = {
    7: 3, 8: 3, 9: 4, 10: 5, 11: 6, 12: 7, 13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8,
    19: 9, 20: 9, 21: 10, 22: 10, 23: 11, 24: 12, 25: 13, 26: 13, 27: 13, 28: 14,
}  # fmt: skip


def ir_version(opset: int) -> int:
    """Returns the IR version that belongs to an opset."""
    return _IR_VERSIONS[opset]


def check(version: int | None) -> int:
    """Returns the opset to export to, which is the default opset if ``version`` is None.

    Raises:
        ArgumentError: ``version`` is not an integer between the oldest and the newest supported opset.
    """
    if version is None:
        return DEFAULT_OPSET
    if isinstance(version, bool) or not isinstance(version, Integral) or not OLDEST_OPSET <= version <= MAXIMUM_OPSET:
        raise ArgumentError(
            f"opset_version must be a number from {OLDEST_OPSET} to {MAXIMUM_OPSET} "
            f"(native from {MINIMUM_NATIVE_OPSET}), not {shown(version)}.",
            id=MessageId.OPSET_VERSION,
        )
    return int(version)


def native(version: int) -> int:
    """Returns the opset to translate to. It is ``version``, or the first native opset if ``version`` is older."""
    return max(version, MINIMUM_NATIVE_OPSET)
