"""Measures launches on boards that nobody described: `python -m benchmarks.boards`."""
