"""Rewrites of a network that compute the same: slices, bands, copies."""
