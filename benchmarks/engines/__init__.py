"""Measures engines side by side: `python -m benchmarks.engines`."""
