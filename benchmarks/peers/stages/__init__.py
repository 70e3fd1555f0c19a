"""Programs that the peers run on the boards; they need no more than their own runtime."""
