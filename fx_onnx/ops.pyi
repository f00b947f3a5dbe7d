from torch.onnx.ops import *
