"""Compute exact periods, latencies, slacks and schedules."""
