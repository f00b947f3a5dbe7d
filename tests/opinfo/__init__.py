"""PyTorch's own operator tests (OpInfo), run through the exporter."""
