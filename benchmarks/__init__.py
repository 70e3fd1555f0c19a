"""Measures the project's published figures, each with one command: `python -m benchmarks.…`."""
