"""A node's blobs on disk."""
