"""The strategy `runs`: each device computes a few runs of consecutive layers."""
