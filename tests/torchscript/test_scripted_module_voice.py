"""A detector of voice in chunks of audio, of the structure of silero-vad, with random weights.

One module holds the networks of two sampling rates, checks its input, and keeps context and state between calls.
"""

import io

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.messages.errors import CaptureError
from tests.torchscript.agreement import agree

WIDTH = 8
SAMPLES, CONTEXT = {16000: 64, 8000: 32}, {16000: 16, 8000: 8}


class Spectrum(nn.Module):
    def __init__(self, length: int):
        super().__init__()
        self.hop, self.length = length // 2, length
        self.padding = nn.ReflectionPad1d((0, length // 4))
        self.register_buffer("basis", torch.randn(length + 2, 1, length))

    def forward(self, x: Tensor) -> Tensor:
        transformed = nn.functional.conv1d(self.padding(x).unsqueeze(1), self.basis, stride=self.hop, padding=0)
        cutoff = int(self.length / 2 + 1)
        real, imaginary = transformed[:, :cutoff, :].float(), transformed[:, cutoff:, :].float()
        return torch.sqrt(real**2 + imaginary**2)


class Network(nn.Module):
    def __init__(self, length: int):
        super().__init__()
        self.spectrum = Spectrum(length)
        self.encoder = nn.Sequential(nn.Conv1d(length // 2 + 1, WIDTH, 3, stride=2, padding=1), nn.ReLU())
        self.rnn = nn.LSTMCell(WIDTH, WIDTH)
        self.decoder = nn.Sequential(nn.Dropout(0.1), nn.ReLU(), nn.Conv1d(WIDTH, 1, 1), nn.Sigmoid())

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        x = self.encoder(self.spectrum(x)).mean(-1)
        if len(state):
            h, c = self.rnn(x, (state[0], state[1]))
        else:
            h, c = self.rnn(x)
        return self.decoder(h.unsqueeze(-1)).squeeze(1), torch.stack([h, c])


class Detector(nn.Module):
    sample_rates: list[int]

    def __init__(self):
        super().__init__()
        self.network, self.network_8k = Network(16), Network(8)
        self.sample_rates = [8000, 16000]
        self.state, self.context = torch.zeros(0), torch.zeros(0)
        self.last_rate = 0
        self.last_batch = 0

    @torch.jit.export
    def reset_states(self):
        self.state, self.context = torch.zeros(0), torch.zeros(0)
        self.last_rate = 0
        self.last_batch = 0

    def forward(self, x: Tensor, rate: int) -> Tensor:
        if rate not in self.sample_rates:
            raise ValueError(f"Supported sampling rates: {self.sample_rates}")
        samples, context = (64, 16) if rate == 16000 else (32, 8)
        if x.shape[-1] != samples:
            raise ValueError("Provided number of samples is {}".format(x.shape[-1]))  # noqa: UP032
        if self.last_rate and self.last_rate != rate:
            self.reset_states()
        if self.last_batch and self.last_batch != x.shape[0]:
            self.reset_states()
        if not len(self.context):
            self.context = torch.zeros(x.shape[0], context)
        x = torch.cat([self.context.to(x.device), x], dim=1)
        if rate == 16000:
            out, self.state = self.network(x, self.state)
        else:
            out, self.state = self.network_8k(x, self.state)
        self.context = x[..., -context:]
        self.last_rate = rate
        self.last_batch = x.shape[0]
        return out


@pytest.fixture(scope="module")
def file():
    torch.manual_seed(0)
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(Detector().eval()), buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("rate", [16000, 8000])
def test_the_whole_module_keeps_its_state(file, rate):
    chunks = torch.randn(5, 2, SAMPLES[rate])
    script = torch.jit.load(io.BytesIO(file))
    script(chunks[0], rate)
    program = fx_onnx.export(script, (chunks[1], rate), verify=True)
    assert [value.name for value in program.model.graph.outputs][1:] == ["context_out", "state_out"]
    program.state = {}
    for chunk in chunks[1:]:
        agree(lambda x: script(x, rate), program, chunk)


@pytest.mark.parametrize("rate", [16000, 8000])
def test_the_network_of_a_rate_has_a_dynamic_batch(file, rate):
    script = torch.jit.load(io.BytesIO(file))
    network = script.network if rate == 16000 else script.network_8k
    length = SAMPLES[rate] + CONTEXT[rate]
    dims = {"x": {0: "batch"}, "state": {1: "batch"}}
    program = fx_onnx.export(network, (torch.randn(2, length), torch.zeros(2, 2, WIDTH)), dynamic_shapes=dims)
    state = torch.zeros(2, 3, WIDTH)
    for _ in range(3):
        x = torch.randn(3, length)
        agree(network, program, x, state)
        state = program(x, state)[1]


def test_a_first_call_that_differs_is_refused(file):
    with pytest.raises(CaptureError, match=r"attribute context of Detector from .* call the model once"):
        fx_onnx.export(torch.jit.load(io.BytesIO(file)), (torch.randn(2, 64), 16000))
    with pytest.raises(CaptureError, match=r"for the example arguments: Provided number of samples is 63"):
        fx_onnx.export(torch.jit.load(io.BytesIO(file)), (torch.randn(2, 63), 16000))
