"""Contracts that sources and sinks of other packages must keep, as classes of tests to inherit."""
