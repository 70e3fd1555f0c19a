"""The executor thread: loads subnets, warms them up, fires phases."""
