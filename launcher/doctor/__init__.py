"""Examines a cluster from the launching machine: `launch doctor`."""
