"""Prepares subnets for an engine in a child process, and caches the results on disk."""
