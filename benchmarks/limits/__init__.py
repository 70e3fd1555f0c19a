"""Measures what the runtime itself costs, with the shipped agents as real processes."""
