"""The file by which commands on the same machine find a running service and are let in.

The service writes it into its state folder, readable by its user only, once it listens. It has the
URL of the service's own API and a token, which is another one at each start.
"""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from launcher.errors import BadInputError, LauncherError, RunFailedError, shortened
from launcher.files import read_json, write_whole
from launcher.serve.control import CONTROL_PATH
from launcher.service.store import is_locked

CONTROL = "control.json"

ANSWER_S = 300.0
"""How long an answer may take: a large model is read and checked before it is applied."""


@dataclass(frozen=True, slots=True)
class ControlFile:
    """The service's address and an operator's token; `certificate` is that of its TLS."""

    url: str
    token: str
    pid: int
    certificate: str | None = None

    def write(self, folder: Path) -> None:
        """Write it into the state folder."""
        path = folder / CONTROL
        path.unlink(missing_ok=True)
        write_whole(path, json.dumps(asdict(self)), mode=0o600)


class NotRunningError(LauncherError):
    """No service runs in this folder."""


class ServiceClient:
    """The running service of a state folder, as commands see it."""

    def __init__(self, folder: Path) -> None:
        """Raises `NotRunningError` if there is none, `BadInputError` if it cannot be reached."""
        if not is_locked(folder):
            raise NotRunningError(
                f"{folder}: no service runs here; launch up CLUSTER starts it, and --state names "
                "another folder"
            )
        _, data = read_json(
            folder / CONTROL, missing="the service is starting or ending; try again in a moment"
        )
        try:
            self._control = ControlFile(**data)
        except TypeError:
            raise BadInputError(f"{folder / CONTROL}: was not written by this program") from None

    @property
    def pid(self) -> int:
        """Its process."""
        return self._control.pid

    def get(self, what: str) -> Any:
        """Return the answer to a question."""
        return self._ask("GET", what, None)

    def post(self, command: str, **data: object) -> Any:
        """Return the answer to a command. Raises `BadInputError` if it is refused."""
        return self._ask("POST", command, data)

    def _ask(self, method: str, path: str, data: object) -> Any:
        try:
            connection = self._connection()
            try:
                connection.request(
                    method,
                    CONTROL_PATH + path,
                    None if data is None else json.dumps(data),
                    {"Authorization": f"Bearer {self._control.token}"},
                )
                response = connection.getresponse()
                status, body = response.status, response.read()
            finally:
                connection.close()
            answer = json.loads(body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RunFailedError(
                f"the service at {self._control.url} does not answer: {shortened(str(error))}"
            ) from None
        if status >= http.client.INTERNAL_SERVER_ERROR:
            raise RunFailedError(str(answer.get("error", status)))
        if status != http.client.OK:
            raise BadInputError(str(answer.get("error", status)))
        return answer

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._control.url)
        host, port = parts.hostname or "", parts.port
        if self._control.certificate is None:
            return http.client.HTTPConnection(host, port, timeout=ANSWER_S)
        context = ssl.create_default_context(cafile=self._control.certificate)
        context.check_hostname = False  # it is this very certificate, whatever its names are
        return http.client.HTTPSConnection(host, port, timeout=ANSWER_S, context=context)
