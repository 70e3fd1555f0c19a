"""Find the smallest channel capacities with which a graph is live or reaches a period."""
