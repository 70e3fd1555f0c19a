"""Deliver results to files, brokers, web servers and videos (`launcher.config.ends.sink`)."""
