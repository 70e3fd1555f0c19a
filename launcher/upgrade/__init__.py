"""Upgrades the boards of a cluster one at a time, and returns one that does not come back."""
