"""Tests of `launch upgrade`."""
