"""What a network is: an immutable layer graph read from ONNX, and how subnets are cut from it."""
