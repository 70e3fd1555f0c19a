"""Handles the results of a run: files, journals, comparison with the whole model, reports."""
