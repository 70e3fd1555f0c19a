"""Convert a network and a partition to a CSDF graph that is proved free of deadlock (§4.3)."""
