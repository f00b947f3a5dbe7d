"""Runs a decoder with LoRA adapters, which change between two runs, without torch.

python onnxruntime_adapters.py FOLDER TOKEN... runs it without an adapter and with each in FOLDER/adapters.
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime


class Decoder:
    """A decoder of the layout optimum, which is loaded once."""

    def __init__(self, folder: str) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # it warns of inputs that have a default
        self.session = onnxruntime.InferenceSession(Path(folder, "model.onnx"), options)

    def next_token(self, tokens: list[int], adapter: Path | None = None) -> int:
        """Returns the most probable token after others."""
        length = len(tokens)
        given = {"input_ids": np.array([tokens]), "attention_mask": np.ones((1, length), np.int64)}
        given["position_ids"] = np.arange(length)[None]
        for each in self.session.get_inputs()[len(given) :]:  # the past is empty
            _, heads, _, size = each.shape
            given[each.name] = np.zeros((1, heads, 0, size), np.float32)
        run = onnxruntime.RunOptions()
        if adapter is not None:
            loaded = onnxruntime.LoraAdapter()
            loaded.Load(str(adapter))
            run.add_active_adapter(loaded)
        return int(self.session.run(["logits"], given, run)[0][0, -1].argmax())


if __name__ == "__main__":
    decoder, given_tokens = Decoder(sys.argv[1]), [int(each) for each in sys.argv[2:]]
    print("no adapter:", decoder.next_token(given_tokens))
    for file in sorted(Path(sys.argv[1], "adapters").glob("*/model.onnx_adapter")):
        print(f"{file.parent.name}:", decoder.next_token(given_tokens, file))
