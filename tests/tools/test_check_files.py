"""Tests of the checks of text files."""

import pytest

from tools.check_files import LARGEST, main, problems


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", []),
        (b"fine\n", []),
        (b"fine", ["no newline at the end"]),
        (b"one \ntwo\n", ["trailing whitespace"]),
        (b"one\r\n", ["carriage return"]),
        (b"<" * 7 + b" HEAD\n", ["conflict marker"]),
        (b"a" * LARGEST + b"\n", [f"{LARGEST + 1} bytes, more than {LARGEST}"]),
    ],
)
def test_problems(content, found):
    assert list(problems(content)) == found


def test_main_names_the_file(tmp_path, capsys):
    file = tmp_path / "text.txt"
    file.write_text("no newline")
    assert main([str(file)]) == 1
    assert capsys.readouterr().out == f"{file}: no newline at the end\n"
    file.write_text("newline\n")
    assert main([str(file)]) == 0
