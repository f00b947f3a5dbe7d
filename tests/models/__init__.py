"""Real networks for the tests and the benchmarks, in plain torch.nn, of any width and depth."""
