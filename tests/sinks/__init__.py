"""Tests of the sinks that launcher/sinks delivers results to."""
