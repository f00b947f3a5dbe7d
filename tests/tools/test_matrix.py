"""Tests of the matrix of versions."""

import re

from tools.matrix import (
    ALL_PASSED,
    PAGE,
    Combination,
    Outcome,
    Results,
    combinations,
    files_of,
    lower_bounds,
    outcomes,
    page,
)  # fmt: skip

REPORT = """<testsuites><testsuite tests="5">
<testcase classname="tests.test_a" name="test_1" time="2" />
<testcase classname="tests.test_a" name="test_2" time="1"><skipped message="no" /></testcase>
<testcase classname="tests.test_a.TestB" name="test_3[x]" time="0"><failure message="wrong">trace</failure></testcase>
<testcase classname="" name="tests.test_b" time="0"><error message="import">trace</error></testcase>
<testcase classname="tests.test_ab" name="test_1" time="0" />
</testsuite></testsuites>"""


def test_lower_bounds():
    assert lower_bounds(["torch>=2.13,<2.15", "onnx-ir>=1.1", "tqdm"]) == {"torch": "2.13", "onnx-ir": "1.1"}


def test_a_report():
    assert outcomes("newest", ["tests/test_a.py", "tests/test_b.py", "tests/test_ab.py"], REPORT, 9.0) == [
        Outcome("newest", "tests/test_a.py", 1, 1, ["tests.test_a.TestB::test_3[x]"], 5.0),
        Outcome("newest", "tests/test_b.py", 0, 0, ["::tests.test_b"], 2.0),
        Outcome("newest", "tests/test_ab.py", 1, 0, [], 2.0),
    ]


def test_a_report_of_one_test():
    report = '<testsuite><testcase classname="tests.test_a" name="test_1" time="2" /></testsuite>'
    assert outcomes("oldest", ["tests/test_a.py::test_1"], report, 3.0)[0].passed == 1


def test_a_file_of_which_no_test_ran_has_failed():
    assert outcomes("newest", ["tests/test_a.py"], "<testsuite />", 3.0)[0].failed == ["tests/test_a.py: no test ran"]


def test_the_oldest_combination_has_every_lower_bound():
    oldest = combinations()[-1]
    assert {"torch==2.11", "onnx-ir==1.1"} <= set(oldest.requirements)
    assert not [each for each in oldest.requirements if each.startswith("transformers")]


def test_a_whole_combination_has_every_test_once():
    files = list(files_of(Combination("all", "all", ())))
    assert len(files) == len(set(files))
    assert {"tests/tools/test_matrix.py", "tests/test_docs.py", "tests/end_to_end/test_models.py"} <= set(files)


def test_results_continue(tmp_path):
    combination = Combination("a", "a", (), minutes=1)
    results = Results(tmp_path / "results.jsonl")
    (first,) = results.next_files(combination, 3)  # README's snippets are selected by an option of their own
    results.add(Outcome("a", first, 3, 1, ["x"], 20.0))
    again = Results(tmp_path / "results.jsonl")
    assert again.outcomes == results.outcomes
    assert len(again.next_files(combination, 3)) == 3
    assert first not in again.next_files(combination, 3)
    results.add(Outcome("a", "long", 1, 0, [], 50.0))
    assert results.next_files(combination, 3) == []  # its time is spent


NAMES = ("python", "torch", "numpy", "onnx", "onnx_ir", "onnxscript", "onnxruntime")


def test_the_page_has_a_row_for_each_combination():
    rows = re.findall(r"^\| (.*?) \| \d", PAGE.read_text(encoding="utf-8"), re.M)
    assert rows == [each.versions for each in combinations()]


def test_a_run_changes_its_row_and_the_failures_only(tmp_path):
    before, newest = PAGE.read_text(encoding="utf-8"), combinations()[0]
    environments = {newest.name: dict.fromkeys(NAMES, "1.0")}
    results = Results(tmp_path / "results.jsonl")
    results.add(Outcome("newest", "tests/test_a.py", 3, 1, ["tests.test_a::test_x"], 60.0))
    text = page(before, results, environments)
    old, new = (set(each.splitlines()) for each in (before, text))
    row, failure = sorted(new - old, reverse=True)
    assert re.search(r"^\| the newest allowed \| 1.0 .*\| 1 of \d+ \| 3 \| 1 \| 1 \| 1 \|$", row)
    assert failure == "- the newest allowed: `tests.test_a::test_x`"
    assert len(old - new) == 2
    assert page(text, results, environments) == text
    results.outcomes = [Outcome("newest", "tests/test_a.py", 4, 1, [], 60.0)]
    passed = page(text, results, environments)
    assert ALL_PASSED in passed.splitlines()
    assert "test_x" not in passed
    assert passed.partition("\n## ")[2] == before.partition("\n## ")[2]
