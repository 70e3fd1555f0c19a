"""One run: agents, connections, the stream, and the job around it."""
