"""Posts one JSON object per result to a web server, with urllib3.

The answer's status decides. 2xx: the result is delivered. 408, 425, 429 and 5xx, and a connection
that breaks: it may be tried again. Everything else: this result is refused. Redirects are refused
too, so that the token reaches no other host. A server may name a time in `Retry-After`, before
which it is not asked again. A result whose answer was lost is posted again, and the server can tell
by its `index`.

No answer is waited for longer than `timeout_s` in all, however slowly it drips, and of its body no
more than `MOST_ANSWER_BYTES` are read.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import threading
import time
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from launcher.config.ends.passwords import from_environment
from launcher.config.ends.sink import (
    FrameResult,
    ResultRefusedError,
    SinkConfig,
    SinkLostError,
    tls_trusting,
)
from launcher.config.kinds import ReadFileName, imported
from launcher.errors import BadInputError, reason
from launcher.sinks.result_json import result_text

if TYPE_CHECKING:
    from urllib3.connection import HTTPConnection
    from urllib3.response import HTTPResponse

MOST_ANSWER_BYTES = 1 << 16
"""Bytes of an answer's body that are read to use the connection again."""

MOST_RETRY_AFTER_S = 300.0
"""The longest pause that a server's `Retry-After` can ask for."""

_TRY_AGAIN = (408, 425, 429)
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_RESERVED = ("host", "content-length", "content-type", "transfer-encoding", "connection")


class WebhookConfig(SinkConfig):
    """A URL that gets a POST per result."""

    kind: ClassVar[str] = "webhook"

    url: Annotated[str, Field(min_length=1, description="http://… or https://…")]
    headers: Annotated[
        dict[str, str], Field(description="Headers of every request; no secrets")
    ] = {}
    headers_env: Annotated[
        dict[str, str],
        Field(description="Headers whose values are in the environment variables named here"),
    ] = {}
    token_env: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Environment variable with the TOKEN of Authorization: Bearer TOKEN",
        ),
    ] = None
    tls_ca: Annotated[
        ReadFileName | None,
        Field(description="PEM file of the authority that signed the server's certificate"),
    ] = None
    timeout_s: Annotated[
        float, Field(gt=0, le=300, description="Seconds that a request may take in all")
    ] = 10.0

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError as error:
            raise ValueError(f"is not a URL: {reason(error)}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must be a URL that begins with http:// or https://")
        if parts.username is not None or parts.password is not None:
            raise ValueError(
                "must not have a user and a password; give the header Authorization by headers_env"
            )
        if not url.isascii() or not url.isprintable() or " " in url:
            raise ValueError("must be ASCII without blanks; write other characters as %XX")
        return url

    @field_validator("headers", "headers_env")
    @classmethod
    def _check_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not _HEADER.fullmatch(name) or name.lower() in _RESERVED:
                raise ValueError(f"{name!r} is not a header that can be given")
            _check_value(name, value)
        return headers

    @model_validator(mode="after")
    def _check(self) -> WebhookConfig:
        names = [name.lower() for name in (*self.headers, *self.headers_env)]
        names += ["authorization"] if self.token_env is not None else []
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"the header {twice!r} is given twice; remove one")
        if "authorization" in map(str.lower, self.headers):
            raise ValueError("the header Authorization is a secret; give it by headers_env")
        return self

    def open(self, folder: Path) -> WebhookSink:
        """Return the sink, not connected yet.

        Raises `BadInputError` if urllib3 is not installed, the environment lacks a variable, or the
        certificate cannot be read.
        """
        imported("urllib3", "the sink webhook", "stream")
        headers = dict(self.headers)
        if (token := from_environment(self.token_env, "token_env")) is not None:
            headers["Authorization"] = f"Bearer {token}"
        for name, variable in self.headers_env.items():
            headers[name] = from_environment(variable, f"headers_env.{name}") or ""
        try:
            for name, value in headers.items():
                _check_value(name, value)
        except ValueError as error:
            raise BadInputError(str(error)) from None
        path = None if self.tls_ca is None else folder / os.path.expanduser(self.tls_ca)
        return WebhookSink(self.url, headers, tls_trusting(path), self.timeout_s)


def _check_value(name: str, value: str) -> None:
    if not value.isascii() or not value.isprintable():
        raise ValueError(f"the value of the header {name!r} must be printable ASCII")


class WebhookSink:
    """A connection to a web server, which is kept while the server keeps it."""

    needs_image = False

    def __init__(
        self, url: str, headers: dict[str, str], tls: ssl.SSLContext, timeout_s: float
    ) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port
        self._tls = tls if parts.scheme == "https" else None
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._shown = f"{parts.scheme}://{parts.netloc}"
        self._headers = {"User-Agent": "csdf-edge", **headers, "Content-Type": "application/json"}
        self._timeout_s = timeout_s
        self._connection: HTTPConnection | None = None
        self._not_before_s = 0.0

    @property
    def description(self) -> str:
        """The server; the rest of the URL may be a secret."""
        return f"webhook {self._shown}"

    def write(self, result: FrameResult) -> None:
        """Post the result; the module says what each answer means."""
        body = result_text(result)
        wait_s = self._not_before_s - time.monotonic()
        if wait_s > 0:
            raise SinkLostError(
                f"{self.description}: the server asks for no request within the next {wait_s:.0f} s"
            )
        status, retry_after = self._post(body)
        if 200 <= status < 300:
            return
        what = f"{self.description}: the server answers {status}"
        if status >= 500 or status in _TRY_AGAIN:
            self._not_before_s = time.monotonic() + _seconds(retry_after)
            raise SinkLostError(what)
        if 300 <= status < 400:
            raise ResultRefusedError(f"{what}, a redirect, which is not followed; give its URL")
        raise ResultRefusedError(f"{what} to frame {result.index}")

    def _post(self, body: bytes) -> tuple[int, str]:
        """Return the answer's status and its Retry-After; raises `SinkLostError`.

        The server may have closed a connection that was kept, so that one is replaced at once.
        """
        was_kept = self._connection is not None
        try:
            return self._post_once(body)
        except SinkLostError as error:
            if not (was_kept and isinstance(error.__cause__, ConnectionError)):
                raise
        return self._post_once(body)

    def _post_once(self, body: bytes) -> tuple[int, str]:
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 - needs an extra

        try:
            connection = self._connected()
            with _Deadline(connection, self._timeout_s) as deadline:
                if connection.sock is None:
                    connection.connect()
                deadline.socket = connection.sock
                connection.request(
                    "POST", self._path, body, self._headers,
                    preload_content=False, decode_content=False,
                )  # fmt: skip
                answer = connection.getresponse()
                if not self._is_read(answer):
                    self.close()
        except (OSError, HTTPError, HTTPException, ValueError) as error:
            self.close()
            raise SinkLostError(f"{self.description}: {reason(error)}") from error
        return answer.status, answer.headers.get("Retry-After", "")

    def _is_read(self, answer: HTTPResponse) -> bool:
        """Read the body, which is ignored; return whether the connection can be used again."""
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 - needs an extra

        try:
            answer.read(MOST_ANSWER_BYTES, decode_content=False)
            return not answer.read(1, decode_content=False)
        except (OSError, HTTPError, HTTPException, ValueError):
            return False

    def _connected(self) -> HTTPConnection:
        from urllib3.connection import HTTPConnection, HTTPSConnection  # noqa: PLC0415

        if self._connection is not None and not self._connection.is_connected:
            self.close()
        if self._connection is None:
            self._connection = (
                HTTPConnection(self._host, self._port, timeout=self._timeout_s)
                if self._tls is None
                else HTTPSConnection(
                    self._host, self._port, timeout=self._timeout_s, ssl_context=self._tls
                )
            )
        return self._connection

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class _Deadline:
    """Shuts a socket after a time, because every byte of a slow answer restarts a timeout."""

    def __init__(self, connection: HTTPConnection, after_s: float) -> None:
        self.socket: socket.socket | None = None
        self._connection = connection
        self._timer = threading.Timer(after_s, self._shut)
        self._timer.daemon = True

    def _shut(self) -> None:
        with suppress(OSError, AttributeError):
            (self.socket or self._connection.sock).shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> _Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()


def _seconds(retry_after: str) -> float:
    """The seconds of a Retry-After; 0 for a date, which needs clocks that agree."""
    return min(float(retry_after), MOST_RETRY_AFTER_S) if retry_after.isdecimal() else 0.0
