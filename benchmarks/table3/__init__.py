"""Measures Table 3 of Tang & Stefanov (2021) in the laboratory: `python -m benchmarks.table3`."""
