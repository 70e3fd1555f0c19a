"""Declares what the ends of a stream are: sources and sinks, their kinds, and their keys."""
