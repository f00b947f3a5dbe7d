"""Elimination of conditions that are always true from masks."""

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is in the extra 'test'", exc_type=ImportError)

import transformers

import fx_onnx
from fx_onnx.passes.cleanup.identities import eliminate_true_conditions
from tests.passes.checking import check, model

BEGIN = """g (float[B,4,3,3] scores, bool[B,1,1,3] mask) => (float[B,4,3,3] y) <
  float zero = {0.0}, float two = {2.0}, float lowest = {-10000.0}, int64 first = {0}, int64 limit = {3},
  int64 one = {1}, int64[4] column = {1, 1, 3, 1}, int64[1] keys = {3}, int64[1] queries = {2}
> {
  r = Range(first, limit, one)\n rows = Reshape(r, column)\n ge = GreaterOrEqual(rows, first)\n both = And(ge, mask)
"""
ADDED = "bias = Where(both, zero, lowest)\n y = Add(scores, bias) }"
COUNTED = """
  each = Where(both, two, zero)\n sum = ReduceSum<keepdims=1>(each, keys)\n kept = Clip(sum, zero, two)
  hidden = Mul(kept, lowest)\n bias = Where(both, zero, hidden)\n sums = Add(scores, bias)\n y = Mul(sums, kept) }"""
INPUTS = [torch.randn(2, 4, 3, 3), torch.tensor([[True, True, False], [False, False, False]]).reshape(2, 1, 1, 3)]


@pytest.mark.parametrize(
    ("end", "operators"),
    [
        (ADDED, ["Where", "Add"]),
        (ADDED.replace("scores, bias", "bias, scores"), ["Where", "Add"]),
        (COUNTED, ["Where", "ReduceSum", "Clip", "Mul", "Where", "Add", "Mul"]),
    ],
)
def test_masks(end: str, operators: list[str]) -> None:
    """The bias of a mask, also if each query counts its keys."""
    program = model((BEGIN + end).replace("int64[1] keys = {3}", "int64[1] keys = {-1}"))
    check(program, eliminate_true_conditions, INPUTS, operators)
    (bias,) = (node.outputs[0] for node in program.graph if node.outputs[0].name == "bias")
    assert bias.shape is not None and list(bias.shape)[1:] == [1, 1, 3]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("float[B,4,3,3] y)", "float[B,4,3,3] y, bool[B,1,3,3] both)"),  # the model returns the mask
        ("y = Add(scores, bias)", "s = Softmax(bias)\n y = Add(scores, s)"),  # another reader
        ("y = Add(scores, bias)", "s = ReduceSum<keepdims=1>(bias, queries)\n y = Add(scores, s)"),  # counts queries
        ("GreaterOrEqual(rows, first)", "GreaterOrEqual(rows, one)"),
        ("GreaterOrEqual(rows, first)", "Greater(rows, first)"),
        ("Range(first, limit, one)", "Range(limit, first, minus)"),
    ],
)
def test_left_alone(old: str, new: str) -> None:
    begin = BEGIN.replace("int64 first", "int64 minus = {-1}, int64 first")
    text = (begin + ADDED).replace(old, new)
    assert text != begin + ADDED and not eliminate_true_conditions(model(text)).modified


@pytest.mark.parametrize("dims", [None, {0: "batch", 1: "length"}])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_an_encoder_reads_its_mask_only(implementation: str, dims: dict[int, str] | None) -> None:
    """Also with static sizes, where the condition is a constant."""
    config = transformers.DistilBertConfig(
        vocab_size=20, dim=8, n_layers=1, n_heads=2, hidden_dim=16, attn_implementation=implementation
    )
    inputs = {
        "input_ids": torch.ones(2, 5, dtype=torch.int64),
        "attention_mask": torch.tensor([[1] * 5, [1, 1, 0, 0, 0]]),
    }
    shapes = None if dims is None else dict.fromkeys(inputs, dims)
    model = transformers.DistilBertModel(config).eval()
    program = fx_onnx.export(model, kwargs=inputs, dynamic_shapes=shapes, opset_version=20, verify=True, verbose=False)
    assert not {"And", "Range", "GreaterOrEqual"} & {node.op_type for node in program.model.graph}
