"""Fit images to a network, and decode its outputs (`launcher.tasks.opening`)."""
