"""The objectives of a search; light to import, because commands name them in their help."""

from typing import Literal, TypeAlias

Objective: TypeAlias = Literal["period", "memory", "latency", "energy"]
"""Seconds per frame, the fullest device's bytes, seconds from a frame to its result, or joules per
frame."""
