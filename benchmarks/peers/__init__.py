"""Compares csdf-edge with alternatives, in turns on the same boards with the same cuts."""
