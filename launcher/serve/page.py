"""The page of a server: one file of HTML, style and script, which fetches what it shows.

The browser runs no script but this one, and asks no other server (its Content-Security-Policy). The
page itself says nothing about the cluster, so it needs no token; its data does.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from launcher.view.live_page import STYLE

PATHS = ("/", "/csdf-edge", "/csdf-edge/")
"""Where the page is."""

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


_PAGE = _read("page.html").replace("/*STYLE*/", STYLE).replace("/*SCRIPT*/", _read("page.js"))
BODY = _PAGE.encode()
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": _policy(_PAGE),
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
