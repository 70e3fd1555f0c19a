"""Bounds the numbers that both `cluster.yaml` and the command line take."""

MOST_FRAMES = 1_000_000_000
MOST_SEED = 2**32 - 1
