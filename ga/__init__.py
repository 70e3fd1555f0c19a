"""The genetic search for a partition (DEAP)."""
