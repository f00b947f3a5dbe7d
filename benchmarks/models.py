"""The networks of the benchmarks, in their real sizes and with random weights."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn

from tests.models.registry import BATCH, TEXT, Inputs, images, t5_inputs, text_inputs
from tests.models.resnet import ResNet
from tests.models.swin import Swin
from tests.models.vit import ViT


@dataclass(frozen=True)
class Benchmark:
    """A network, its example inputs, and the dims that a dynamic export keeps symbolic."""

    make: Callable[[], nn.Module]
    inputs: Callable[[], Inputs]
    dynamic_shapes: Any

    def build(self) -> nn.Module:
        """Returns the module in eval mode, with the same random weights at every call.

        No weight keeps its neutral initial value, because an exporter that removes a bias of zeros would produce a
        different graph than for a trained model.
        """
        torch.manual_seed(0)
        model = self.make().eval()
        with torch.no_grad():
            for tensor in (*model.parameters(), *model.buffers()):
                if tensor.is_floating_point() and tensor.dim() and bool((tensor == tensor.flatten()[0]).all()):
                    tensor += 0.02 * torch.rand_like(tensor)
        return model


def bert_base() -> nn.Module:
    """BERT-base, 110 million parameters."""
    return transformers.BertModel(transformers.BertConfig())


def gpt2() -> nn.Module:
    """GPT-2, the smallest published size, 124 million parameters."""
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False))


def t5() -> nn.Module:
    """T5, the smallest published size, 60 million parameters."""
    return transformers.T5ForConditionalGeneration(transformers.T5Config(use_cache=False, decoder_start_token_id=0))


def llama(layers: int) -> nn.Module:
    """A Llama with a quarter of the width of the 1B model, and two query heads for each key head.

    The 1B model has 16 layers.
    """
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=8000,
            hidden_size=512,
            intermediate_size=2048,
            num_hidden_layers=layers,
            num_attention_heads=8,
            num_key_value_heads=4,
            use_cache=False,
        )
    )


def _pictures() -> Inputs:
    return images(2, 224)


def _text() -> Inputs:
    return text_inputs(2, 64)


def _text_pair() -> Inputs:
    return t5_inputs(2, 64, 48)


BENCHMARKS = {
    "resnet50": Benchmark(ResNet, _pictures, BATCH),
    "bert_base": Benchmark(bert_base, _text, TEXT),
    "llama16": Benchmark(lambda: llama(16), _text, TEXT),
    "swin_t": Benchmark(Swin, _pictures, BATCH),
    "gpt2": Benchmark(gpt2, _text, TEXT),
    "vit_b": Benchmark(ViT, _pictures, BATCH),
    "t5_small": Benchmark(t5, _text_pair, {**TEXT, "decoder_input_ids": {0: "batch", 1: "target"}}),
}
DEEP = {"llama64": Benchmark(lambda: llama(64), _text, TEXT)}
"""Networks that are only exported. Those in ``BENCHMARKS`` are also run."""
