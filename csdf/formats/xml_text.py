"""Text in XML. Python's `xml.sax.saxutils` does the same, and imports half the internet for it."""

from __future__ import annotations

_TEXT = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_ATTRIBUTE = _TEXT | str.maketrans({'"': "&quot;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"})


def escaped(text: str) -> str:
    """`text` as it stands between tags."""
    return text.translate(_TEXT)


def quoted(text: str) -> str:
    """`text` as the value of an attribute, in double quotes."""
    return f'"{text.translate(_ATTRIBUTE)}"'
