"""Finds agents that announce themselves, and writes them into cluster.yaml: `launch discover`."""
