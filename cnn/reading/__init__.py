"""From an ONNX file to a network: shapes, weights, names, layers, state, the tail."""
