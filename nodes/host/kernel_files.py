"""Reads the small files in which the kernel reports words, numbers and tables (/proc, /sys).

What cannot be read is empty: a kernel lacks files for what a machine does not have.
"""

from __future__ import annotations

from pathlib import Path


def text_of(path: Path) -> str:
    """Return a file's text without space around it; empty if it cannot be read."""
    try:
        return path.read_text("ascii", "replace").strip()
    except OSError:
        return ""


def number_of(path: Path) -> int:
    """Return the whole number in a file; 0 if there is none."""
    text = text_of(path)
    return int(text) if text.isdigit() else 0


def table_of(path: Path) -> dict[str, int]:
    """Return a file's lines of a name and a number as a mapping."""
    lines = (line.split() for line in text_of(path).splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}
