"""Profiles: measures a model on the nodes of a cluster, and uses the times in planning."""
