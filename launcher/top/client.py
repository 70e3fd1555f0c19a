"""Asks a server for the views of its runs."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

from launcher.config.serve import USUAL_HTTP
from launcher.errors import BadInputError, LauncherError, RunFailedError, reason
from launcher.files import read_json
from launcher.service.store import running_folders
from launcher.view.json_form import VIEW_PATH, views_from_json
from launcher.view.model import RunView

PATIENCE_S = 5.0
MOST_BYTES = 16 << 20
"""The longest answer that is read; a view of a hundred nodes has about 0.1 MB."""


@dataclass(frozen=True)
class ViewClient:
    """The server's address, and its reader's token."""

    url: str
    token: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    is_guess: bool = False
    """Whether this server was not named by the user."""
    state: Path | None = None
    """The state folder of the service, which writes its address there at each start."""

    def views(self) -> tuple[RunView, ...]:
        """Return the views of all runs.

        Raises `RunFailedError` if the server does not answer, which may pass, and `BadInputError`
        if it wants another token or has no views.
        """
        if self.state is None:
            return self._views()
        try:
            now = _client_of_service(self.state, None)
        except BadInputError as error:
            raise RunFailedError(str(error)) from None
        return replace(now, state=None)._views()

    def _views(self) -> tuple[RunView, ...]:
        status, body = self._get()
        if status == 401:
            raise BadInputError(
                f"{self.url}: the server requires a token; give the right one as CSDF_EDGE_TOKEN "
                "or by --token"
            )
        if status == 404:
            raise BadInputError(f"{self.url}: this server has no views of runs")
        if status != 200:
            raise RunFailedError(f"{self.url} answers with status {status}")
        if len(body) > MOST_BYTES:
            raise BadInputError(f"{self.url}: its answer is larger than {MOST_BYTES >> 20} MiB")
        try:
            return views_from_json(body)
        except LauncherError as error:
            raise BadInputError(f"{self.url}: its answer has no views: {error}") from None

    def _get(self) -> tuple[int, bytes]:
        connection = self._connection()
        try:
            headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
            connection.request("GET", VIEW_PATH, headers=headers)
            response = connection.getresponse()
            return response.status, response.read(MOST_BYTES + 1)
        except (OSError, HTTPException) as error:
            guess = (
                "; no service of launch up runs on this machine, so the usual port was asked: "
                "launch top URL asks another server"
            )
            raise RunFailedError(
                f"{self.url} does not answer: {reason(error)}{guess if self.is_guess else ''}"
            ) from None
        finally:
            connection.close()

    def _connection(self) -> HTTPConnection:
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if parts.scheme == "https":
            return HTTPSConnection(host, parts.port, timeout=PATIENCE_S, context=self.tls)
        return HTTPConnection(host, parts.port, timeout=PATIENCE_S)


def client_for(target: str | None, token: str | None) -> ViewClient:
    """Return the client of a URL, of `HOST:PORT`, or of the service with this state folder.

    Without a target it is the service that runs on this machine; if there is none, the usual port.
    Raises `BadInputError`, also if there are several services.
    """
    if target is None:
        running = running_folders()
        if len(running) > 1:
            raise BadInputError(
                "several services run on this machine; name the state folder of one: launch top "
                + " or ".join(map(str, running))
            )
        if running:
            return _client_of_service(running[0], token)
        return ViewClient(f"http://{USUAL_HTTP}", _checked(token), is_guess=True)
    if "://" not in target and Path(os.path.expanduser(target)).is_dir():
        return _client_of_service(Path(os.path.expanduser(target)), token)
    url = target if "://" in target else f"http://{target}"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # such as a port that is not a number
        usable = False
    if not usable:
        raise BadInputError(
            f"{target!r} is neither a URL, such as http://{USUAL_HTTP}, nor the folder of a "
            "service's state"
        )
    return ViewClient(url.rstrip("/"), _checked(token))


def _checked(token: str | None) -> str | None:
    if token is not None and not (token.isascii() and token.isprintable()):
        raise BadInputError("--token: a token has ASCII characters only")
    return token


def _client_of_service(folder: Path, token: str | None) -> ViewClient:
    """Return the client of the service that wrote this folder's `launcher.service.control`."""
    path = folder / "control.json"
    _, data = read_json(path, missing="no service runs here; launch up starts it")
    try:
        url, own, certificate = data["url"], data["token"], data["certificate"]
    except (TypeError, KeyError):
        raise BadInputError(f"{path}: was not written by this program") from None
    tls = None
    if certificate is not None:
        try:
            tls = ssl.create_default_context(cafile=certificate)
        except OSError as error:
            raise BadInputError(f"{certificate}: {reason(error)}") from None
        tls.check_hostname = False  # it is this very certificate, whatever its names are
    return ViewClient(str(url).rstrip("/"), token or str(own), tls, state=folder)
