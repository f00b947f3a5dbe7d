from fx_onnx.compat.symbolic_helper import *
