"""How each ONNX operator handles rows and channels, and which operators are supported."""
