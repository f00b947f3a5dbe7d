"""The targets by name."""

import re
from pathlib import Path

import pytest
import torch

import fx_onnx
from fx_onnx.onnx_model import opsets
from fx_onnx.passes.optimize import PASSES
from fx_onnx.targets.known_targets import NAMES, VARIANTS, find_target
from fx_onnx.targets.target import Target
from tests.exporting import StaticCache, exported, operators, padded_maximum


@pytest.mark.parametrize("name", [*NAMES, *VARIANTS])
def test_records(name: str) -> None:
    target = find_target(name)
    assert target.name == name
    assert opsets.check(target.opset) == target.opset
    assert {*target.without} <= {each.name for each in PASSES}
    assert target.table is None or target.kernels is not None
    assert find_target(target) is target


def test_the_page_has_the_facts_of_the_records() -> None:
    """One row for each target in docs/targets.md: opset, whether it was executed, its table, and what it does."""
    page = (Path(__file__).parents[2] / "docs" / "targets.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if re.match(r"\| `[\w-]+` \|", line)]
    assert sorted(row[0].strip("`") for row in rows) == sorted(NAMES)
    for quoted, _, opset, executed, table, missing in rows:
        name = quoted.strip("`")
        target = find_target(name)
        assert (int(opset), executed == "yes") == (target.opset, target.executed), name
        assert missing == ("is refused" if target.refuses else "is reported"), name
        assert table.startswith("none") == (target.table is None), name
        assert re.findall(r"`([\w-]+)`", table) == ([target.table] if target.table not in (None, name) else []), name
        if target.kernels is not None and target.table == name:
            has_versions = any(kernel.first > 1 for kernels in target.kernels.rows.values() for kernel in kernels)
            assert ("with dtypes" in table, "without versions" in table) == (
                target.kernels.has_dtypes,
                not has_versions,
            ), name


def test_only_the_keys_of_a_static_cache_that_are_written_are_read() -> None:
    args = torch.randn(1, 2, 2, 4), torch.randn(1, 2, 8, 4), torch.tensor(3)
    options = {"opset_version": 23, "dynamic_shapes": ({2: "length"}, None, None), "verbose": False}
    program = fx_onnx.export(StaticCache().eval(), args, **options)
    assert "Attention" in operators(program)
    assert "Slice" in operators(program)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("openvin", r"did you mean 'openvino'\?"),
        ("cuda", r"did you mean 'onnxruntime-cuda'\?"),
        ("CUDAExecutionProvider", r"did you mean 'onnxruntime-cuda'\?"),
        ("CoreMLExecutionProvider", r"did you mean 'coreml'\?"),
        ("ORT", r"did you mean 'onnxruntime'\?"),
        ("ort-web", r"did you mean 'onnxruntime-web'\?"),
        ("trt", r"did you mean 'tensorrt'\?"),
        ("phone", r"the targets are onnxruntime, .*, webnn\."),
    ],
)
def test_an_unknown_name_is_refused_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(fx_onnx.ArgumentError, match=rf"no target '{name}'; {hint} \[fx-onnx explain FX\d+\]$"):
        exported(padded_maximum, torch.ones(2, 3), target=name)


def test_a_record_of_the_caller() -> None:
    """Its passes run instead of those for ONNX Runtime, and its optimizer leaves passes out."""
    x = torch.ones(2, 3, dtype=torch.bfloat16)
    program = exported(lambda x: (x + x).neg(), x, target=Target("mine", "any", opset=22, legalizations=()))
    assert operators(program) == ["Add", "Neg"]
    program = exported(lambda x: x.mT.mT, x, target=Target("mine", "any", without=("merge_transposes",)))
    assert operators(program) == ["Transpose", "Transpose"]
