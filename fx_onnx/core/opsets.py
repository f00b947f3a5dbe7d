"""The supported opset versions, and checks of them."""

from fx_onnx.core.errors import ArgumentError

MINIMUM_OPSET, MAXIMUM_OPSET = 18, 26
"""The first and the last native opset: the versions to which ATen operators are translated directly."""
DEFAULT_OPSET = 20
OLDEST_OPSET = 7
"""The oldest opset to which onnxscript's version converter converts."""


def check(version: int | None) -> int:
    """Returns the opset to export to, which is the default opset if ``version`` is None.

    Raises:
        ArgumentError: ``version`` is not an integer between the oldest and the newest supported opset.
    """
    if version is None:
        return DEFAULT_OPSET
    if isinstance(version, bool) or not isinstance(version, int) or not OLDEST_OPSET <= version <= MAXIMUM_OPSET:
        raise ArgumentError(
            f"opset_version must be a number from {OLDEST_OPSET} to {MAXIMUM_OPSET} (native from {MINIMUM_OPSET}), "
            f"not {version!r}."
        )
    return version


def native(version: int) -> int:
    """Returns the opset to translate to. It is ``version``, or the first native opset if ``version`` is older."""
    return max(version, MINIMUM_OPSET)
