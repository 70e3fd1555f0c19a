"""The frames that a run streams, read from image files and arrays or drawn at random."""
