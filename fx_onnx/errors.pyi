from fx_onnx.compat.torch_errors import *
