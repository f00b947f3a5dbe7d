"""How libraries pack weights: each form against a reading of the bits in Python."""

import pytest
import torch

from fx_onnx.quantized_weights.stored_forms import FORMS

BYTES = torch.tensor([[0x21, 0x43], [0x65, 0xF7]], dtype=torch.uint8)


def test_nibbles() -> None:
    assert FORMS["nibbles"](BYTES).tolist() == [[1, 2, 3, 4], [5, 6, 7, 15]]
    assert FORMS["nibbles"](BYTES, 1).tolist() == [[2, 1, 4, 3], [6, 5, 15, 7]]
    assert FORMS["joined nibbles"](BYTES[None]).tolist() == [[1, 2, 3, 4, 5, 6, 7, 15]]
    assert FORMS["flat nibbles"](BYTES, 7).tolist() == [2, 1, 4, 3, 6, 5, 15]


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("axis", [0, 1])
def test_words_without_gaps(bits: int, axis: int) -> None:
    """Tests elements that begin in one word and end in the next."""
    rows, columns = 3, 37
    values = torch.randint(-(2 ** (bits - 1)), 2 ** (bits - 1), (rows, columns))
    packed = []
    for row in values.tolist():
        whole = sum((value + 2 ** (bits - 1)) << (bits * index) for index, value in enumerate(row))
        words = [(whole >> shift) & 0xFFFFFFFF for shift in range(0, columns * bits, 32)]
        packed.append([word - 2**32 if word >= 2**31 else word for word in words])
    words = torch.tensor(packed, dtype=torch.int32)
    found = FORMS["words"](words if axis else words.t(), bits, columns, axis)
    assert found.dtype == torch.int8 and torch.equal(found, (values if axis else values.t()).to(torch.int8))


@pytest.mark.parametrize(("bits", "width", "dtype"), [(4, 8, torch.uint8), (2, 8, torch.uint8), (3, 30, torch.int32)])
@pytest.mark.parametrize("is_high_first", [0, 1])
def test_slots(bits: int, width: int, dtype: torch.dtype, is_high_first: int) -> None:
    per_element = width // bits
    values = torch.randint(0, 2**bits, (per_element * 2, 3), dtype=torch.int32)
    packed = torch.zeros(2, 3, dtype=torch.int32)
    for slot in range(per_element):
        packed |= values[2 * slot : 2 * slot + 2] << bits * (per_element - 1 - slot if is_high_first else slot)
    rows = 2 * per_element - 1
    found = FORMS["slots"](packed.to(dtype), bits, width, rows, is_high_first, 0)
    assert found.dtype == torch.uint8 and torch.equal(found.int(), values[:rows])
    assert torch.equal(FORMS["slots"](packed.to(dtype), bits, width, rows, is_high_first, 1).int(), values[:rows] - 1)


def test_rows_and_bytes() -> None:
    scales = torch.arange(4.0).reshape(2, 2)
    assert FORMS["rows repeated"](scales, 2, 3).tolist() == [[0, 1], [0, 1], [2, 3]]
    assert FORMS["bytes"](torch.ones(1).to(torch.float8_e8m0fnu)).tolist() == [127]
