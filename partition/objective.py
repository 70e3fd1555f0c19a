"""What a search makes small first. Light to import: commands show it in their help."""

from typing import Literal, TypeAlias

Objective: TypeAlias = Literal["period", "memory", "latency", "energy"]
"""Seconds per frame, the fullest device's bytes, seconds from a frame to its result, or joules per
frame."""
