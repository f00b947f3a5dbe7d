"""Small networks of kinds that the other tables do not have: recurrent, audio, series, graphs, generative."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.models.registry import BATCH, BATCH_HEIGHT_WIDTH, BATCH_SEQUENCE, Inputs, ModelCase, images
from tests.models.transformers_models import VOCABULARY


class Tagger(nn.Module):
    """Classifies each token with a bidirectional recurrent network of two layers."""

    def __init__(self, kind: type[nn.RNNBase], width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.layers = kind(width, width, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, sequence) to (batch, sequence, 5)."""
        return self.head(self.layers(self.embedding(tokens))[0])


class MelClassifier(nn.Module):
    """Classifies audio: a log-mel spectrogram, convolutions, a mean over time."""

    def __init__(self, bins: int = 33, mels: int = 16) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(64))
        self.register_buffer("filters", torch.rand(mels, bins))
        self.layers = nn.Sequential(
            nn.Conv1d(mels, 16, 3, padding=1), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 16, 3, 2), nn.SiLU()
        )
        self.head = nn.Linear(16, 5)

    def forward(self, samples: Tensor) -> Tensor:
        """(batch, samples) to (batch, 5)."""
        spectrum = torch.stft(samples, 64, 16, window=self.window, return_complex=True).abs().square()
        return self.head(self.layers(torch.log(self.filters @ spectrum + 1e-5)).mean(-1))


class TemporalConvolutions(nn.Module):
    """Predicts the next value of series with dilated causal convolutions and residual connections."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Conv1d(3, width, 1)
        self.layers = nn.ModuleList(nn.Conv1d(width, 2 * width, 3, dilation=2**i) for i in range(3))
        self.head = nn.Conv1d(width, 1, 1)

    def forward(self, series: Tensor) -> Tensor:
        """(batch, 3, time) to (batch, 1, time)."""
        x = self.first(series)
        for layer in self.layers:
            x = x + F.glu(layer(F.pad(x, (2 * layer.dilation[0], 0))), 1)
        return self.head(x)


class Forecaster(nn.Module):
    """Predicts series with a GRU cell that reads its own predictions in a Python loop, after a normalization."""

    def __init__(self, width: int = 16, steps: int = 4) -> None:
        super().__init__()
        self.encoder, self.cell = nn.GRU(2, width, batch_first=True), nn.GRUCell(2, width)
        self.head, self.steps = nn.Linear(width, 2), steps

    def forward(self, series: Tensor) -> Tensor:
        """(batch, time, 2) to (batch, 4, 2)."""
        mean, scale = series.mean(1, keepdim=True), series.std(1, keepdim=True) + 1e-5
        x = (series - mean) / scale
        state, step, found = self.encoder(x)[1][0], x[:, -1], []
        for _ in range(self.steps):
            state = self.cell(step, state)
            step = step + self.head(state)
            found.append(step)
        return torch.stack(found, 1) * scale + mean


class Recommender(nn.Module):
    """Predicts a click: embeddings of categories, a bag of items, and the products of all pairs of features."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.categories = nn.ModuleList(nn.Embedding(size, width) for size in (11, 7, 5))
        self.items = nn.EmbeddingBag(50, width, mode="mean")
        self.bottom = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, width))
        self.top = nn.Sequential(nn.Linear(width + 10, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, numbers: Tensor, categories: Tensor, items: Tensor) -> Tensor:
        """(batch, 4), (batch, 3) and (batch, items) to (batch)."""
        dense = self.bottom(numbers)
        found = [table(categories[:, i]) for i, table in enumerate(self.categories)]
        features = torch.stack([dense, self.items(items), *found], 1)
        rows, columns = torch.tril_indices(5, 5, -1)
        products = (features @ features.mT)[:, rows, columns]
        return torch.sigmoid(self.top(torch.cat([dense, products], 1))).squeeze(1)


class GraphNetwork(nn.Module):
    """Classifies the nodes of a graph: the mean of the neighbours, then attention over the edges."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.own, self.neighbours = nn.Linear(6, width), nn.Linear(6, width, bias=False)
        self.value, self.score, self.head = nn.Linear(width, width), nn.Linear(2 * width, 1), nn.Linear(width, 4)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """(nodes, 6) and (2, edges) to (nodes, 4)."""
        source, target = edges[0], edges[1]
        degree = x.new_zeros(x.shape[0]).index_add(0, target, x.new_ones(source.shape[0])).clamp(min=1)
        mean = torch.zeros_like(x).index_add(0, target, x[source]) / degree[:, None]
        x = torch.relu(self.own(x) + self.neighbours(mean))
        score = F.leaky_relu(self.score(torch.cat([x[source], x[target]], 1)), 0.2).squeeze(1)
        largest = x.new_zeros(x.shape[0]).scatter_reduce(0, target, score, "amax", include_self=False)
        weight = torch.exp(score - largest[target])
        total = x.new_zeros(x.shape[0]).index_add(0, target, weight)
        message = self.value(x)[source] * (weight / total[target])[:, None]
        return self.head(torch.zeros_like(x).index_add(0, target, message))


class PointNetwork(nn.Module):
    """Classifies sets of points: one network for all points, then the maximum."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 32, 1))
        self.head = nn.Linear(32, 5)

    def forward(self, points: Tensor) -> Tensor:
        """(batch, points, 3) to (batch, 5)."""
        points = points - points.mean(1, keepdim=True)
        return F.log_softmax(self.head(self.layers(points.transpose(1, 2)).amax(-1)), -1)


class VariationalAutoencoder(nn.Module):
    """Encodes images, draws from the distribution with the given noise, and decodes."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, width, 4, 2, 1), nn.ELU(), nn.Conv2d(width, width, 4, 2, 1), nn.ELU())
        self.code, self.decode = nn.Linear(width * 64, 16), nn.Linear(8, width * 64)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(width, width, 4, 2, 1), nn.ELU(), nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Sigmoid()
        )

    def forward(self, picture: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, 3, 32, 32) and (batch, 8) to the decoded images and the divergence (batch)."""
        mean, log_variance = self.code(self.encoder(picture).flatten(1)).chunk(2, 1)
        code = mean + noise * torch.exp(log_variance / 2)
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1)
        return self.decoder(self.decode(code).unflatten(1, (-1, 8, 8))), divergence


class Residual(nn.Module):
    """A block of the diffusion network: two convolutions with group norms, and the time's embedding between them."""

    def __init__(self, inputs: int, outputs: int, time: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs)
        self.norm2, self.conv2 = nn.GroupNorm(4, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.conv2(F.silu(self.norm2(y)))


class Diffusion(nn.Module):
    """Predicts the noise of images: a U-Net with the step's embedding and attention in the middle."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, 32), nn.SiLU(), nn.Linear(32, 32))
        self.first, self.down = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, width, 3, 2, 1)
        self.block1, self.block2 = Residual(width, width, 32), Residual(width, width, 32)
        self.norm, self.qkv, self.out = nn.GroupNorm(4, width), nn.Conv2d(width, 3 * width, 1), nn.Linear(width, width)
        self.block3, self.last = Residual(2 * width, width, 32), nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        """(batch, 3, height, width) and (batch) to (batch, 3, height, width)."""
        frequencies = torch.exp(torch.arange(self.width // 2) * (-math.log(1e4) / (self.width // 2)))
        angles = step[:, None].float() * frequencies
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        early = self.block1(self.first(x), time)
        y = self.block2(self.down(early), time)
        q, k, v = (part.flatten(2).mT for part in self.qkv(self.norm(y)).chunk(3, 1))
        y = y + self.out(F.scaled_dot_product_attention(q, k, v)).mT.reshape(y.shape)
        y = F.interpolate(y, size=early.shape[2:], mode="nearest")
        return self.last(self.block3(torch.cat([y, early], 1), time))


class Upscaler(nn.Module):
    """Doubles the size of images: convolutions and a pixel shuffle, added to a bicubic upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.PReLU(8), nn.Conv2d(8, 12, 3, padding=1), nn.PixelShuffle(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to (batch, 3, 2 * height, 2 * width)."""
        return self.layers(x) + F.interpolate(x, scale_factor=2, mode="bicubic")


def _random(*shapes: tuple[int, ...]) -> Inputs:
    torch.manual_seed(1)
    return Inputs(tuple(torch.randn(shape) for shape in shapes))


def _tokens(batch: int, sequence: int) -> Inputs:
    torch.manual_seed(1)
    return Inputs((torch.randint(1, VOCABULARY, (batch, sequence)),))


def _clicks(batch: int, items: int) -> Inputs:
    torch.manual_seed(1)
    categories = torch.stack([torch.randint(0, size, (batch,)) for size in (11, 7, 5)], 1)
    return Inputs((torch.randn(batch, 4), categories, torch.randint(0, 50, (batch, items))))


def _graph(nodes: int, edges: int) -> Inputs:
    torch.manual_seed(1)
    return Inputs((torch.randn(nodes, 6), torch.randint(0, nodes, (2, edges))))


def _noisy(batch: int, size: int) -> Inputs:
    return Inputs((*images(batch, size).args, torch.arange(batch) * 100 + 7))


SMALL_NETWORKS = [
    ModelCase("lstm", lambda: Tagger(nn.LSTM), lambda: _tokens(2, 8), lambda: _tokens(3, 13), (BATCH_SEQUENCE,)),
    ModelCase("gru", lambda: Tagger(nn.GRU), lambda: _tokens(2, 8), lambda: _tokens(3, 13), (BATCH_SEQUENCE,)),
    ModelCase(
        "mel_classifier",
        MelClassifier,
        lambda: _random((2, 800)),
        lambda: _random((3, 1111)),
        ({0: "batch", 1: "samples"},),
    ),
    ModelCase(
        "temporal_convolutions",
        TemporalConvolutions,
        lambda: _random((2, 3, 20)),
        lambda: _random((3, 3, 33)),
        ({0: "batch", 2: "time"},),
    ),
    ModelCase(
        "forecaster",
        Forecaster,
        lambda: _random((2, 12, 2)),
        lambda: _random((3, 20, 2)),
        ({0: "batch", 1: "time"},),
    ),
    ModelCase(
        "recommender",
        Recommender,
        lambda: _clicks(3, 6),
        lambda: _clicks(5, 9),
        ({0: "batch"}, {0: "batch"}, {0: "batch", 1: "items"}),
    ),
    ModelCase(
        "graph_network",
        GraphNetwork,
        lambda: _graph(9, 30),
        lambda: _graph(12, 41),
        ({0: "nodes"}, {1: "edges"}),
    ),
    ModelCase(
        "point_network",
        PointNetwork,
        lambda: _random((2, 20, 3)),
        lambda: _random((3, 31, 3)),
        ({0: "batch", 1: "points"},),
    ),
    ModelCase(
        "variational_autoencoder",
        VariationalAutoencoder,
        lambda: _random((2, 3, 32, 32), (2, 8)),
        lambda: _random((3, 3, 32, 32), (3, 8)),
        (*BATCH, *BATCH),
    ),
    ModelCase("diffusion", Diffusion, lambda: _noisy(2, 16), lambda: _noisy(3, 24), (*BATCH_HEIGHT_WIDTH, *BATCH)),
    ModelCase("upscaler", Upscaler, lambda: images(2, 16, 20), lambda: images(3, 19, 14), BATCH_HEIGHT_WIDTH),
]
