"""Every operator that changed between two opsets is accounted for, and what a step cannot express is one sentence."""

from collections.abc import Iterator

import onnx
import pytest
import torch
from onnx.defs import OpSchema

from fx_onnx.core import metadata
from fx_onnx.core.errors import OnnxExporterError
from fx_onnx.passes.legalization.opsets.ladder import LADDER
from fx_onnx.passes.legalization.opsets.step import CLARIFIED, DEFAULTS_ONLY, DTYPES_ONLY, OpsetStep, differs
from fx_onnx.passes.legalization.opsets.step_17 import STEP_17
from tests.passes.checking import check, model

# What the older opset does not have and no rule rewrites.
REFUSED = {
    17: {"CenterCropPad", "OptionalGetElement", "OptionalHasElement"},
    16: {"MelWeightMatrix", "STFT", "SequenceMap"},
    14: {"Bernoulli", "CastLike", "Optional", "OptionalGetElement", "OptionalHasElement"},
    10: {
        "BitShift", "ConcatFromSequence", "Det", "DynamicQuantizeLinear", "SequenceAt", "SequenceConstruct",
        "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "SplitToSequence", "Unique",
    },
    9: {
        "ConvInteger", "NonMaxSuppression", "QLinearConv", "QLinearMatMul", "ReverseSequence", "RoiAlign",
        "StringNormalizer",
    },
    8: {
        "Acosh", "Asinh", "Atanh", "Compress", "Erf", "MaxUnpool", "MeanVarianceNormalization", "Scatter", "Shrink",
        "TfIdfVectorizer",
    },
    7: {"Scan"},
}  # fmt: skip
steps = pytest.mark.parametrize("step", LADDER, ids=lambda step: step.name)


def changed(step: OpsetStep) -> Iterator[str]:
    """Yields the operators of the newer opset whose version differs from that of the older one."""
    for name in sorted({schema.name for schema in onnx.defs.get_all_schemas_with_history() if not schema.domain}):
        if differs(name, step.opset) and _schema(name, step.opset + 1) is not None:
            yield name


def _schema(name: str, opset: int) -> OpSchema | None:
    try:
        schema = onnx.defs.get_schema(name, opset)
    except onnx.defs.SchemaError:
        return None
    return None if schema.deprecated else schema


@steps
def test_every_changed_operator_is_rewritten_unchanged_or_refused(step: OpsetStep) -> None:
    known = [*step.rewrites, *step.unchanged, *REFUSED.get(step.opset, ())]
    assert sorted(known) == sorted(changed(step))
    assert len(known) == len(set(known))


@steps
def test_an_unchanged_operator_differs_as_its_reason_says(step: OpsetStep) -> None:
    """The names of inputs and outputs agree, and so do the attributes with their defaults, except for added ones."""
    for name, reason in step.unchanged.items():
        newer, older = _schema(name, step.opset + 1), _schema(name, step.opset)
        assert newer is not None
        assert older is not None
        for part in ("inputs", "outputs"):
            assert [x.name for x in getattr(newer, part)] == [x.name for x in getattr(older, part)], name
        added = set(newer.attributes) - set(older.attributes)
        assert set(older.attributes) <= set(newer.attributes), name
        assert bool(added) == (reason == DEFAULTS_ONLY), name
        assert reason in (CLARIFIED, DEFAULTS_ONLY, DTYPES_ONLY)
        for attr in older.attributes:
            assert str(newer.attributes[attr].default_value) == str(older.attributes[attr].default_value), (name, attr)


@steps
def test_a_rule_has_a_docstring_with_its_reason(step: OpsetStep) -> None:
    for rule in step.rewrites.values():
        assert "→" in (rule.__doc__ or "")
        assert "Legal because" in (rule.__doc__ or "")


def test_an_attribute_with_its_default_is_dropped() -> None:
    text = "g (float[1,1,4,4] x) => (float[A,B,C,D] y) { y = LpPool<kernel_shape=[2,2], ceil_mode=%d>(x) }"
    check(model(text % 0, opset=18), STEP_17, [torch.rand(1, 1, 4, 4)], ["LpPool"])
    with pytest.raises(OnnxExporterError, match="its attribute ceil_mode does not exist there"):
        STEP_17(model(text % 1, opset=18))


def test_a_refusal_names_the_line_and_the_oldest_opset_that_works() -> None:
    program = model("g (float[A] x, int64[2] i) => (float[B] y) { y = CenterCropPad(x, i) }", opset=18)
    trace = 'File "model.py", line 7, in forward\n    a()\nFile "model.py", line 12, in crop\n    center_crop(x)'
    program.graph[0].metadata_props[metadata.STACK_TRACE] = trace
    with pytest.raises(OnnxExporterError) as caught:
        STEP_17(program)
    assert str(caught.value) == (
        "ONNX opset 17 cannot express CenterCropPad at model.py:12, because that opset has no such operator; "
        "export with opset_version=18 or above. [FX1303]"
    )


def test_the_bodies_of_control_flow_are_rewritten() -> None:
    text = """g (bool c, float[2,3] x) => (float[2,1] y) <int64[1] a = {1}> {
      y = If(c) <then_branch = t () => (float[2,1] p) { p = ReduceMean(x, a) },
                 else_branch = e () => (float[2,1] q) { q = ReduceMax(x, a) }>
    }"""
    x = torch.randn(2, 3)
    check(model(text, opset=18), STEP_17, [torch.tensor(True), x], ["If", "ReduceMean", "ReduceMax"])
