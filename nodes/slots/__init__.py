"""The parent process of a node's slots, which imports neither NumPy, ZeroMQ nor an engine."""
