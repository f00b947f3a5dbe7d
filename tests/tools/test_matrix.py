"""Tests of the matrix of versions."""

import re

from tools.matrix import Combination, Outcome, Results, combinations, files_of, lower_bounds, page, read_report

REPORT = """<testsuites><testsuite tests="4">
<testcase classname="tests.test_a" name="test_1" />
<testcase classname="tests.test_a" name="test_2"><skipped message="no" /></testcase>
<testcase classname="tests.test_a" name="test_3[x]"><failure message="wrong">trace</failure></testcase>
<testcase classname="" name="tests.test_b"><error message="import">trace</error></testcase>
</testsuite></testsuites>"""


def test_lower_bounds():
    assert lower_bounds(["torch>=2.13,<2.15", "onnx-ir>=1.1", "tqdm"]) == {"torch": "2.13", "onnx-ir": "1.1"}


def test_a_report():
    assert read_report(REPORT) == (1, 1, ["tests.test_a::test_3[x]", "::tests.test_b"])


def test_the_oldest_combination_has_every_lower_bound():
    oldest = combinations()[-1]
    assert {"torch==2.13", "onnx-ir==1.1"} <= set(oldest.requirements)
    assert not [each for each in oldest.requirements if each.startswith("transformers")]


def test_a_whole_combination_has_every_test_once():
    files = list(files_of(Combination("all", "all", ())))
    assert len(files) == len(set(files))
    assert {"tests/tools/test_matrix.py", "tests/test_docs.py", "tests/end_to_end/test_models.py"} <= set(files)


def test_results_continue(tmp_path):
    combination = Combination("a", "a", (), minutes=1)
    results = Results(tmp_path / "results.jsonl")
    first = results.next_file(combination)
    results.add(Outcome("a", first, 3, 1, ["x"], 20.0))
    again = Results(tmp_path / "results.jsonl")
    assert again.outcomes == results.outcomes
    assert again.next_file(combination) not in (None, first)
    results.add(Outcome("a", "long", 1, 0, [], 50.0))
    assert results.next_file(combination) is None  # its time is spent


def test_the_page_names_each_failure(tmp_path):
    results = Results(tmp_path / "results.jsonl")
    results.add(Outcome("newest", "tests/test_a.py", 3, 1, ["tests.test_a::test_x"], 60.0))
    names = ("python", "torch", "numpy", "onnx", "onnx_ir", "onnxscript", "onnxruntime")
    text = page(results, {each.name: dict.fromkeys(names, "1.0") for each in combinations()})
    assert re.search(r"\| 1 of \d+ \| 3 \| 1 \| 1 \| 1 \|", text)
    assert "`tests.test_a::test_x`" in text
