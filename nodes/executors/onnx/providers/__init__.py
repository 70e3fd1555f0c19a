"""ONNX Runtime's execution providers other than the one for the CPU: settings, tests, sessions."""
