"""Tuning the parameters of the genetic strategies."""
