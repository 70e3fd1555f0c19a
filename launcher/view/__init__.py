"""Views of a running cluster, for metrics, the terminal and the page."""
