"""Tests of a run: supervisor, streaming, deployment, processes, and runs with real agents."""
