"""Runs subnets with OpenVINO on the processor."""
