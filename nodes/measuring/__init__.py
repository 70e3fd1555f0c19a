"""Measures a board: what layers, messages and encodings take there."""
