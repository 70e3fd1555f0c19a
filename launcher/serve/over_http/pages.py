"""The pages of a server, and its description for programs: files that need no token.

A page is one file of HTML, style and script, which fetches what it shows. The browser runs no
script but this one, and asks no other server (its Content-Security-Policy). These files say nothing
about the cluster; what the pages fetch needs the token.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from launcher.serve.over_http.openapi import document
from launcher.view.live_page import STYLE

_FOLDER = Path(__file__).parent


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _between(text: str, begin: str, end: str) -> str:
    return text.split(begin, 1)[1].split(end, 1)[0]


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _policy(page: str) -> str:
    parts: Sequence[tuple[str, str]] = (
        ("default-src", "'none'"),
        ("script-src", _digest(_between(page, "<script>", "</script>"))),
        ("style-src", _digest(_between(page, "<style>", "</style>"))),
        ("img-src", "data:"),
        ("connect-src", "'self'"),
        ("base-uri", "'none'"),
        ("form-action", "'none'"),
        ("frame-ancestors", "'none'"),
    )
    return "; ".join(" ".join(part) for part in parts)


def _page(name: str) -> tuple[bytes, Mapping[str, str]]:
    text = _read(f"{name}.html").replace("/*STYLE*/", STYLE + _read("pages.css"))
    text = text.replace("/*SCRIPT*/", _read(f"{name}.js"))
    return text.encode(), {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": _policy(text),
        "Cache-Control": "no-cache",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


_OVERVIEW, _PREDICT = _page("overview"), _page("predict")
_DESCRIPTION = (
    json.dumps(document(version("csdf-edge"))).encode(),
    {"Content-Type": "application/json", "Cache-Control": "no-cache"},
)

FILES: Mapping[str, tuple[bytes, Mapping[str, str]]] = {
    **dict.fromkeys(("/", "/csdf-edge", "/csdf-edge/"), _OVERVIEW),
    **dict.fromkeys(("/predict", "/predict/"), _PREDICT),
    "/openapi.json": _DESCRIPTION,
}
"""Path → the file's content and headers."""
