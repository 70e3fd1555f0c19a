"""What the runtime itself costs, measured with the shipped agents as real processes."""
