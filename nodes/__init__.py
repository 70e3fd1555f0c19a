"""What runs on a device: the agent daemon, its FIFOs and its executors."""
