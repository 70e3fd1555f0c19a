"""Runs over real network namespaces: separate machines, as far as the network can tell."""
