"""Opens the addresses at which a server answers, over HTTP and gRPC."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from launcher.config.load import Cluster
from launcher.config.serve import ServeConfig
from launcher.errors import BadInputError
from launcher.serve.http_server import http_server
from launcher.serve.service import Service

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it is read once, when grpcio is imported
from launcher.serve.grpc_server import grpc_server

REFUSALS = 64
"""gRPC calls that there may be beyond those under way: to be refused, or to ask something else."""

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
            raise BadInputError(f"{file}: no certificate with its key: it is not a regular file")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*files)
    except OSError as error:  # ssl.SSLError is one
        names = " and ".join(map(str, files))
        raise BadInputError(f"{names}: no certificate with its key: {error}") from error
    return files


@asynccontextmanager
async def listening(
    service: Service,
    addresses: Mapping[str, tuple[str, int]],
    *,
    cors_origins: tuple[str, ...],
    tls: TlsFiles | None,
    most_in_flight: int,
) -> AsyncIterator[dict[str, str]]:
    """Serve at these addresses, and give their URLs; answer what is under way before leaving.

    gRPC takes no more than `most_in_flight` calls and some to be refused. Raises `BadInputError`
    for an address that cannot be listened at.
    """
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
                raise BadInputError(
                    f"{kind} at {host}:{port}: cannot be listened at: {error.strerror or error}"
                ) from error
            shown = f"[{host}]" if ":" in host else host
            served[kind] = f"{kind}{'s' if tls else ''}://{shown}:{bound}"
        yield served


def _context(tls: TlsFiles | None) -> ssl.SSLContext | None:
    if tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*tls)
    return context
