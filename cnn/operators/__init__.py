"""Describe what ONNX operators do with rows and frames, which are supported, and their bodies."""
