"""Forwards TCP ports, as a container's published ports, NAT and tunnels do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

CHUNK_BYTES = 1 << 16


class Forwarder:
    """Relays connections from one address to another, each (HOST, PORT), in its own thread."""

    def __init__(self) -> None:
        self.connections = 0
        """How many connections have come."""
        self._servers: list[asyncio.Server] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def forward(self, listen: tuple[str, int], to: tuple[str, int]) -> None:
        """Begin to relay."""
        asyncio.run_coroutine_threadsafe(self._listen(listen, to), self._loop).result()

    def close(self) -> None:
        """End all relays."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self, listen: tuple[str, int], to: tuple[str, int]) -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            self._writers.append(writer)
            try:
                there = await asyncio.open_connection(*to)
            except OSError:
                writer.close()
                return
            self._writers.append(there[1])
            await asyncio.gather(_pump(reader, there[1]), _pump(there[0], writer))

        self._servers.append(await asyncio.start_server(accept, *listen))

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        for writer in self._writers:
            writer.transport.abort()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            with contextlib.suppress(OSError):
                await task


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextmanager
def forwarded(*ports: tuple[tuple[str, int], tuple[str, int]]) -> Iterator[Forwarder]:
    """Relay (listen, to) pairs while the context lasts."""
    forwarder = Forwarder()
    try:
        for listen, to in ports:
            forwarder.forward(listen, to)
        yield forwarder
    finally:
        forwarder.close()
