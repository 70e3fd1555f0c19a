"""Partitioning: devices, the cost model, strategies that assign layers to devices, and plans."""
