"""The agent's decisions as state machines without I/O; the launcher uses some of them too."""
