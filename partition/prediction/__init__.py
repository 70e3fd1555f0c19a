"""What a plan will do: memory, period and latency, and its simulated run."""
