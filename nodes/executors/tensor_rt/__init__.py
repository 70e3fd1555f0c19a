"""Runs subnets with TensorRT on a GPU."""
