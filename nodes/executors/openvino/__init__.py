"""Runs subnets with OpenVINO, on the processor and on Intel's GPUs and NPUs."""
