"""The frames that are streamed."""
