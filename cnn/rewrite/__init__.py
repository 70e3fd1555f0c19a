"""Rewrites of a network that compute the same outputs: slices, bands, copies."""
