"""What counts as the same result, and where two results begin to differ."""
