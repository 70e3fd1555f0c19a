"""ONNX Runtime as an executor, and ONNX files without the `onnx` package."""
