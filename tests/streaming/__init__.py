"""Tests of `launcher.streaming`: sources to sinks, through queues that may drop."""
