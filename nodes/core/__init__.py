"""What agents and launchers say to each other and decide: sans-IO, shared with the launcher."""
