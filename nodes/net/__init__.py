"""The network layer: ZeroMQ sockets, encryption, keys, and limits on connections."""
