"""The masks of decoders in ONNX's text format, as transformers computes them."""

CONSTANTS = (
    "<int64 n0 = {0}, int64 n1 = {1}, int64[1] zero = {0}, int64[1] last = {-1}, int64[3] ones = {1,1,1},"
    " int64[4] rows = {1,1,-1,1}, int64[4] columns = {1,1,1,-1}, int64[4] texts = {-1,1,1,1}, int64 three = {3}>"
)

CAUSAL = """past = Shape<start=2, end=3>(pk)\n p = Squeeze(past, zero)
 length = Shape<start=1, end=2>(q)\n l = Squeeze(length, zero)\n r = Range(n0, l, n1)\n at = Add(r, p)
 query = Reshape(at, rows)\n total = Add(past, length)\n t = Squeeze(total, zero)\n kr = Range(n0, t, n1)
 key = Reshape(kr, columns)\n causal = LessOrEqual(key, query)
"""

PADDING = """batch = Shape<start=0, end=1>(q)\n b = Squeeze(batch, zero)\n br = Range(n0, b, n1)
 text = Reshape(br, texts)
 grid1 = Concat<axis=0>(ones, total)\n text5 = Expand(text, grid1)\n text6 = Unsqueeze(text5, last)
 grid2 = Concat<axis=0>(batch, ones)\n key5 = Expand(key, grid2)\n key6 = Unsqueeze(key5, last)
 grid = Concat<axis=-1>(text6, key6)\n shown = Cast<to=9>(padding)\n token = GatherND(shown, grid)
"""

WINDOW = "first = Sub(query, three)\n near = Greater(key, first)\n"
