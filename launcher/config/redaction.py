"""Removes secrets from what people and other programs are shown; no other module does that.

A secret is a password, a token, or anything else that grants access: cameras have passwords in
queries and paths of their addresses, web hooks and receivers of traces have theirs in paths, and
servers take them in headers. Values that name an environment variable (`…_env`) or a file
(`…_file`) are not secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "(not shown)"

_SECRET_KEY = re.compile(r"token|password|secret|credential|authorization|api_?key", re.IGNORECASE)
_SECRET_MAPPINGS = ("headers", "options")
"""Keys of mappings in which any value may be a secret."""

_NAMES = ("_env", "_file")
"""Ends of keys whose values say where a secret is."""

_SERVER_ONLY = ("sinks", "traces")
"""Keys below which no more of an address is shown than its server."""

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_BEFORE_HOST = re.compile(r"([A-Za-z][A-Za-z0-9+.:-]*://).*@", re.DOTALL)
_SERVER = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]*://[^/?#]*")


def is_address(text: str) -> bool:
    """Whether a text looks like rtsp://camera/stream and not like a file."""
    return bool(_ADDRESS.match(text))


def without_password(url: str) -> str:
    """Return an address without its user, password and query, any of which may be secret.

    All up to the last "@" goes, because a password may contain what should be escaped. So does a
    part of the path in which something is set, and all behind it.

    >>> without_password("rtsp://me:secret@camera/live?key=secret")
    'rtsp://camera/live'
    >>> without_password("rtsp://camera:554/user=me&password=secret&channel=1.sdp")
    'rtsp://camera:554/'
    """
    if not is_address(url):
        return url
    shown = re.split(r"[?#]", _BEFORE_HOST.sub(r"\1", url, count=1), maxsplit=1)[0]
    before, is_set, _ = shown.partition("=")
    return before[: before.rindex("/") + 1] if is_set else shown


def server_of(url: str) -> str:
    """Return no more of an address than its scheme, host and port."""
    shown = without_password(url)
    found = _SERVER.match(shown)
    return shown if found is None else found[0]


def without_secrets(data: object, *, server_only: bool = False) -> object:
    """Return the data of a `cluster.yaml` with `HIDDEN`, or less of an address, for each secret."""
    if isinstance(data, Mapping):
        return {
            key: _shown(str(key), value, server_only=server_only) for key, value in data.items()
        }
    if isinstance(data, list | tuple):
        return [without_secrets(each, server_only=server_only) for each in data]
    if isinstance(data, str) and is_address(data):
        return server_of(data) if server_only else without_password(data)
    return data


def _shown(key: str, value: object, *, server_only: bool) -> object:
    if key in _SECRET_MAPPINGS and isinstance(value, Mapping):
        return dict.fromkeys(value, HIDDEN)
    if _SECRET_KEY.search(key) and not key.endswith(_NAMES) and value is not None:
        return HIDDEN
    return without_secrets(value, server_only=server_only or key in _SERVER_ONLY)
