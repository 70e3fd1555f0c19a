"""The launcher's decisions as pure state machines, without sockets, clocks, threads or files."""
