"""Executors: one conformance suite for all, and what is particular to each."""
