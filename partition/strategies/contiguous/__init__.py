"""Strategies that cut a network into contiguous segments or stages."""
