"""Rules on shapes of numbers and opaque symbols."""

import pytest

from fx_onnx.sizes.size_rules import broadcast_shapes, constant_reshape


@pytest.mark.parametrize(
    ("shapes", "common"),
    [
        ([(2, 3), (3,)], (2, 3)),
        ([(2, 1), (1, 3), ()], (2, 3)),
        ([("n", 1), ("n", 4)], ("n", 4)),
        ([("n",), (1,)], ("n",)),
        ([("n",), ("m",)], None),
        ([("n",), (4,)], None),
        ([(2,), (3,)], None),
        ([()], ()),
    ],
)
def test_broadcast(shapes: list, common: tuple | None) -> None:
    assert broadcast_shapes(*shapes) == common
    assert broadcast_shapes(*shapes[::-1]) == common


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, (2, 0), [2, 0]),
        (None, ("n", 3), [-1, 3]),
        (("n", 3), ("n", 3), [-1, 3]),
        (None, ("n", "m"), None),
        (("n", "m", 6), ("n", "m", 2, 3), [0, 0, 2, 3]),
        (("n", "m"), ("n", "2*m"), [0, -1]),
        (("m", "n"), ("n", "m"), None),
        (("n", 0), ("n", 0), None),
        (("zero", "m"), ("zero", "2*m"), None),
        (("zero", "m"), ("zero", "m", 1), [0, 0, 1]),
        (None, ("zero", 3), [-1, 3]),
    ],
)
def test_the_constant_shape_of_a_reshape(old: tuple | None, new: tuple, expected: list[int] | None) -> None:
    assert constant_reshape(old, new, lambda symbol: symbol == "zero") == expected
