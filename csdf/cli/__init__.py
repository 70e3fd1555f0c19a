"""The command `csdf`."""
