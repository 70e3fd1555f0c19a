"""Measures the service under load: changes of versions and models, and its own sudden end."""
