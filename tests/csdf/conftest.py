"""Hypothesis judges results here, not the clock of a shared machine."""

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
