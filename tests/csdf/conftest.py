"""Hypothesis settings: no deadlines, since a shared machine may be slow."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "csdf",
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
settings.load_profile("csdf")
