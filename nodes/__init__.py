"""The agent, which runs on a device: the daemon, its FIFOs and its executors."""
