"""Every table of the five papers that can be computed or measured here, ours beside theirs."""
