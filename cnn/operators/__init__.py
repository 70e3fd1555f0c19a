"""What each ONNX operator does with rows and frames, which are supported, and their bodies."""
