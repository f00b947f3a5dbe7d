"""Exports a BERT of transformers for any batch and length, with an attention mask."""

import torch
from transformers import BertConfig, BertForSequenceClassification

import fx_onnx

# BertForSequenceClassification.from_pretrained("path or name") loads a trained model instead.
config = BertConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, num_labels=3)
model = BertForSequenceClassification(config).eval()


def encode(batch: int, length: int, padding: int) -> dict[str, torch.Tensor]:
    """Stands in for a tokenizer: the last positions of the first text are padding."""
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[0, length - padding :] = 0
    return {"input_ids": torch.randint(1000, 2000, (batch, length)), "attention_mask": mask}


dims = {0: "batch", 1: torch.export.Dim("length", max=512)}  # the model has 512 positions
program = fx_onnx.export(
    model,
    kwargs=encode(2, 8, padding=2),
    dynamic_shapes={"input_ids": dims, "attention_mask": dims},
    output_names=["logits"],
)
print(program)

for batch, length, padding in [(1, 5, 0), (3, 40, 11)]:
    texts = encode(batch, length, padding)
    (logits,) = program(**texts)
    with torch.no_grad():
        expected = model(**texts).logits
    torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-4)
    print(f"{batch} texts of length {length}: largest difference {(logits - expected).abs().max():.1e}")
