"""TensorRT as an executor."""
