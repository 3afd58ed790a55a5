"""Measure the engine against its peers: `python -m benchmarks`."""
