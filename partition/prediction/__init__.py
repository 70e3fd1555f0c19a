"""Predictions for a plan: memory, period, latency, energy, and its simulated run."""
