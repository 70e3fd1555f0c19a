"""Connections: sockets, encryption, and who may connect."""
