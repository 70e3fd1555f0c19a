"""The agent's use of the operating system: limits, files, memory, processes and systemd."""
