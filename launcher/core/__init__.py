"""What the launcher decides, as a pure state machine: no sockets, clocks, threads or files."""
