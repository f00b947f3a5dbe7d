"""Caches with a sliding window work within and beyond the window in one program; state space models scan any length."""

import copy
import warnings

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers import DynamicCache, StaticCache, masking_utils
from transformers.cache_utils import DynamicSlidingWindowLayer, StaticSlidingWindowLayer

import fx_onnx
from fx_onnx.capture.patches.patching import apply_patches
from fx_onnx.libraries.transformers import PATCHES
from tests.compare import assert_close

SIZES = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 6,
}  # fmt: skip


@pytest.mark.parametrize("record_past", [False, True])
def test_patched_layers_compute_the_same(record_past: bool) -> None:
    original, patched = DynamicSlidingWindowLayer(5), DynamicSlidingWindowLayer(5)
    original.record_past = patched.record_past = record_past
    for new in (2, 1, 3, 1, 7, 1):
        keys, values = torch.randn(2, 3, new, 4), torch.randn(2, 3, new, 4)
        want = (
            original.get_mask_sizes(new),
            original.update(keys, values),
            original.keys,
            original.values,
            original.get_seq_length(),
        )
        with apply_patches(PATCHES):
            sizes = patched.get_mask_sizes(new)
            found = sizes, patched.update(keys, values), patched.keys, patched.values, patched.get_seq_length()
        assert found[0] == want[0]
        assert found[4] == want[4]
        assert_close(found[1:4], want[1:4], tolerance=0)


@pytest.mark.parametrize("steps", [(2, 1, 1, 1, 1, 1), (2, 4, 3, 1), (7, 1, 2), (5, 1), (1, 4, 2), (4, 1, 1)])
def test_patched_layers_of_a_fixed_size_compute_the_same(steps: tuple[int, ...]) -> None:
    """The layer is partly filled, becomes full within a step or at its end, and is full."""
    original, patched = StaticSlidingWindowLayer(9, 5), StaticSlidingWindowLayer(9, 5)
    for new in steps:
        keys, values = torch.randn(2, 3, new, 4), torch.randn(2, 3, new, 4)
        sizes = original.get_mask_sizes(new)
        want = copy.deepcopy((*original.update(keys, values), original.keys, original.values))
        with apply_patches(PATCHES):
            assert patched.get_mask_sizes(new) == sizes
            found = (*patched.update(keys, values), patched.keys, patched.values)
        assert patched.cumulative_length_int == original.cumulative_length_int
        assert_close((*found, patched.cumulative_length), (*want, original.cumulative_length), tolerance=0)


@pytest.mark.parametrize("length", [3, 7, 9])
def test_patched_padding_computes_the_same(length: int) -> None:
    """A mask that is shorter than the cache, as long, and longer."""
    mask = torch.ones(2, length, dtype=torch.bool)
    want = masking_utils.prepare_padding_mask(mask, 7, 0)
    with apply_patches(PATCHES):
        assert masking_utils.prepare_padding_mask(None, 7, 0) is None
        found = masking_utils.prepare_padding_mask(mask, 7, 0)
    assert_close(found, want, tolerance=0)


class RecurrentMask(nn.Module):
    """Masks tokens (batch, tokens, size) as the mixers of state space models do."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        mask = masking_utils.create_recurrent_attention_mask(None, x, mask, None)
        return x if mask is None else x * mask[..., None]


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float32])
def test_the_recurrent_mask_of_one_token_is_skipped_as_in_the_model(dtype: torch.dtype) -> None:
    shapes = {"x": {0: "batch", 1: "tokens"}, "mask": {0: "batch", 1: "tokens"}}
    example = torch.randn(2, 3, 4), torch.ones(2, 3, dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error", fx_onnx.OnnxExporterWarning)
        program = fx_onnx.export(RecurrentMask().eval(), example, dynamic_shapes=shapes)
    for tokens in (1, 2, 5):
        x, mask = torch.randn(3, tokens, 4), torch.randint(0, 2, (3, tokens)).to(dtype)
        mask[0] = 0
        assert_close(program(x, mask), RecurrentMask()(x, mask))


def mistral() -> nn.Module:
    """Returns a model in which the only layer has a sliding window."""
    return transformers.MistralForCausalLM(transformers.MistralConfig(**{**SIZES, "num_hidden_layers": 1}))


def gemma2() -> nn.Module:
    """Returns a model in which every second layer has a sliding window."""
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**SIZES, query_pre_attn_scalar=8))


@pytest.mark.parametrize("make", [mistral, gemma2])
def test_one_program_within_and_beyond_the_window(make: object) -> None:
    """Exports with a partly filled window, then runs a prefill and steps until the window is full and beyond."""
    torch.manual_seed(0)
    module = make().eval()

    def inputs(past: int, new: int, cache: DynamicCache) -> dict[str, object]:
        mask = torch.ones(2, past + new, dtype=torch.int64)
        return {"input_ids": torch.randint(0, 64, (2, new)), "attention_mask": mask, "past_key_values": cache}

    def filled(past: int) -> DynamicCache:
        cache = DynamicCache(config=module.config)
        for layer in range(module.config.num_hidden_layers):
            cache.update(torch.randn(2, 2, past, 8), torch.randn(2, 2, past, 8), layer)
        return cache

    shapes = {
        "input_ids": {0: "batch", 1: "new"},
        "attention_mask": {0: "batch", 1: "total"},
        "past_key_values": {0: "batch", 2: "past"},
    }
    program = fx_onnx.export(module, (), kwargs=inputs(3, 2, filled(3)), dynamic_shapes=shapes)
    values = {value.name: value for value in program.model.graph.inputs}
    assert values["past_key_values.0.key"].shape == ("batch", 2, "past_window", 8)
    assert values["past_key_values.0.cumulative_length"].shape == ()
    mine, past = filled(0), 0
    theirs = copy.deepcopy(mine)
    for new in (4, 1, 1, 3, 1, 1):
        given = inputs(past, new, mine)
        got = program.call_structured(**given)
        with torch.no_grad():
            want = module(**{**given, "past_key_values": theirs})
        assert_close(got.logits, want.logits)
        mine, theirs, past = got.past_key_values, want.past_key_values, past + new
        assert mine.get_seq_length() == theirs.get_seq_length() == past
        for one, other in zip(mine.layers, theirs.layers, strict=True):
            assert_close((one.keys, one.values), (other.keys, other.values))


def test_one_program_within_and_beyond_the_window_of_a_fixed_size() -> None:
    torch.manual_seed(0)
    config = transformers.MistralConfig(**{**SIZES, "num_hidden_layers": 1})
    module = transformers.MistralForCausalLM(config).eval()
    mine = StaticCache(config=config, max_cache_len=16)
    mine.early_initialization(2, 2, 8, torch.float32, torch.device("cpu"))
    theirs, ids = copy.deepcopy(mine), torch.randint(0, 64, (2, 12))
    example = {"input_ids": ids[:, :3], "past_key_values": copy.deepcopy(mine)}
    shapes = {"input_ids": {0: "batch", 1: "new"}, "past_key_values": {0: "batch"}}
    with warnings.catch_warnings():
        warnings.simplefilter("error", fx_onnx.OnnxExporterWarning)
        program = fx_onnx.export(module, (), kwargs=example, dynamic_shapes=shapes)
    for start, end in ((0, 4), (4, 5), (5, 8), (8, 9), (9, 12)):
        got = program.call_structured(input_ids=ids[:, start:end], past_key_values=mine)
        with torch.no_grad():
            want = module(input_ids=ids[:, start:end], past_key_values=theirs)
        assert_close(got.logits, want.logits)
        mine = got.past_key_values


def test_a_state_space_model_of_any_length() -> None:
    torch.manual_seed(0)
    config = transformers.MambaConfig(vocab_size=64, hidden_size=16, state_size=4, num_hidden_layers=1, use_cache=False)
    module = transformers.MambaForCausalLM(config).eval()
    shapes = {"input_ids": {0: "batch", 1: "sequence"}}
    program = fx_onnx.export(module, (), kwargs={"input_ids": torch.randint(0, 64, (2, 5))}, dynamic_shapes=shapes)
    for batch, length in ((2, 5), (3, 11), (1, 1)):
        ids = torch.randint(0, 64, (batch, length))
        with torch.no_grad():
            assert_close(program(input_ids=ids), module(input_ids=ids).logits)
