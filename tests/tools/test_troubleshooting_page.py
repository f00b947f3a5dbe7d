"""docs/troubleshooting.md is what the data of the package makes it."""

from tools.troubleshooting_page import PAGE, page


def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text("utf-8")
    assert page(text) == text, "run python -m tools.troubleshooting_page"


def test_a_new_page_has_the_introduction_and_the_areas() -> None:
    lines = page("# Title\n\nText.\n\n## Old\n").splitlines()
    assert lines[:6] == ["# Title", "", "Text.", "", "## The call", ""]
    assert [line for line in lines if line.startswith("## ")][-1] == "## The environment"
