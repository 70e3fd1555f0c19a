"""What a running cluster looks like from outside, for metrics, the terminal and the page."""
