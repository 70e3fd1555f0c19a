"""Certificates of analyses, and the checker that needs nothing of this package."""
