"""Classifies texts with a folder of the layout optimum, without torch: python onnxruntime_optimum.py FOLDER TEXT..."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer


def classify(folder: str, texts: list[str]) -> np.ndarray:
    """Returns the probability of each label, (texts, labels)."""
    tokenizer = Tokenizer.from_file(str(Path(folder, "tokenizer.json")))
    tokenizer.enable_padding()
    rows = tokenizer.encode_batch(texts)
    given = {
        "input_ids": [row.ids for row in rows],
        "attention_mask": [row.attention_mask for row in rows],
        "token_type_ids": [row.type_ids for row in rows],
    }
    session = onnxruntime.InferenceSession(Path(folder, "model.onnx"))
    names = [each.name for each in session.get_inputs()]
    (logits,) = session.run(["logits"], {name: np.array(given[name], np.int64) for name in names})
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


if __name__ == "__main__":
    labels = json.loads(Path(sys.argv[1], "config.json").read_text()).get("id2label", {})
    for text, row in zip(sys.argv[2:], classify(sys.argv[1], sys.argv[2:]), strict=True):
        print(f"{text!r}: {labels.get(str(row.argmax()), f'LABEL_{row.argmax()}')}, {row.max():.0%}")
