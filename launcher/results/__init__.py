"""What becomes of results: files, reports, journals, comparison with the whole model."""
