"""Runs subnets with ONNX Runtime, and reads ONNX files without the `onnx` package."""
