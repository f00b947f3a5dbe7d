from fx_onnx.compat.utils import *
