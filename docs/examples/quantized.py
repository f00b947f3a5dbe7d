"""Quantizes a network with PT2E of torchao, and exports it with 8-bit weights and activations."""

import torch
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

import fx_onnx

model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4)).eval()
images = torch.randn(4, 3, 32, 32)

# Quantize: capture, insert observers, calibrate them with data, convert.
captured = torch.export.export(model, (images,), dynamic_shapes=({0: torch.export.Dim("batch")},)).module()
quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
prepared = prepare_pt2e(captured, quantizer)
for _ in range(4):
    prepared(torch.randn(4, 3, 32, 32))
quantized = convert_pt2e(prepared)

program = fx_onnx.export(quantized, (images,), dynamic_shapes=({0: "batch"},))
print(program)
print([node.op_type for node in program.model.graph])

more = torch.randn(7, 3, 32, 32)
(scores,) = program(more)
print("largest difference from the quantized module", (scores - quantized(more)).abs().max().item())
print("largest difference from the float32 module  ", (scores - model(more)).abs().max().item())
torch.testing.assert_close(scores, quantized(more), rtol=0, atol=0.02)
