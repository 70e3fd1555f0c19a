"""Profiles: measuring a model on the nodes of a cluster."""
