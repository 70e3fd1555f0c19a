"""The smallest channel capacities that are live or that reach a period."""
