"""Real networks for the tests and the benchmarks: plain torch.nn, true in structure, any width and depth."""
