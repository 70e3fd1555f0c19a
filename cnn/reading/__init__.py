"""The steps that turn an ONNX file into layers: parse, fix shapes, fill in weights, group."""
