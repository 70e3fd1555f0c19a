"""Opens the addresses at which a server answers, over HTTP and gRPC."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from launcher.config.load import Cluster
from launcher.config.serve import ServeConfig
from launcher.errors import BadInputError
from launcher.serve.over_http.server import http_server
from launcher.serve.service import Service

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it is read once, when grpcio is imported
from launcher.serve.over_grpc.server import grpc_server

_log = logging.getLogger(__name__)

OTHER_DESCRIPTORS = 256
"""For files, agents, sinks and sources."""

SAY_EVERY_S = 60.0

REFUSALS = 256
"""gRPC calls that are accepted beyond those in progress: to be refused, or for other questions."""

TlsFiles = tuple[Path, Path]
"""A certificate and its key."""


def check_stateless(cluster: Cluster) -> None:
    """Raise `BadInputError` for networks that cannot be served."""
    for model in cluster.models:
        if model.config.state:
            raise cluster.error(
                (*model.location, "state"),
                "the network keeps state from frame to frame, which requests of several clients "
                "would mix; serve takes networks without state",
            )


def tls_files(cluster: Cluster, config: ServeConfig) -> TlsFiles | None:
    """The files of the certificate and its key, which fit each other; raises `BadInputError`."""
    if config.tls_certificate is None or config.tls_key is None:
        return None
    files = cluster.path(config.tls_certificate), cluster.path(config.tls_key)
    for file in files:
        if file.exists() and not file.is_file():  # a pipe would keep OpenSSL waiting
            raise BadInputError(f"{file}: not a certificate with its key: it is not a regular file")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*files)
    except OSError as error:  # ssl.SSLError is one
        names = " and ".join(map(str, files))
        raise BadInputError(f"{names}: not a certificate with its key: {error}") from error
    return files


def check_can_listen(addresses: Mapping[str, tuple[str, int]]) -> None:
    """Raise `BadInputError` for an address that cannot be listened at, such as a port that is
    taken, before there is anything to serve."""
    for kind, (host, port) in addresses.items():
        _try_to_listen(kind, host, port)


def _try_to_listen(kind: str, host: str, port: int) -> None:
    kinds, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
    try:
        for family, _, _, _, address in socket.getaddrinfo(host, port, type=kinds, flags=flags):
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
                probe.listen()
    except OSError as error:
        raise _cannot_listen(kind, host, port, error) from error


def _cannot_listen(kind: str, host: str, port: int, error: OSError) -> BadInputError:
    hint = "; another program uses it, so give another port" * (error.errno == errno.EADDRINUSE)
    return BadInputError(
        f"{kind} at {host}:{port}: cannot listen on this address: {error.strerror or error}{hint}"
    )


@asynccontextmanager
async def listening(
    service: Service,
    addresses: Mapping[str, tuple[str, int]],
    *,
    cors_origins: tuple[str, ...],
    tls: TlsFiles | None,
    most_in_flight: int,
) -> AsyncIterator[dict[str, str]]:
    """Serve at these addresses, and yield their URLs; answer requests in flight before leaving.

    gRPC takes no more than `most_in_flight` calls and some to be refused. Raises `BadInputError`
    for an address that cannot be listened at.
    """
    service.limits = replace(
        service.limits, connections=_connections(service.limits.connections, len(addresses))
    )
    asyncio.get_running_loop().set_exception_handler(_Handler())
    async with AsyncExitStack() as stack:
        served = {}
        for kind, (host, port) in addresses.items():
            try:
                if kind == "http":
                    server = http_server(
                        service, host, port, tls=_context(tls), cors_origins=cors_origins
                    )
                else:
                    pem = tls and (tls[1].read_bytes(), tls[0].read_bytes())
                    most = most_in_flight + REFUSALS
                    server = grpc_server(service, host, port, tls=pem, most=most)
                bound = await stack.enter_async_context(server)
            except OSError as error:
                raise _cannot_listen(kind, host, port, error) from error
            shown = f"[{host}]" if ":" in host else host
            served[kind] = f"{kind}{'s' if tls else ''}://{shown}:{bound}"
        yield served


def _connections(wanted: int, servers: int) -> int:
    """Raise this process's limit of file descriptors; return the connections each server may have.

    Without descriptors nothing can be accepted, and no file opened.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = OTHER_DESCRIPTORS + servers * wanted * 2  # as many that are refused or not known yet
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(1, min(wanted, (soft - OTHER_DESCRIPTORS) // servers // 2))
    return wanted


class _Handler:
    """Logs errors of the loop, and that nothing can be accepted once a minute only."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)):
            loop.default_exception_handler(context)
        elif loop.time() >= self._next_s:
            self._next_s = loop.time() + SAY_EVERY_S
            _log.error("no connection can be accepted: %s", error.strerror)


def _context(tls: TlsFiles | None) -> ssl.SSLContext | None:
    if tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*tls)
    return context
