"""The exports of networks: families of layers, buffers, operators of the user, quantization, opsets, targets."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from tests.models.convnext import ConvNeXt
from tests.models.efficientnet import Row, efficientnet
from tests.models.resnet import ResNet
from tests.models.swin import Swin
from tests.models.unet import UNet
from tests.models.vit import ViT
from tools.digest_cases import Function, add, add_both, i, t

IMAGES, SEQUENCES = (t(2, 3, 32, 32),), (t(2, 5, 16),)
BATCH, BATCH_TIME = ({0: "batch"},), ({0: "batch", 1: "time"},)


class Convolutions(nn.Module):
    """A small network of images: convolutions, norms, a pooling, a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.depthwise, self.head = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Any:
        """(batch, 3, height, width) to (batch, 5)."""
        x = F.max_pool2d(self.stem(x), 2)
        x = x + F.hardswish(self.depthwise(x))
        return F.softmax(self.head(F.adaptive_avg_pool2d(x, 1).flatten(1)), -1)


class Attention(nn.Module):
    """A layer of attention with fewer heads for keys, a norm and a gated product."""

    def __init__(self, keys: int = 2) -> None:
        super().__init__()
        self.norm, self.keys = nn.LayerNorm(16), keys
        self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 4 * keys), nn.Linear(16, 4 * keys)
        self.gate, self.up, self.down = (nn.Linear(16, 16, bias=False) for _ in range(3))

    def forward(self, x: Tensor) -> Any:
        """(batch, time, 16) to the same shape."""
        y = self.norm(x)
        q, k, v = (each(y).unflatten(-1, (-1, 4)).transpose(1, 2) for each in (self.q, self.k, self.v))
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.keys < 4).transpose(
            1, 2
        ).flatten(2)
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


class Shapes(nn.Module):
    """Operators that changed with the opsets: resizing, padding, slices, top values, sums over axes, scatter, clip."""

    def forward(self, x: Tensor) -> Any:
        """(batch, 3, height, width) to four tensors."""
        y = F.pad(F.interpolate(x, scale_factor=2, mode="bilinear"), (1, 2, 1, 1))[:, :, 1::2]
        values, places = y.flatten(2).topk(3)
        return (
            y.clamp(-1, 1).sum((2, 3)),
            values,
            torch.zeros_like(y).flatten(2).scatter(2, places, values),
            y.split(1, 1),
        )


class Recurrent(nn.Module):
    """A recurrent layer in two directions, and its last state."""

    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.layer = kind(16, 6, batch_first=True, **options)

    def forward(self, x: Tensor) -> Any:
        """(batch, time, 16) to the outputs and the last states."""
        return self.layer(x)


class Cell(nn.Module):
    """A loop over a cell, and over a fixed number of steps."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTMCell(16, 16), nn.GRUCell(16, 16)

    def forward(self, x: Tensor) -> Any:
        """(batch, time, 16) to (batch, 16)."""
        h, c = self.lstm(x[:, 0])
        for step in range(3):
            h = self.gru(x[:, step], h)
        return h + c


class Transformer(nn.Module):
    """torch's own encoder and decoder, with masks."""

    def __init__(self) -> None:
        super().__init__()
        options = {"dropout": 0.0, "batch_first": True}
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 2, 32, **options), 1, enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, 32, activation="gelu", **options), 1)

    def forward(self, x: Tensor, y: Tensor) -> Any:
        """(batch, source, 16) and (batch, target, 16) to the latter shape."""
        mask = nn.Transformer.generate_square_subsequent_mask(y.shape[1])
        return self.decoder(y, self.encoder(x), tgt_mask=mask, tgt_is_causal=True)


class MultiHead(nn.Module):
    """torch's attention layer, which returns weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: Tensor, padding: Tensor) -> Any:
        """(batch, time, 16) and (batch, time) to the outputs and the weights."""
        return self.layer(x, x, x, key_padding_mask=padding)


class Positions(nn.Module):
    """Embeddings of tokens and of positions that it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.bag = nn.Embedding(20, 16, padding_idx=0), nn.EmbeddingBag(20, 16, mode="sum")

    def forward(self, ids: Tensor) -> Any:
        """(batch, time) to (batch, time, 16)."""
        rates = torch.exp(torch.arange(0, 16, 2) * (-math.log(1e4) / 16))
        angles = torch.arange(ids.shape[1])[:, None] * rates
        return self.tokens(ids) + torch.cat([angles.sin(), angles.cos()], 1) + self.bag(ids)[:, None]


class State(nn.Module):
    """Writes to its buffers: a counter, a cache, and a buffer that it assigns."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("cache", torch.zeros(2, 8, 16))
        self.register_buffer("last", torch.zeros(2, 16), persistent=False)

    def forward(self, x: Tensor, place: Tensor) -> Any:
        """(2, 1, 16) and (1) to the cache."""
        self.count += 1
        self.cache.index_copy_(1, place, x)
        result = self.cache * self.count + self.last[:, None]
        self.last = x[:, 0]
        return result


class WritesInput(nn.Module):
    """Writes to its inputs and to views of them."""

    def forward(self, x: Tensor, y: Tensor) -> Any:
        """Returns the second input after the write of the first."""
        x.add_(1)
        y[:, 1:].mul_(2)
        return y.T.clone().sub_(1)


def _tied() -> nn.Module:
    embedding, head = nn.Embedding(20, 16), nn.Linear(16, 20, bias=False)
    head.weight = embedding.weight
    return nn.Sequential(embedding, nn.ReLU(), head)


add_both(
    "network/mlp",
    lambda: nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)),
    SEQUENCES,
    BATCH_TIME,
)
add_both("network/convolutions", Convolutions, IMAGES, ({0: "batch", 2: "height", 3: "width"},))
add_both("network/resnet", lambda: ResNet((1, 1, 1, 1), width=4, classes=5), IMAGES, BATCH)
add_both(
    "network/unet", lambda: UNet(width=4, depth=1, mode="bilinear"), IMAGES, ({0: "batch", 2: "height", 3: "width"},)
)
add_both("network/vit", lambda: ViT(image=32, patch=16, dim=16, depth=1, heads=2, classes=5), IMAGES, BATCH)
add_both("network/swin", lambda: Swin(32, window=4, dim=8, depths=(2, 2), heads=(2, 2), classes=5), IMAGES, BATCH)
add("network/convnext", lambda: ConvNeXt((1,), (8,), classes=5), IMAGES, dynamic_shapes=BATCH)
add(
    "network/efficientnet",
    lambda: efficientnet((Row(3, 1, 8, 1), Row(5, 4, 8, 1)), classes=5),
    IMAGES,
    dynamic_shapes=BATCH,
)
for _kind in (nn.LSTM, nn.GRU, nn.RNN):
    add_both(
        f"network/{_kind.__name__.lower()}",
        lambda kind=_kind: Recurrent(kind, bidirectional=True),
        SEQUENCES,
        BATCH_TIME,
    )
add("network/lstm_projected", lambda: Recurrent(nn.LSTM, num_layers=2, proj_size=3), SEQUENCES, dynamic_shapes=BATCH)
add_both("network/cells", Cell, SEQUENCES, BATCH)
add_both(
    "network/transformer",
    Transformer,
    (t(2, 5, 16), t(2, 3, 16)),
    ({0: "batch", 1: "source"}, {0: "batch", 1: "target"}),
)
add_both("network/multi_head", MultiHead, (t(2, 5, 16), t(2, 5) > 1), BATCH_TIME * 2)
add_both("network/gqa", Attention, SEQUENCES, BATCH_TIME)
add_both("network/positions", Positions, (i(20, 2, 5),), BATCH_TIME)
add(
    "network/norms_training",
    lambda: nn.Sequential(nn.BatchNorm1d(16), nn.Dropout(0.3)),
    (t(4, 16),),
    training=torch.onnx.TrainingMode.TRAINING,
)
add("network/weight_norm", lambda: nn.utils.parametrizations.weight_norm(nn.Linear(16, 4)), SEQUENCES)
add("network/spectral_norm", lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(16, 4)), SEQUENCES)
add("network/tied", _tied, (i(20, 2, 5),), dynamic_shapes=BATCH_TIME)
add("state/buffers", State, (t(2, 1, 16), torch.tensor([3])))
add_both("state/inputs", WritesInput, (t(3, 4), t(3, 4)), ({0: "n"}, {0: "n"}))


# ---------------------------------------------------------------- flex_attention

HEADS = tuple(t(2, 4, 5, 8) for _ in range(3))
TIMES = ({0: "batch", 2: "time"},) * 3


def _bias(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
    return score + (query - key) * 0.1 * (head + 1)


def _causal(q: Any, k: Any, v: Any) -> Any:
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, q.shape[2], k.shape[2], device="cpu")
    return flex_attention(q, k, v, block_mask=mask)


add_both("flex_attention/plain", lambda: Function(flex_attention), HEADS, (TIMES,))
add_both(
    "flex_attention/bias", lambda: Function(lambda q, k, v: flex_attention(q, k, v, score_mod=_bias)), HEADS, (TIMES,)
)
add_both("flex_attention/causal", lambda: Function(_causal), HEADS, (TIMES,))
add("flex_attention/sums", lambda: Function(lambda q, k, v: flex_attention(q, k, v, return_lse=True)), HEADS)

# ---------------------------------------------------------------- operators of the user


@torch.library.custom_op("digests::scaled", mutates_args=())
def scaled(x: Tensor, factor: float) -> Tensor:
    """Returns the product with a number."""
    return x * factor


@torch.library.custom_op("digests::count", mutates_args={"seen"})
def count(x: Tensor, seen: Tensor) -> Tensor:
    """Returns a copy, and counts the calls."""
    seen.add_(1)
    return x.clone()


for _each in (scaled, count):
    _each.register_fake(lambda x, *rest: torch.empty_like(x))


class WithSymbolic(torch.autograd.Function):
    """Has its own ONNX operator."""

    @staticmethod
    def forward(ctx: Any, x: Any, factor: Any) -> Tensor:
        """Returns the softshrink."""
        return F.softshrink(x, factor)

    @staticmethod
    def symbolic(g: Any, x: Any, factor: Any) -> Any:
        """Returns the node."""
        return g.op("Shrink", x, lambd_f=factor, bias_f=factor)


class Traced(torch.autograd.Function):
    """Is traced, because it has no ONNX operator."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Tensor:
        """Returns the square."""
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Tensor:
        """Returns the derivative."""
        return 2 * grad * ctx.saved_tensors[0]


class Counted(nn.Module):
    """Calls an operator that writes to a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Any:
        """Returns a copy."""
        return count(x, self.seen).relu()


def calls_scaled(x: Any) -> Any:
    """Returns the result of the operator."""
    return scaled(x, 2.0).relu()


X = (t(3, 4),)
add(
    "user/table",
    lambda: Function(calls_scaled),
    X,
    custom_translation_table={scaled: lambda op, x, factor: op.Mul(x, factor)},
)
add("user/writes", Counted, X, custom_translation_table={count: lambda op, x, seen: (op.Identity(x), seen + 1.0)})
add("user/without_translation", lambda: Function(calls_scaled), X)
add(
    "user/kept",
    lambda: Function(calls_scaled),
    X,
    operator_export_type=torch.onnx.OperatorExportTypes.ONNX_FALLTHROUGH,
    custom_opsets={"digests": 3},
)
add(
    "user/kept_of_aten",
    lambda: Function(lambda x: x.relu() + torch.geqrf(x)[0]),
    X,
    operator_export_type=torch.onnx.OperatorExportTypes.ONNX_ATEN_FALLBACK,
)
add(
    "user/all_of_aten",
    lambda: Function(lambda x: x.relu().sum(1)),
    X,
    operator_export_type=torch.onnx.OperatorExportTypes.ONNX_ATEN,
)
add_both("user/symbolic", lambda: Function(lambda x: WithSymbolic.apply(x, 0.5) + 1), X, (BATCH,))
add_both("user/traced_function", lambda: Function(Traced.apply), X, (BATCH,))
add("user/kept_function", lambda: Function(Traced.apply), X, autograd_inlining=False)
add(
    "user/onnx_operators",
    lambda: Function(lambda x: torch.onnx.ops.symbolic("com.microsoft::Gelu", (x,), dtype=x.dtype, shape=x.shape)),
    X,
)

# ---------------------------------------------------------------- quantized weights


def _quantized(config: str) -> nn.Module:
    """Returns two layers whose weights torchao quantizes."""
    from torchao import quantization as ao

    configs = {
        "int8": ao.Int8WeightOnlyConfig,
        "int4": lambda: ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=ao.PerGroup(32)),
        "int8_dynamic": ao.Int8DynamicActivationInt8WeightConfig,
        "float8": ao.Float8WeightOnlyConfig,
    }
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32, bias=False)).eval()
    ao.quantize_(model, configs[config]())
    return model


def _per_tensor(x: Any) -> Any:
    import torchao.quantization.pt2e  # noqa: F401  registers the operators

    ops = torch.ops.quantized_decomposed
    q = ops.quantize_per_tensor(x, 0.25, 3, -128, 127, torch.int8)
    return ops.dequantize_per_tensor(q, 0.25, 3, -128, 127, torch.int8).relu()


def _pt2e(kind: str) -> nn.Module:
    from tests.models import quantized_networks as networks

    make, inputs = {"mlp": (networks.mlp, networks.rows), "block": (networks.ResidualBlock, networks.images)}[kind]
    return networks.converted(make, inputs)


WIDE = (t(2, 64),)
for _config in ("int8", "int4", "int8_dynamic", "float8"):
    add_both(f"quantized/{_config}", lambda config=_config: _quantized(config), WIDE, BATCH, opset_version=21)
add_both("quantized/per_tensor", lambda: Function(_per_tensor), X, (BATCH,))
add("quantized/pt2e_mlp", lambda: _pt2e("mlp"), WIDE, dynamic_shapes=BATCH)
add("quantized/pt2e_block", lambda: _pt2e("block"), (t(2, 3, 8, 8),), dynamic_shapes=BATCH)

# ---------------------------------------------------------------- opsets and targets


def several(x: Tensor) -> Any:
    """Returns the results of operators that older opsets write with other ones."""
    return F.gelu(x), F.mish(x), x.cumsum(0), F.layer_norm(x, (4,)), x.var(1), x[x > 0]


OPSETS = (7, 8, 9, 10, 11, 12, 13, 15, 17, 18, 20, 21, 23, 24, 26, 28)
SMALL = (t(1, 3, 8, 8),)
for _opset in OPSETS:
    for _name, _make, _args, _dims in (
        ("convolutions", Convolutions, SMALL, BATCH),
        ("attention", Attention, SEQUENCES, BATCH_TIME),
        ("shapes", Shapes, SMALL, ({0: "batch", 2: "height"},)),
        ("lstm", lambda: Recurrent(nn.LSTM), SEQUENCES, BATCH_TIME),
        ("functions", lambda: Function(several), X, (BATCH,)),
    ):  # fmt: skip
        add(f"opset/{_opset}/{_name}", _make, _args, dynamic_shapes=_dims, opset_version=_opset)

TARGETS = (
    "onnxruntime", "onnxruntime-genai", "onnxruntime-web", "openvino", "reference", "tract", "mnn", "webgpu", "webnn",
    "onnxruntime-cuda", "tensorrt", "coreml", "directml", "onnxruntime-accuracy-level-4",
    "onnxruntime-genai-accuracy-level-4",
)  # fmt: skip
for _target in TARGETS:
    add(f"target/{_target}/convolutions", Convolutions, SMALL, dynamic_shapes=BATCH, target=_target)
    add(f"target/{_target}/gqa", Attention, SEQUENCES, dynamic_shapes=BATCH_TIME, target=_target)
    add(
        f"target/{_target}/heads",
        lambda: Attention(4),
        SEQUENCES,
        dynamic_shapes=BATCH_TIME,
        target=_target,
        opset_version=23,
    )
    add(f"target/{_target}/shapes", Shapes, SMALL, dynamic_shapes=({0: "batch", 2: "height"},), target=_target)
    add(
        f"target/{_target}/int8",
        lambda: _quantized("int8"),
        WIDE,
        dynamic_shapes=BATCH,
        target=_target,
        opset_version=21,
    )
    add(
        f"target/{_target}/int4",
        lambda: _quantized("int4"),
        WIDE,
        dynamic_shapes=BATCH,
        target=_target,
        opset_version=21,
    )
    add(f"target/{_target}/per_tensor", lambda: Function(_per_tensor), X, target=_target)
