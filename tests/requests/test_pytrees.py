"""Dataclasses, named tuples and caches of transformers as inputs, outputs and state, with readable names."""

from __future__ import annotations

import copy
import sys
from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass

import pytest
import torch
import torch.utils._pytree as pytree
import transformers
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache, StaticCache
from transformers.cache_utils import (
    DynamicIndexedLayer,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionLayer,
    QuantizedLayer,
)
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.minimax.modeling_minimax import MiniMaxCache

import fx_onnx
from fx_onnx.requests import pytrees
from tests.compare import assert_close

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 8}
CONFIG = transformers.LlamaConfig(**SIZES, num_attention_heads=4, num_key_value_heads=2)
Pair = namedtuple("Pair", ["left", "right"])


@dataclass
class Given:
    a: Tensor
    b: Tensor | None = None


@dataclass
class Returned:
    a: Tensor
    rest: list[object]


class Structures(nn.Module):
    def forward(self, given: Given, optional: Tensor | None = None) -> Returned:
        return Returned(given.a + 1, [Pair(given.a * 2, optional), None])


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return x * self.count


def llama() -> nn.Module:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(CONFIG).eval()


def step(batch: int, past: int, new: int) -> dict[str, object]:
    cache = DynamicCache(config=CONFIG)
    for layer in range(2):
        cache.update(torch.randn(batch, 2, past, 8), torch.randn(batch, 2, past, 8), layer)
    mask = torch.ones(batch, past + new, dtype=torch.int64)
    return {"input_ids": torch.randint(0, 64, (batch, new)), "attention_mask": mask, "past_key_values": cache}


def test_dataclasses_and_named_tuples() -> None:
    module = Structures().eval()
    program = fx_onnx.export(module, (Given(torch.ones(2, 3)),), dynamic_shapes=({0: "batch"},))
    assert [value.name for value in program.model.graph.outputs] == ["a", "rest.0.left"]
    found = program.call_structured(Given(torch.randn(4, 3)))
    assert isinstance(found, Returned)
    assert isinstance(found.rest[0], Pair)
    assert found.rest[0].right is None


def test_prefill_and_decode_from_one_program() -> None:
    module = llama()
    shapes = {
        "input_ids": {0: "batch", 1: "new"},
        "attention_mask": {0: "batch", 1: "total"},
        "past_key_values": {0: "batch", 2: "past"},
    }
    program = fx_onnx.export(module, (), kwargs=step(2, 5, 3), dynamic_shapes=shapes)
    assert program.model.graph.inputs[2].name == "past_key_values.0.key"
    assert program.model.graph.inputs[2].shape == ("batch", 2, "past", 8)
    assert [value.name for value in program.model.graph.outputs][:2] == ["logits", "past_key_values.0.key_out"]
    for sizes in ((2, 5, 3), (3, 7, 1), (1, 0, 4)):
        inputs = step(*sizes)
        got = program.call_structured(**copy.deepcopy(inputs))
        with torch.no_grad():
            want = module(**inputs)
        assert_close(got.logits, want.logits)
        assert got.past_key_values.get_seq_length() == want.past_key_values.get_seq_length()


def test_encoder_decoder_cache() -> None:
    """The decoder of T5 also caches the keys and values of the encoder's output, which have another length."""
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=32, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    module = transformers.T5ForConditionalGeneration(config).eval()

    def inputs(batch: int, past: int, new: int, source: int) -> dict[str, object]:
        caches = DynamicCache(), DynamicCache()
        for cache, length in zip(caches, (past, source), strict=True):
            for layer in range(2):
                cache.update(torch.randn(batch, 2, length, 8), torch.randn(batch, 2, length, 8), layer)
        return {
            "decoder_input_ids": torch.randint(0, 32, (batch, new)),
            "encoder_outputs": BaseModelOutput(torch.randn(batch, source, 16)),
            "attention_mask": torch.ones(batch, source, dtype=torch.int64),
            "past_key_values": EncoderDecoderCache(*caches),
        }

    shapes = {
        "decoder_input_ids": {0: "batch", 1: "new"},
        "encoder_outputs": {0: "batch", 1: "source"},
        "attention_mask": {0: "batch", 1: "source"},
        "past_key_values": [{0: "batch", 2: "past"}, {0: "batch", 2: "source"}],
    }
    program = fx_onnx.export(module, (), kwargs=inputs(2, 3, 2, 5), dynamic_shapes=shapes, verbose=False)
    names = {value.name: tuple(map(str, value.shape)) for value in program.model.graph.inputs}
    assert names["past_key_values.self_attention_cache.1.key"] == ("batch", "2", "past", "8")
    assert names["past_key_values.cross_attention_cache.1.value"] == ("batch", "2", "source", "8")
    for sizes in ((2, 3, 2, 5), (3, 0, 4, 7), (1, 6, 1, 2)):
        given = inputs(*sizes)
        got = program.call_structured(**copy.deepcopy(given))
        with torch.no_grad():
            want = module(**given)
        assert_close(got.logits, want.logits)
        assert isinstance(got.past_key_values, EncoderDecoderCache)
        assert_close(pytree.tree_leaves(got.past_key_values), pytree.tree_leaves(want.past_key_values))


def test_static_cache() -> None:
    module = llama()

    def cache() -> StaticCache:
        made = StaticCache(config=CONFIG, max_cache_len=16)
        made.early_initialization(2, 2, 8, torch.float32, "cpu")
        return made

    example = {"input_ids": torch.randint(0, 64, (2, 3)), "past_key_values": cache()}
    program = fx_onnx.export(module, (), kwargs=example, dynamic_shapes={"input_ids": {1: "new"}})
    mine, theirs = cache(), cache()
    for new in (4, 2, 1):
        ids = torch.randint(0, 64, (2, new))
        got = program.call_structured(input_ids=ids, past_key_values=mine)
        mine = got.past_key_values
        with torch.no_grad():
            assert_close(got.logits, module(input_ids=ids, past_key_values=theirs).logits)


def test_state_is_carried_between_calls_on_request() -> None:
    program = fx_onnx.export(Counter().eval(), (torch.ones(2),))
    one = torch.ones(2)
    assert [program(one)[0][0].item() for _ in range(2)] == [1, 1]
    program.state = {}
    assert [program(one)[0][0].item() for _ in range(3)] == [1, 2, 3]
    assert program.state["count"].item() == 3
    program.state = {"count": torch.tensor(9.0)}
    assert program(one)[0][0].item() == 10
    program.state = {"other": torch.ones(())}
    with pytest.raises(fx_onnx.ArgumentError, match="'other'"):
        program(one)


def test_caches_survive_flatten_and_unflatten() -> None:
    pytrees.register(())
    filled = step(2, 5, 1)["past_key_values"]
    for cache in (filled, EncoderDecoderCache(filled, DynamicCache()), StaticCache(CONFIG, max_cache_len=4)):
        leaves, spec = pytree.tree_flatten(cache)
        again = pytree.tree_unflatten(leaves, spec)
        assert pytree.tree_structure(again) == spec
        assert type(again) is type(cache)
    found = pytrees.leaves(pytree.tree_structure({"a": 1, "b": filled}))
    assert [(leaf.path, leaf.in_cache) for leaf in found[:2]] == [(("a",), False), (("b", 0, "key"), True)]


@pytest.mark.parametrize(
    ("tree", "paths"),
    [
        (defaultdict(list, {"a": 1, "b": [2]}), [("a",), ("b", 0)]),
        (OrderedDict(z=1, a=2), [("z",), ("a",)]),
        (Pair(1, (2, 3)), [("left",), ("right", 0), ("right", 1)]),
        (Given(1, 2), [("a",), ("b",)]),
        (Given(1), [("a",)]),
        (BaseModelOutput(torch.ones(1)), [("last_hidden_state",)]),
        (deque([1, 2], maxlen=2), [(0,), (1,)]),
    ],
)
def test_paths_of_leaves(tree: object, paths: list[tuple[object, ...]]) -> None:
    pytrees.register(tree)
    assert [leaf.path for leaf in pytrees.leaves(pytree.tree_structure(tree))] == paths


def test_a_transformers_without_some_of_the_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers 4 has neither of the two classes."""
    for name in ("LinearAttentionCacheLayerMixin", "DummyLayer"):
        monkeypatch.delattr(transformers.cache_utils, name)
    pytrees.register(())
    assert pytrees.is_cache_part(DynamicCache())


def test_axes_of_a_cache_with_several_kinds_of_layers() -> None:
    axes = {0: "batch", 2: "past"}
    pytrees.register((DynamicCache(), MiniMaxCache()))
    assert pytrees.axes_of_part(DynamicLayer(), "keys", axes) == axes
    assert pytrees.axes_of_part(DynamicSlidingWindowLayer(4), "keys", axes) == {0: "batch", 2: "past_window"}
    assert pytrees.axes_of_part(DynamicSlidingWindowLayer(4), "keys", {0: "batch"}) == {0: "batch"}
    assert pytrees.axes_of_part(LinearAttentionLayer(), "recurrent_states", axes) == {0: "batch"}
    assert pytrees.axes_of_part(DynamicIndexedLayer(), "indexer_keys", axes) == {0: "batch", 1: "past"}
    assert pytrees.axes_of_part(DynamicIndexedLayer(), "indexer_position_ids", axes) == {1: "batch", 2: "past"}
    assert pytrees.axes_of_part(MiniMaxCache(), "linear_cache", axes) == {0: "batch"}
    assert pytrees.axes_of_part({"conv_states": ()}, "conv_states", axes) == axes


def test_a_registration_by_transformers_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its contexts are still rebuilt, as a model that transformers exported before returns them."""
    exporters = pytest.importorskip("transformers.exporters.exporter_dynamo")
    cls = type("OwnCache", (DynamicCache,), {})
    monkeypatch.setattr(sys.modules[__name__], cls.__name__, cls, raising=False)
    exporters.register_pytree_node(cls)
    cache = cls()
    cache.update(torch.ones(1, 2, 3, 4), torch.zeros(1, 2, 3, 4), 0)
    leaves, theirs = pytree.tree_flatten(cache)
    saved = pytree.treespec_dumps(theirs)
    pytrees.register([cache])
    own = pytree.tree_structure(cache)
    assert [(leaf.path, leaf.in_cache) for leaf in pytrees.leaves(own)] == [((0, "key"), True), ((0, "value"), True)]
    assert [leaf.in_cache for leaf in pytrees.leaves(theirs)] == [False, False]
    for spec in (own, theirs, pytree.treespec_loads(saved), pytree.treespec_loads(pytree.treespec_dumps(own))):
        assert pytree.tree_unflatten(leaves, spec).layers[0].values is leaves[1]


def test_a_quantized_cache_is_refused() -> None:
    layer = type("Layer", (QuantizedLayer,), {"_quantize": None, "_dequantize": None})()
    cache = transformers.Cache(layers=[layer])
    with pytest.raises(fx_onnx.ArgumentError, match=r"\['past_key_values'\]\[0\] is a layer of a QuantizedCache"):
        fx_onnx.export(llama(), (), kwargs={"input_ids": torch.ones(1, 2, dtype=torch.int64), "past_key_values": cache})
