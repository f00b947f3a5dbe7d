"""Recurrent layers."""

import pytest
import torch

from fx_onnx.backends.legalization.loops import legalize_cast_sequences, legalize_initial_states
from tests.passes.checking import check, model

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("op_type", GATES)
def test_absent_states(op_type: str, direction: str) -> None:
    ways = 2 if direction == "bidirectional" else 1
    torch.manual_seed(0)
    weights = {"w": torch.randn(ways, GATES[op_type] * 4, 3), "r": torch.randn(ways, GATES[op_type] * 4, 4)}
    text = f"""g (float[T,B,3] x) => (float[T,{ways},B,4] y, float[{ways},B,4] h) {{
      y, h = {op_type}<hidden_size=4, direction="{direction}">(x, w, r)
    }}"""
    expected = [op_type, "Shape", "Concat", "Expand"]
    check(model(text, weights), legalize_initial_states, [torch.randn(5, 2, 3)], expected)


def test_a_given_state_stays() -> None:
    torch.manual_seed(0)
    weights = {"w": torch.randn(1, 12, 3), "r": torch.randn(1, 12, 4)}
    text = """g (float[T,B,3] x, float[1,B,4] h) => (float[T,1,B,4] y) {
      y = GRU<hidden_size=4>(x, w, r, , , h)
    }"""
    inputs = [torch.randn(5, 2, 3), torch.randn(1, 2, 4)]
    check(model(text, weights), legalize_initial_states, inputs, ["GRU"])


@pytest.mark.parametrize("moves", [[], ["Transpose"]])
@pytest.mark.parametrize(("dtype", "added"), [("float16", ["Add"]), ("int32", [])])
@pytest.mark.parametrize("op_type", GATES)
def test_a_cast_sequence_is_a_sum(op_type: str, dtype: str, added: list[str], moves: list[str]) -> None:
    torch.manual_seed(0)
    weights = {"w": torch.randn(1, GATES[op_type] * 4, 3), "r": torch.randn(1, GATES[op_type] * 4, 4)}
    steps = "s = Transpose<perm=[1, 0, 2]>(c)" if moves else ""
    text = f"""g ({dtype}[A,B,3] x) => (float[T,1,S,4] y, float[1,S,4] h) {{
      c = Cast<to=1>(x)\n {steps}\n y, h = {op_type}<hidden_size=4>({"s" if moves else "c"}, w, r)
    }}"""
    x = torch.randn(5, 2, 3).to(getattr(torch, dtype))
    check(model(text, weights), legalize_cast_sequences, [x], ["Cast", *moves, *added, op_type])
