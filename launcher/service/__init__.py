"""Keeps a cluster as it is wanted: models and their versions, while requests come."""
