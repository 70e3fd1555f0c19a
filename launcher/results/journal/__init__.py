"""Keeps a run's results and progress on disk, so that the run can be resumed."""
