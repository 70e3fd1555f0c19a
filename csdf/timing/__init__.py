"""Exact periods, latencies and schedules of self-timed execution."""
