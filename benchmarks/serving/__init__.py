"""Measures and checks `launch serve`, with clients that others wrote."""
