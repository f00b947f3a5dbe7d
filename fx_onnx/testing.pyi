from fx_onnx.compat.testing import *
