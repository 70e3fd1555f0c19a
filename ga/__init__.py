"""Genetic search for partitions: the paper's algorithm, and one for several objectives at once."""
