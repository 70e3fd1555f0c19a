"""The server over gRPC: its forms, which are translated without I/O, and what carries them."""
