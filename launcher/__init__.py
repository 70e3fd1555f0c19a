"""The launcher: reads `cluster.yaml`, plans, deploys, supervises a run, and reports on it."""
