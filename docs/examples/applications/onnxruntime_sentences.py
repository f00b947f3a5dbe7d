"""Compares sentences with a folder of the layout sentence-transformers, without torch.

python onnxruntime_sentences.py FOLDER SENTENCE...
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer


def embed(folder: str, sentences: list[str]) -> np.ndarray:
    """Returns the mean of the states of each sentence's tokens, of length 1, (sentences, size)."""
    tokenizer = Tokenizer.from_file(str(Path(folder, "tokenizer.json")))
    tokenizer.enable_padding()
    rows = tokenizer.encode_batch(sentences)
    mask = np.array([row.attention_mask for row in rows], np.int64)
    given = {"input_ids": np.array([row.ids for row in rows], np.int64), "attention_mask": mask}
    given["token_type_ids"] = np.zeros_like(mask)
    session = onnxruntime.InferenceSession(Path(folder, "onnx", "model.onnx"))
    names = [each.name for each in session.get_inputs()]
    (states,) = session.run(["last_hidden_state"], {name: given[name] for name in names})
    means = (states * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
    return means / np.linalg.norm(means, axis=-1, keepdims=True)


if __name__ == "__main__":
    found = embed(sys.argv[1], sys.argv[2:])
    print(np.round(found @ found.T, 3))
