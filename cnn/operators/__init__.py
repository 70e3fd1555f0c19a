"""What each ONNX operator does with rows and channels, and which operators are supported."""
