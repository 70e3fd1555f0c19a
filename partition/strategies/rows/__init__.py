"""Strategies that divide layers: by rows in fused tiles, or by channels."""
