"""Compares a run's results with the whole model's, and finds where they begin to differ."""
