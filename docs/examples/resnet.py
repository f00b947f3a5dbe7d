"""Exports torchvision's ResNet-18 for a batch of any size, and runs the file with ONNX Runtime alone."""

import onnxruntime
import torch
import torchvision

import fx_onnx

model = torchvision.models.resnet18().eval()  # weights="DEFAULT" downloads trained weights
images = torch.randn(2, 3, 224, 224)

program = fx_onnx.export(
    model,
    (images,),
    "resnet18.onnx",
    input_names=["images"],
    output_names=["logits"],
    dynamic_shapes={"images": {0: "batch"}},
)
print(program)

session = onnxruntime.InferenceSession("resnet18.onnx")
batch = torch.randn(5, 3, 224, 224)
(logits,) = session.run(None, {"images": batch.numpy()})
with torch.no_grad():
    expected = model(batch)
print("batch of 5: largest difference", (torch.from_numpy(logits) - expected).abs().max().item())
torch.testing.assert_close(torch.from_numpy(logits), expected, rtol=1e-3, atol=1e-4)
