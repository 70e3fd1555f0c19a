"""The project's numbers, each with one command: `python -m benchmarks.NAME`."""
