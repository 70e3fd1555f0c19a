"""What an agent asks of its operating system: limits, files, memory, the service manager."""
