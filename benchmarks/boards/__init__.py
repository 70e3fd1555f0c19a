"""Measures launches on boards without a description: `python -m benchmarks.boards`."""
