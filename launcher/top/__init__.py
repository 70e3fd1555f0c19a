"""`launch top`: shows the runs of a server in a terminal."""
