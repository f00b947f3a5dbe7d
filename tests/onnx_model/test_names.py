"""``Names.unique`` returns each name only once."""

from fx_onnx.onnx_model.names import Names


def test_a_taken_name_gets_a_number() -> None:
    names = Names(["x", "x_1", None, ""])
    assert [names.unique("x"), names.unique("x"), names.unique("y"), names.unique("y")] == ["x_2", "x_3", "y", "y_1"]
    assert "x_3" in names
    assert "x_4" not in names


def test_numbered_names_avoid_taken_names() -> None:
    names = Names()
    assert [names.unique(name) for name in ("x_1", "x", "x", "x_1")] == ["x_1", "x", "x_2", "x_1_1"]
