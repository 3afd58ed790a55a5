"""Compare the engine with its peers: `python -m benchmarks`."""
