"""The arguments of an export for decoders with a cache."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import transformers
from torch import Tensor

import fx_onnx
from fx_onnx.applications.text_generation import text_generation_arguments
from tests.compare import assert_close
from tests.models.decoders import decoder


def lengths(cache: Any) -> list[int]:
    return [layer.keys.shape[2] for layer in cache.layers]


def test_one_program_prefills_and_decodes() -> None:
    model = decoder("llama", layers=1)
    program = fx_onnx.export(model, **text_generation_arguments(model, full_cache=True))
    assert [str(value.shape) for value in program.model.graph.inputs][:4] == [
        "[batch,sequence]", "[batch,total]", "[batch,sequence]", "[batch,2,past,8]",
    ]  # fmt: skip
    assert program.findings == []  # the mask has past + sequence columns by definition
    cache, ids = transformers.DynamicCache(), torch.randint(3, 99, (1, 7))
    cache.update(torch.zeros(1, 2, 0, 8), torch.zeros(1, 2, 0, 8), 0)
    for start, end in ((0, 5), (5, 6), (6, 7)):
        tokens, positions = ids[:, start:end], torch.arange(start, end)[None]
        mask = torch.ones(1, end, dtype=torch.int64)
        found = program.call_structured(
            input_ids=tokens, attention_mask=mask, position_ids=positions, past_key_values=cache
        )
        cache = found.past_key_values
    torch.testing.assert_close(found.logits[:, -1], model(input_ids=ids).logits[:, -1], rtol=1e-4, atol=1e-5)


def test_without_padding_the_positions_follow_from_the_past() -> None:
    model = decoder("llama", layers=1)
    arguments = text_generation_arguments(model, padding=False)
    assert list(arguments["kwargs"]) == list(arguments["dynamic_shapes"]) == ["input_ids", "past_key_values"]
    cache, ids = arguments["kwargs"]["past_key_values"], torch.randint(3, 99, (2, 4))
    found, *_ = fx_onnx.export(model, **arguments)(input_ids=ids, past_key_values=cache)
    past = arguments["kwargs"]["input_ids"].flatten()[:10].view(2, 5)  # the cache holds the first tokens too
    whole = torch.cat([past, ids], 1)
    torch.testing.assert_close(found, model(input_ids=whole).logits[:, 5:], rtol=1e-4, atol=1e-5)


def test_windows_are_kept_or_widened() -> None:
    model = decoder("gemma2", sliding_window=4)
    cut = text_generation_arguments(model)["kwargs"]["past_key_values"]
    full = text_generation_arguments(model, full_cache=True)["kwargs"]["past_key_values"]
    assert (lengths(cut), lengths(full)) == ([3, 5], [5, 5])


def test_the_sizes_of_the_cache_are_those_of_the_model() -> None:
    cache = text_generation_arguments(decoder("deepseek_v3"))["kwargs"]["past_key_values"]
    assert [(layer.keys.shape[3], layer.values.shape[3]) for layer in cache.layers] == [(16, 8)] * 2


def test_logits_of_the_last_token() -> None:
    arguments = text_generation_arguments(decoder("llama"), logits_to_keep=1)
    assert arguments["kwargs"]["logits_to_keep"] == 1
    assert "logits_to_keep" not in text_generation_arguments(decoder("llama"))["kwargs"]


def test_the_mode_and_the_device_of_the_model_stay() -> None:
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(decoder("llama").config).train()
    kwargs = text_generation_arguments(model)["kwargs"]
    assert kwargs["past_key_values"].layers[0].keys.is_meta and kwargs["input_ids"].is_meta
    assert model.training


def test_the_tokens_are_none_that_the_config_names() -> None:
    ids = text_generation_arguments(decoder("llama", pad_token_id=0, eos_token_id=[2, 3]))["kwargs"]["input_ids"]
    assert ids.flatten().tolist() == [4, 5, *range(6, 16)]
    ids = text_generation_arguments(decoder("llama", vocab_size=5, pad_token_id=0, eos_token_id=[2, 3]))["kwargs"]
    assert ids["input_ids"].flatten().tolist() == [4] * 12


def test_a_cache_that_the_config_turns_off_is_turned_on() -> None:
    arguments = text_generation_arguments(decoder("llama", use_cache=False))
    assert arguments["kwargs"]["use_cache"] is True


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (torch.nn.Linear(2, 2), {}, "Linear is no decoder of transformers"),
        ("llama", {}, "str is no decoder of transformers"),
        (decoder("llama").model, {}, "LlamaModel is no decoder of transformers"),
        (decoder("llama"), {"logits_to_keep": -1}, "logits_to_keep must be a number of tokens, not -1"),
        (decoder("llama"), {"full_cache": "yes"}, "full_cache must be True or False"),
        (decoder("llama"), {"cache": "fixed"}, "cache must be 'dynamic' or 'static', not 'fixed'"),
        (decoder("llama"), {"cache": "static"}, "A static cache needs max_length, a number of tokens of at least 12"),
        (decoder("llama"), {"cache": "static", "max_length": 11}, "of at least 12, not 11"),
        (decoder("llama"), {"max_length": 64}, "max_length is the size of a static cache"),
        (decoder("bert-generation"), {}, "BertGenerationDecoder returns no cache; set config.is_decoder = True"),
        (decoder("minimax"), {"full_cache": True}, "does not run with a DynamicCache: MiniMax uses cache of its own"),
        (decoder("mamba"), {}, "MambaForCausalLM takes no mask of past and new tokens"),
        (decoder("rwkv"), {}, "RwkvForCausalLM takes no mask of past and new tokens"),
    ],
)
def test_wrong_arguments(model: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(fx_onnx.ArgumentError, match=message):
        text_generation_arguments(model, **arguments)


class Steps:
    """Runs a program with a static cache in ONNX Runtime, with one buffer for each tensor's past and present."""

    def __init__(self, program: fx_onnx.ONNXProgram, batch: int) -> None:
        self.session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
        self.binding, self.seen = self.session.io_binding(), 0
        for each in self.session.get_inputs():
            if each.name.endswith(("key", "value")):
                buffer = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((batch, *each.shape[1:]), np.float32))
                self.binding.bind_ortvalue_input(each.name, buffer)
                self.binding.bind_ortvalue_output(f"{each.name}_out", buffer)

    def __call__(self, **inputs: Tensor) -> Tensor:
        for each in self.session.get_inputs():
            if each.name.endswith("cumulative_length"):
                self.binding.bind_cpu_input(each.name, np.array(self.seen))
                self.binding.bind_output(f"{each.name}_out")
            elif each.name in inputs:
                self.binding.bind_cpu_input(each.name, inputs[each.name].numpy())
        self.binding.bind_output("logits")
        self.session.run_with_iobinding(self.binding)
        self.seen += inputs["input_ids"].shape[1]
        return torch.from_numpy(self.binding.get_outputs()[-1].numpy())


@functools.cache
def with_static_cache(family: str, opset: int) -> tuple[Any, fx_onnx.ONNXProgram]:
    """Returns a decoder and its program, whose static cache has 16 places."""
    model = decoder(family, **({"sliding_window": 4} if family == "gemma2" else {}))
    arguments = text_generation_arguments(model, cache="static", max_length=16)
    return model, fx_onnx.export(model, **arguments, opset_version=opset)


@pytest.mark.parametrize(("family", "opset"), [("llama", 20), ("llama", 24), ("gemma2", 24)])
def test_static_cache_in_place(family: str, opset: int) -> None:
    """One buffer serves past and present, for one prompt, and for two that are padded on the left or on the right."""
    model, program = with_static_cache(family, opset)
    operators = {node.op_type for node in program.model.graph}
    assert ("TensorScatter" in operators) == (opset == 24)
    assert [value.name for value in program.model.graph.outputs[:4]] == [
        "logits", "past_key_values.0.key_out", "past_key_values.0.value_out",
        "past_key_values.0.cumulative_length_out",
    ]  # fmt: skip
    assert len(program.model.graph.outputs) == 7, "each tensor of the cache is one output"
    ids = torch.randint(3, 99, (2, 9))
    left, right = torch.ones(2, 9, dtype=torch.int64), torch.ones(2, 9, dtype=torch.int64)
    left[1, :3], right[1, 3:6] = 0, 0
    for mask in (torch.ones(1, 9, dtype=torch.int64), left, right):
        tokens, positions = ids[: len(mask)], (mask.cumsum(1) - 1).clamp(min=0)
        steps, visible = Steps(program, len(mask)), mask.bool()
        found = [
            steps(input_ids=tokens[:, a:b], attention_mask=mask[:, :b], position_ids=positions[:, a:b])
            for a, b in ((0, 6), (6, 7), (7, 9))
        ]
        want = model(input_ids=tokens, attention_mask=mask, position_ids=positions).logits
        torch.testing.assert_close(torch.cat(found, 1)[visible], want[visible], rtol=1e-3, atol=1e-4)


def test_static_caches_are_full_at_max_length() -> None:
    """The mask may have as many tokens as the cache, and one more token is an error."""
    model, program = with_static_cache("llama", 24)
    ids, steps = torch.randint(3, 99, (1, 17)), Steps(program, 1)
    mask, positions = torch.ones(1, 17, dtype=torch.int64), torch.arange(17)[None]
    for start in range(16):
        found = steps(
            input_ids=ids[:, start : start + 1],
            attention_mask=mask[:, : start + 1],
            position_ids=positions[:, start : start + 1],
        )
    torch.testing.assert_close(found, model(input_ids=ids[:, :16]).logits[:, -1:], rtol=1e-3, atol=1e-4)
    with pytest.raises(Exception, match="TensorScatter"):
        steps(input_ids=ids[:, 16:], attention_mask=mask, position_ids=positions[:, 16:])


SMALL = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "pad_token_id": 0, "eos_token_id": None}
HYBRID = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 32}


@pytest.mark.parametrize(
    "config",
    [
        transformers.MambaConfig(**{**SMALL, "num_hidden_layers": 1}, state_size=4),
        transformers.Qwen3NextConfig(
            **SMALL, **HYBRID, layer_types=["linear_attention", "full_attention"], num_experts=4, num_experts_per_tok=2,
            moe_intermediate_size=16, shared_expert_intermediate_size=16, linear_num_value_heads=4,
            linear_num_key_heads=2, linear_key_head_dim=8, linear_value_head_dim=8,
        ),
    ],
    ids=lambda config: config.model_type,
)  # fmt: skip
def test_one_token_at_a_time_continues_from_a_state(config: Any) -> None:
    """The program reads the prompt too, from zeros, and generates the tokens that transformers generates."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    program = fx_onnx.export(model, **text_generation_arguments(model, padding=False, single_token=True))
    prompt = torch.randint(1, 99, (2, 4))
    state = [
        torch.zeros([{"batch": 2, "past": 0}.get(str(dim), dim) for dim in value.shape])
        for value in program.model.graph.inputs[1:]
    ]
    tokens = list(prompt.split(1, 1))
    for place in range(19):
        logits, *state = program(tokens[place], *state)
        if place >= 3:
            tokens.append(logits[:, -1].argmax(-1, keepdim=True))
    mask = torch.ones_like(prompt)
    assert (
        torch.cat(tokens, 1).tolist()
        == model.generate(prompt, attention_mask=mask, max_new_tokens=16, do_sample=False).tolist()
    )


def test_a_model_that_ignores_its_past_takes_positions() -> None:
    """Bamba counts positions from 0 with a past too."""
    sizes = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 32, "mamba_n_heads": 4}
    config = transformers.BambaConfig(
        **SMALL, **sizes, attn_layer_indices=[1], mamba_d_head=16, mamba_d_state=8, mamba_n_groups=1
    )
    torch.manual_seed(0)
    model = transformers.BambaForCausalLM(config).eval()
    for weight in model.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.3)  # the default is too small to show a difference
    program = fx_onnx.export(model, **text_generation_arguments(model, padding=False, single_token=True))
    state = [
        torch.zeros([{"batch": 1, "past": 0}.get(str(dim), dim) for dim in value.shape])
        for value in program.model.graph.inputs[2:]
    ]
    ids, found = torch.randint(3, 99, (1, 8)), []
    for place, token in enumerate(ids.split(1, 1)):
        logits, *state = program(token, torch.tensor([[place]]), *state)
        found.append(logits)
    torch.testing.assert_close(torch.cat(found, 1), model(input_ids=ids).logits, rtol=1e-3, atol=1e-4)


ZAMBA = transformers.ZambaConfig(
    **{**SMALL, "num_hidden_layers": 3}, num_attention_heads=4, num_key_value_heads=4, intermediate_size=32,
    mamba_d_state=4, mamba_dt_rank=4, layer_types=["linear_attention", "hybrid", "hybrid"],
)  # fmt: skip


def test_a_state_that_several_tokens_ignore_is_refused() -> None:
    """Each head of Zamba has a scan and a state of its own; the scan does not get the state."""
    model = transformers.AutoModelForCausalLM.from_config(ZAMBA).eval()
    with pytest.raises(fx_onnx.ArgumentError, match=r"recurrent_states.0, when it takes several tokens; pass single"):
        text_generation_arguments(model)
    assert text_generation_arguments(model, padding=False, single_token=True)


def test_several_tokens_continue_from_a_state() -> None:
    """A hybrid whose layers read their state keeps the general program."""
    sizes = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 32}
    config = transformers.Lfm2Config(**SMALL, **sizes, layer_types=["conv", "full_attention"])
    torch.manual_seed(0)
    model = transformers.Lfm2ForCausalLM(config).eval()
    program = fx_onnx.export(model, **text_generation_arguments(model, padding=False))
    state = [
        torch.zeros([{"batch": 1, "past": 0}.get(str(dim), dim) for dim in value.shape])
        for value in program.model.graph.inputs[1:]
    ]
    ids, found = torch.randint(3, 99, (1, 12)), []
    for tokens in ids.split([5, 1, 6], 1):
        logits, *state = program(tokens, *state)
        found.append(logits)
    torch.testing.assert_close(torch.cat(found, 1), model(input_ids=ids).logits, rtol=1e-3, atol=1e-5)


def test_one_token_at_a_time_has_no_padding() -> None:
    with pytest.raises(fx_onnx.ArgumentError, match="single_token=True needs padding=False"):
        text_generation_arguments(decoder("llama"), single_token=True)


def test_a_state_outside_of_the_cache_is_refused() -> None:
    """RecurrentGemma keeps its state in attributes of its modules, which would become constants."""
    sizes = {**SMALL, "num_attention_heads": 4, "intermediate_size": 32}
    config = transformers.RecurrentGemmaConfig(**sizes, num_key_value_heads=2, block_types=("recurrent", "attention"))
    model = transformers.RecurrentGemmaForCausalLM(config).eval()
    with pytest.raises(fx_onnx.ArgumentError, match="outside of its cache"):
        text_generation_arguments(model, padding=False, single_token=True)


@pytest.mark.filterwarnings("error::fx_onnx.OnnxExporterWarning")
@pytest.mark.parametrize(("family", "options", "name"), [("rwkv", {"padding": False}, "state"), ("minimax", {}, None)])
def test_a_cache_that_the_model_creates(family: str, options: dict[str, Any], name: str | None) -> None:
    """RWKV has a list of states, and MiniMax a class of its own; zeros are the state before the first token."""
    model = decoder(family)
    arguments = text_generation_arguments(model, **options)
    cache = arguments["kwargs"][name or "past_key_values"]
    assert type(cache).__name__ == ("list" if name else "MiniMaxCache")
    program = fx_onnx.export(model, **arguments, verbose=False)
    ids = torch.randint(3, 99, (2, 12))
    inputs = list(program.model.graph.inputs)[1 if name else 3 :]
    assert len(program.model.graph.outputs) == 1 + len(inputs)
    state = [torch.zeros([{"batch": 2, "past": 0}.get(str(dim), dim) for dim in each.shape]) for each in inputs]
    if name:
        state[4] -= 1e30  # the largest exponent so far
    found, seen = [], 0
    for step in ids.split([6, 1, 5], 1):
        seen += step.shape[1]
        tokens = (
            []
            if name
            else [torch.ones(2, seen, dtype=torch.int64), torch.arange(seen).expand(2, -1)[:, -step.shape[1] :]]
        )
        logits, *state = program(step, *tokens, *state)
        found.append(logits)
    with torch.no_grad():
        assert_close(torch.cat(found, 1), model(input_ids=ids).logits, 1e-4)


@pytest.mark.filterwarnings("error::FutureWarning")
def test_the_old_name_of_a_parameter_causes_no_warning() -> None:
    """As in transformers 5.24: the inputs keep the old name, so the model gets its cache by it."""
    from transformers.utils.deprecation import deprecate_kwarg

    class Renamed(transformers.LlamaForCausalLM):  # type: ignore[misc]
        @deprecate_kwarg("past_key_values", "99.0.0", new_name="cache")  # type: ignore[untyped-decorator, unused-ignore]
        def forward(
            self, input_ids: Any = None, attention_mask: Any = None, cache: Any = None, use_cache: bool = True, **_: Any
        ) -> Any:
            return super().forward(input_ids, attention_mask, past_key_values=cache, use_cache=use_cache)

    model = Renamed(decoder("llama").config).eval()
    program = fx_onnx.export(model, **text_generation_arguments(model))
    assert "past_key_values.0.key" in [value.name for value in program.model.graph.inputs]
    with pytest.raises(FutureWarning, match="past_key_values"):
        model(torch.ones(1, 2, dtype=torch.int64), past_key_values=None)
