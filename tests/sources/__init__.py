"""Tests of the sources of frames."""
