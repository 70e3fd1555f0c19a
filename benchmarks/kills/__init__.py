"""Kills processes of a running service at random, and checks that nothing acknowledged is lost."""
