"""The section `serve` of `cluster.yaml`: where `launch serve` answers requests, and whose."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from launcher.config.strict import StrictModel
from nodes.protocol.addresses import is_loopback_host

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9.-]*):(\d{1,5})")

USUAL_HTTP, USUAL_GRPC = "127.0.0.1:8000", "127.0.0.1:8001"
"""Where requests are answered if no address is given."""

OFF = "off"
"""In place of an address: this protocol is not served."""


def parse_address(text: str) -> tuple[str, int]:
    """Return the host and port of `HOST:PORT`; port 0 is any that is free. Raises `ValueError`."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[2]) > 65535:
        raise ValueError(
            f"{text!r} is not an address; write HOST:PORT, such as {USUAL_HTTP}, or off"
        )
    return match[1].strip("[]"), int(match[2])


class ServeConfig(StrictModel):
    """Addresses, access and limits; `launch serve` has options of the same names."""

    http: Annotated[
        str | None,
        Field(description=f"HOST:PORT for HTTP, or off; {USUAL_HTTP} if grpc is not given"),
    ] = None
    grpc: Annotated[
        str | None,
        Field(description=f"HOST:PORT for gRPC, or off; {USUAL_GRPC} if http is not given"),
    ] = None
    token: Annotated[
        str | None,
        Field(
            min_length=16,
            pattern="^[!-~]+$",
            description="Token that clients must send as Authorization: Bearer TOKEN",
        ),
    ] = None
    tls_certificate: Annotated[
        str | None, Field(min_length=1, description="PEM file of the server's certificate chain")
    ] = None
    tls_key: Annotated[
        str | None, Field(min_length=1, description="PEM file of the certificate's private key")
    ] = None
    cors_origins: Annotated[
        tuple[str, ...], Field(description="Origins whose pages may use it, or '*': http://HOST")
    ] = ()
    insecure: Annotated[
        bool, Field(description="Whether it may be reached from other machines without a token")
    ] = False
    traces: Annotated[
        str | None,
        Field(
            pattern="^https?://[^/\\s]+",
            description="URL of an OTLP receiver for traces of requests with a traceparent",
        ),
    ] = None
    metrics: Annotated[
        Literal["guarded", "open"],
        Field(
            description="Whether /metrics needs the token, or is open to everybody who reaches "
            "the port"
        ),
    ] = "guarded"
    most_in_flight: Annotated[
        int,
        Field(
            ge=1,
            le=100_000,
            description="Maximum number of requests under way; further "
            "ones are refused immediately",
        ),
    ] = 64

    @field_validator("http", "grpc")
    @classmethod
    def _check_address(cls, address: str | None) -> str | None:
        if address is not None and address != OFF:
            parse_address(address)
        return address

    def what_is_unsafe(self) -> str | None:
        """Why a server must not use these keys as they are; None if it may.

        Options may give the keys that the file leaves out, so this is not checked with the file.
        """
        if (self.tls_certificate is None) != (self.tls_key is None):
            return "tls_certificate and tls_key belong together; give both or none"
        if not self.addresses:
            return "http and grpc are both off; leave one of them out"
        for kind, (host, port) in self.addresses.items():
            if not is_loopback_host(host) and self.token is None and not self.insecure:
                return (
                    f"{kind} at {host}:{port} can be reached from other machines; give a token, "
                    "or 'insecure' if everybody who can reach it may use it"
                )
        return None

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """`http` and `grpc`, those that are served, each with host and port."""
        given = {"http": self.http, "grpc": self.grpc}
        if all(text in (None, OFF) for text in given.values()):
            usual = {"http": USUAL_HTTP, "grpc": USUAL_GRPC}
            given = {kind: given[kind] or usual[kind] for kind in given}
        return {
            kind: parse_address(text) for kind, text in given.items() if text not in (None, OFF)
        }
