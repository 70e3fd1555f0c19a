"""`launch top`: what the runs of a server look like, in a terminal."""
