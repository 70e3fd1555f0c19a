"""Results and progress of a run on disk, so that it can be resumed."""
