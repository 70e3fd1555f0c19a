"""The server over HTTP: its forms, which are translated without I/O, and what carries them."""
