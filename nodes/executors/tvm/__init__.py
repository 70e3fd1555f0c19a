"""Runs subnets with Apache TVM on the CPU."""
