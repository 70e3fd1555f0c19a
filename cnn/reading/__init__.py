"""The steps that read an ONNX file: parse, fix shapes, fill in weights, normalise."""
