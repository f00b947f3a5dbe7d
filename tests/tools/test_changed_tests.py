"""Tests of the choice of tests for ``make check``."""

import subprocess

from tools.changed_tests import changed_files, find_tests


def write(root, *files, text=""):
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)


def git(root, *arguments):
    subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments], cwd=root, check=True)


def test_sources(tmp_path):
    write(
        tmp_path, "tests/passes/test_a.py", "tests/passes/test_a_long.py", "tests/passes/test_ab.py", "tests/test_c.py"
    )
    assert find_tests(["fx_onnx/passes/a.py"], tmp_path) == ["tests/passes/test_a.py", "tests/passes/test_a_long.py"]
    assert find_tests(["fx_onnx/c.py"], tmp_path) == ["tests/test_c.py"]
    assert find_tests(["fx_onnx/passes/untested.py", "LICENSE", "Makefile"], tmp_path) == []


def test_a_helper_has_the_tests_of_its_importers(tmp_path):
    write(tmp_path, "decompositions/_loops.py", "decompositions/other.py")
    write(tmp_path, "decompositions/gamma.py", text="from fx_onnx.decompositions import _loops\n")
    write(tmp_path, *(f"tests/decompositions/test_{name}.py" for name in ("gamma", "other")))
    assert find_tests(["decompositions/_loops.py"], tmp_path) == ["tests/decompositions/test_gamma.py"]


def test_tests_and_pages(tmp_path):
    files = [
        "tests/translations/test_x.py",
        "tests/harness.py",
        "tests/end_to_end/test_models.py",
        "docs/opsets.md",
        "README.md",
    ]
    assert find_tests(files, tmp_path) == ["tests/test_docs.py", "tests/translations/test_x.py"]


def test_changed_files(tmp_path):
    git(tmp_path, "init", "-q", "-b", "main")
    write(tmp_path, "same.py", "removed.py", "edited.py")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    git(tmp_path, "checkout", "-q", "-b", "topic")
    write(tmp_path, "committed.py")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "second")
    write(tmp_path, "edited.py", text="x = 1\n")
    write(tmp_path, "new.py")
    (tmp_path / "removed.py").unlink()
    assert changed_files(tmp_path, "main") == ["committed.py", "edited.py", "new.py"]
    assert changed_files(tmp_path, "no-such-branch") == ["edited.py", "new.py"]
