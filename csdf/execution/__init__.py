"""Execute a graph firing by firing: without time, on simulated processors, in static orders."""
