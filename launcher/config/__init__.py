"""The configuration `cluster.yaml`: its models, and how a file is read and checked."""
