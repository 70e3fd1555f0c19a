"""Cyclo-static dataflow: graphs, and exact proofs of what they can and cannot do."""
