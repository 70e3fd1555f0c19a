"""Hypothesis judges results here, not the clock of a shared machine."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "csdf",
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
settings.load_profile("csdf")
