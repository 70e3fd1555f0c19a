"""What agents and launchers say to each other: messages, their schema, and their bytes."""
