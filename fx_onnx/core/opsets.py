"""Opset versions: which are native, and which is the default."""

from fx_onnx.core.errors import ArgumentError

MINIMUM_OPSET, MAXIMUM_OPSET = 18, 26
DEFAULT_OPSET = 20
OLDEST_OPSET = 7


def check(version: int | None) -> int:
    """The opset version to export to: the default for None.

    Raises:
        ArgumentError: it is not a number between the oldest and the newest supported version.
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
    """The opset in which a model for ``version`` is translated."""
    return max(version, MINIMUM_OPSET)
