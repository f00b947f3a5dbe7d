"""Classifies texts with a folder of the layout model-package, in ONNX Runtime 1.32, without torch.

python onnxruntime_package.py FOLDER COMPONENT TEXT..., where COMPONENT is model, model_fp16, model_q4...
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer


def logits(folder: str, component: str, texts: list[str]) -> np.ndarray:
    """Returns the logits of each text, (texts, labels)."""
    tokenizer = Tokenizer.from_file(str(Path(folder, "tokenizer.json")))
    tokenizer.enable_padding()
    rows = tokenizer.encode_batch(texts)
    given = {
        "input_ids": [row.ids for row in rows],
        "attention_mask": [row.attention_mask for row in rows],
        "token_type_ids": [row.type_ids for row in rows],
    }
    options = onnxruntime.ModelPackageOptions(onnxruntime.SessionOptions())
    session = onnxruntime.ModelPackageContext(folder).select_component(component, options).create_session()
    names = [each.name for each in session.get_inputs()]
    (found,) = session.run(["logits"], {name: np.array(given[name], np.int64) for name in names})
    return np.asarray(found)


if __name__ == "__main__":
    for text, row in zip(sys.argv[3:], logits(*sys.argv[1:3], sys.argv[3:]), strict=True):
        print(f"{text!r}: label {row.argmax()} of {len(row)}")
