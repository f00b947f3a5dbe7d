"""Every operator that changed between two opsets is accounted for, and what a step cannot express is one sentence."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
import torch
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.case.test_case import TestCase
from onnx.defs import OpSchema
from onnx.helper import make_model, make_opsetid
from onnx.numpy_helper import to_array
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops import op_pool_common

from fx_onnx.backends.ladder import LADDER, OpsetStep, differs, keeps_meaning
from fx_onnx.messages.errors import OnnxExporterError
from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.schemas import moved_inputs
from tests.passes.checking import check, model

# What the older opset does not have and no row rewrites.
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
steps = pytest.mark.parametrize("step", LADDER, ids=lambda step: f"to_{step.opset}")


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


def unchanged(step: OpsetStep) -> list[str]:
    """Returns the operators that no row of the step rewrites because they keep their meaning."""
    both = [name for name in changed(step) if name not in step.rows and _schema(name, step.opset) is not None]
    return [name for name in both if keeps_meaning(name, step.opset)]


# The operators without a row whose inputs become attributes.
MOVED = {12: {"Squeeze", "Unsqueeze"}, 8: {"Upsample"}}


@steps
def test_every_changed_operator_is_rewritten_unchanged_or_refused(step: OpsetStep) -> None:
    moved = {name for name in changed(step) if moved_inputs(name, step.opset, step.opset + 1)}
    assert moved.difference(step.rows) == MOVED.get(step.opset, set())
    known = [*{*step.rows, *moved}, *unchanged(step), *REFUSED.get(step.opset, ())]
    assert sorted(known) == sorted(changed(step))
    assert len(known) == len(set(known))


# Operators of opset 12 all of whose cases have a form that opset 12 or 13 does not admit.
WITHOUT_CASE = {
    "Loop", "MeanVarianceNormalization", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean",
    "ReduceSumSquare",
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_an_operator_that_keeps_its_meaning_computes_the_same() -> None:
    """ONNX's own cases of each operator, which vary attributes, ranks and dtypes, run in both versions."""
    pairs = {(name, step.opset) for step in LADDER for name in unchanged(step)}
    compared = set[tuple[str, int]]()
    for case in _cases():
        graph = case.model.graph
        opsets = {opset for name, opset in pairs if len(graph.node) == 1 and name == graph.node[0].op_type}
        for opset in sorted(opsets):
            models = [make_model(graph, opset_imports=[make_opsetid("", each)]) for each in (opset, opset + 1)]
            if not all(map(_is_valid, models)):
                continue
            compared.add((graph.node[0].op_type, opset))
            if graph.node[0].op_type == "RNN" and onnx.__version__ < "1.23":
                continue  # the reference evaluator of onnx 1.22 computes both versions differently
            evaluators = [ReferenceEvaluator(each) for each in models]
            if _are_one_class(*evaluators):
                continue
            for inputs, _ in case.data_sets:
                arrays = [to_array(each) if isinstance(each, onnx.TensorProto) else each for each in inputs]
                feeds = dict(zip((each.name for each in graph.input), arrays, strict=True))
                older, newer = (_tensors(each.run(None, feeds)) for each in evaluators)
                for first, second in zip(older, newer, strict=True):
                    np.testing.assert_array_equal(first, second, err_msg=f"{case.name} at {opset}")
    assert pairs - compared == {(name, 12) for name in WITHOUT_CASE}


def _cases() -> list[TestCase]:
    """Returns ONNX's cases. Nothing here reads the expected results, of which those of pools take most of the time."""
    with mock.patch.object(op_pool_common, "pool", _unpooled):
        return collect_testcases(None)


def _unpooled(
    padded: Any, shape: Sequence[int], kernel: Any, strides: Any, out: Sequence[int], *_: Any, **__: Any
) -> Any:
    return np.zeros((*shape[:2], *out), padded.dtype)


def _are_one_class(*evaluators: ReferenceEvaluator) -> bool:
    """Returns whether one class of the evaluator computes both models of one node, so that no result can differ."""
    ((first,), (second,)) = (each.rt_nodes_ for each in evaluators)
    return type(first) is type(second) and type(first).__module__.startswith("onnx.reference.ops.")


def _tensors(results: list[Any]) -> Iterator[Any]:
    """Yields the tensors of results, those of sequences one by one."""
    for each in results:
        yield from each if isinstance(each, list) else [each]


def _is_valid(program: onnx.ModelProto) -> bool:
    try:
        onnx.checker.check_model(program, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return False
    return True


@steps
def test_a_row_has_a_docstring_with_its_reason(step: OpsetStep) -> None:
    for row in itertools.chain.from_iterable(step.rows.values()):
        assert "→" in (row.__doc__ or "")
        assert "Legal because" in (row.__doc__ or "")


def test_an_attribute_with_its_default_is_dropped() -> None:
    text = "g (float[1,1,4,4] x) => (float[A,B,C,D] y) { y = LpPool<kernel_shape=[2,2], ceil_mode=%d>(x) }"
    check(model(text % 0, opset=18), OpsetStep(17), [torch.rand(1, 1, 4, 4)], ["LpPool"])
    with pytest.raises(OnnxExporterError, match="its attribute ceil_mode does not exist there"):
        OpsetStep(17)(model(text % 1, opset=18))


def test_a_refusal_names_the_line_and_the_oldest_opset_that_works() -> None:
    program = model("g (float[A] x, int64[2] i) => (float[B] y) { y = CenterCropPad(x, i) }", opset=18)
    trace = 'File "model.py", line 7, in forward\n    a()\nFile "model.py", line 12, in crop\n    center_crop(x)'
    program.graph[0].metadata_props[metadata.STACK_TRACE] = trace
    with pytest.raises(OnnxExporterError) as caught:
        OpsetStep(17)(program)
    assert str(caught.value) == (
        "ONNX opset 17 cannot express CenterCropPad at model.py:12, because that opset has no such operator; "
        "export with opset_version=18 or above. [fx-onnx explain FX1303]"
    )


def test_the_bodies_of_control_flow_are_rewritten() -> None:
    text = """g (bool c, float[2,3] x) => (float[2,1] y) <int64[1] a = {1}> {
      y = If(c) <then_branch = t () => (float[2,1] p) { p = ReduceMean(x, a) },
                 else_branch = e () => (float[2,1] q) { q = ReduceMax(x, a) }>
    }"""
    x = torch.randn(2, 3)
    check(model(text, opset=18), OpsetStep(17), [torch.tensor(True), x], ["If", "ReduceMean", "ReduceMax"])
