"""The protocol between agents and launchers: messages, their schema and their encoding."""
