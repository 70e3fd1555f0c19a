"""Loads subnets, rehearses them and fires phases, in the thread that computes."""
