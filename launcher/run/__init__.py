"""Carries out a run: starts or reaches agents, deploys, streams frames, and returns results."""
