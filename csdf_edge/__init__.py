"""What a program may import from csdf-edge; everything else may change without notice."""
