"""Tests of the parts of a stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch
import transformers
from torch import Tensor, nn

import fx_onnx
from fx_onnx.applications import streams
from fx_onnx.messages.errors import ArgumentError, VerificationError


class _Convolutions(nn.Module):
    """Writes its states into the list that it takes, as the layers of torchaudio's Emformer do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(5, 7, 3), nn.Conv1d(7, 5, 3)

    def forward(self, x: Tensor, cache: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        before = torch.cat([cache[0], x], 2)
        cache[0], y = before[:, :, -2:], self.first(before).relu()
        before = torch.cat([cache[1], y], 2)
        cache[1] = before[:, :, -2:]
        return self.second(before), cache


class _Attention(nn.Module):
    """Attends to all frames before."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 24)

    def forward(self, x: Tensor, past: dict[str, Tensor]) -> dict[str, Any]:
        query, key, value = self.linear(x).chunk(3, -1)
        key, value = torch.cat([past["key"], key], 1), torch.cat([past["value"], value], 1)
        mask = torch.ones(query.shape[1], key.shape[1], dtype=torch.bool).tril(key.shape[1] - query.shape[1])
        result = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return {"result": result, "past": {"key": key, "value": value}}


class _Mamba(nn.Module):
    """Takes one frame in a call: with several, it ignores its state."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.MambaConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, eos_token_id=None)
        self.model = transformers.MambaModel(config)

    def forward(self, x: Tensor, cache: Any) -> Any:
        result = self.model(inputs_embeds=x, cache_params=cache, use_cache=True)
        return result.last_hidden_state, result.cache_params


def _first_cache(model: nn.Module) -> Any:
    cache = model(torch.randn(2, 4, 8), None)[1]
    cache.reset()
    return cache


def _lstm() -> nn.Module:
    return nn.LSTM(5, 8, 2, batch_first=True)


_STREAMS: dict[str, Any] = {
    "convolutions": (_Convolutions, (3, 5, 4), lambda _: {"cache": [torch.zeros(3, 5, 2), torch.zeros(3, 7, 2)]}),
    "lstm": (_lstm, (3, 4, 5), lambda _: {"hx": (torch.zeros(2, 3, 8), torch.zeros(2, 3, 8))}),
    "attention": (_Attention, (3, 4, 8), lambda _: {"past": {n: torch.zeros(3, 0, 8) for n in ("key", "value")}}),
    "mamba": (_Mamba, (2, 1, 8), lambda model: {"cache": _first_cache(model)}),
}


def _export(kind: str, folder: Path, **options: Any) -> tuple[nn.Module, list[dict[str, Any]]]:
    make, shape, states = _STREAMS[kind]
    model = make().eval()
    first = "input" if kind == "lstm" else "x"
    inputs = {first: torch.randn(shape), **states(model)}
    fx_onnx.export_pretrained(model, folder, task="stream", inputs=inputs, **options)
    metadata = {entry.key: entry.value for entry in onnx.load(folder / "model.onnx").metadata_props}
    return model, json.loads(metadata["states"])


@pytest.mark.parametrize("kind", _STREAMS)
@torch.no_grad()
def test_chunks_of_any_batch_equal_those_of_the_module(kind: str, tmp_path: Path) -> None:
    model, rows = _export(kind, tmp_path / "out")
    session = onnxruntime.InferenceSession(tmp_path / "out/model.onnx")
    shape = [5, *_STREAMS[kind][1][1:]]
    feeds = {
        row["input"]: torch.zeros(
            [5 if size == "batch" else size for size in row["shape"]], dtype=getattr(torch, row["dtype"])
        ).numpy()
        for row in rows
    }
    states: Any = None
    for _ in range(5):
        chunk = torch.randn(shape)
        result, *new = session.run(None, {session.get_inputs()[0].name: chunk.numpy(), **feeds})
        feeds = {row["input"]: value for row, value in zip(rows, new, strict=True)}
        if states is None and kind in ("convolutions", "attention"):
            states = (
                [torch.zeros(5, 5, 2), torch.zeros(5, 7, 2)]
                if kind == "convolutions"
                else {n: torch.zeros(5, 0, 8) for n in ("key", "value")}
            )
        expected = model(chunk, states)
        want, states = expected.values() if isinstance(expected, dict) else expected
        torch.testing.assert_close(torch.from_numpy(result), want, rtol=1e-5, atol=1e-5)


def test_the_metadata_has_the_shapes_of_the_first_states(tmp_path: Path) -> None:
    _, rows = _export("attention", tmp_path / "out")
    row = {"input": "past.key", "output": "past.key_out", "dtype": "float32", "shape": ["batch", 0, 8]}
    assert rows == [row, {**row, "input": "past.value", "output": "past.value_out"}]


def test_half_precision_keeps_states_of_float32(tmp_path: Path) -> None:
    _, rows = _export("convolutions", tmp_path / "out", precision="fp16")
    assert {row["dtype"] for row in rows} == {"float32"}


def test_a_difference_that_only_a_later_chunk_shows_is_an_error() -> None:
    model = _Convolutions().eval()
    given = {"x": torch.randn(3, 5, 4), "cache": [torch.zeros(3, 5, 2), torch.zeros(3, 7, 2)]}
    (part,) = streams.stream(model, (), given)

    def program(**inputs: Tensor) -> list[Tensor]:
        result, states = model(inputs["x"], [inputs["cache.0"], inputs["cache.1"]])
        return [result, states[0], states[1] * 1.01]

    def right(**inputs: Tensor) -> list[Tensor]:
        result, states = model(inputs["x"], [inputs["cache.0"], inputs["cache.1"]])
        return [result, *states]

    with torch.no_grad():
        streams.check_stream(right, part, None)  # type: ignore[arg-type]
        with pytest.raises(VerificationError, match=r"output cache\.1_out differs from the module's for chunk 1 of"):
            streams.check_stream(program, part, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": torch.ones(3, 5, 4), "cache": [torch.ones(3, 5, 2)]}, "a chunk and its first states, whose"),
        ({"x": torch.ones(2, 5, 4), "cache": [torch.zeros(2, 5, 2), torch.zeros(2, 7, 2)]}, "Several axes of cache"),
        ({"x": torch.ones(3, 5, 4), "cache": [torch.zeros(3, 5, 2)]}, "_Convolutions does not run on the"),
    ],
)  # fmt: skip
def test_examples_that_are_no_stream_are_refused(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=message):
        fx_onnx.export_pretrained(_Convolutions(), tmp_path / "out", task="stream", inputs=given)


class _Louder(_Convolutions):
    """Takes another branch from the second chunk on."""

    components = ("first", "second")  # an attribute of this name makes it no pipeline

    def forward(self, x: Tensor, cache: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        louder = bool(cache[0].abs().sum() > 0)
        y, cache = super().forward(x, cache)
        return (y * 2 if louder else y), cache


def test_a_stream_may_branch_on_its_state(tmp_path: Path) -> None:
    """Each chunk is compared with the module, of which the captured program is one path; its mode stays."""
    module = _Louder().train()
    make = _STREAMS["convolutions"][2]
    (file,) = fx_onnx.export_pretrained(
        module, tmp_path / "out", task="stream", inputs={"x": torch.randn(3, 5, 4), **make(module)}
    )
    assert file.difference is not None and file.difference < 1e-5 and module.training and module.first.training


def test_a_module_without_its_states_is_refused() -> None:
    class Forgetful(nn.Module):
        def forward(self, x: Tensor, state: Tensor) -> Tensor:
            return x + state.sum()

    with pytest.raises(ArgumentError, match="Forgetful must return the new values of state last"):
        streams.stream(Forgetful(), (), {"x": torch.ones(3, 4, 2), "state": torch.zeros(3, 4)})


class _OnlyState(nn.Module):
    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        return x + state


class _Writes(nn.Module):
    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state.add_(x)
        return state * 2, state


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (_OnlyState(), "_OnlyState must return a result before the new values of state, but it returns 1 in all"),
        (_Writes(), "_Writes writes to tensors, which gives the outputs output, .*; return new states"),
    ],
)
@pytest.mark.parametrize("verify", [True, False])
def test_results_that_are_no_stream_are_refused(module: nn.Module, message: str, verify: bool, tmp_path: Path) -> None:
    inputs = {"x": torch.ones(3, 4), "state": torch.zeros(3, 4)}
    with pytest.raises(ArgumentError, match=message):
        fx_onnx.export_pretrained(module, tmp_path / "out", task="stream", inputs=inputs, verify=verify)
    assert not (tmp_path / "out").exists()


def test_a_first_state_that_is_not_zero_is_told(tmp_path: Path) -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor, mean: Tensor, count: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return x - mean, mean / 2 + x.mean(1), count + 1

    given = {"x": torch.randn(1, 4), "mean": torch.ones(1), "count": torch.zeros(1)}
    with pytest.warns(match="The input mean is taken for a part of the chunk, because it is not zero"):
        fx_onnx.export_pretrained(Two(), tmp_path / "out", task="stream", inputs=given)


@pytest.mark.parametrize(
    ("source", "message"), [(3, "The task stream takes an nn.Module, not 3"), ("folder", "There is no folder folder, ")]
)
def test_another_source_is_refused(source: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=message):
        fx_onnx.export_pretrained(source, tmp_path / "out", task="stream")
