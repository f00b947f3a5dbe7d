"""Weights that a saved model reads from the files of a checkpoint, instead of a copy of them."""
