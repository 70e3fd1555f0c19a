"""The repository's Markdown files, and what tests need to find in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_LEFT_OUT = {"build", "dist", "node_modules"}
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)[^)]*\)")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def files() -> list[Path]:
    """Every Markdown file of ours."""
    return sorted(
        path
        for path in ROOT.rglob("*.md")
        if not any(part.startswith(".") or part in _LEFT_OUT for part in _relative(path).parts)
    )


def _relative(path: Path) -> Path:
    return path.relative_to(ROOT)


def name(path: Path) -> str:
    """A file's path from the repository's root."""
    return _relative(path).as_posix()


def links(path: Path) -> list[str]:
    """Targets of its links and pictures, code left out."""
    prose = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", path.read_text(encoding="utf-8")))
    return _LINK.findall(prose)


def blocks(path: Path, language: str) -> list[str]:
    """Its fenced blocks of one language."""
    found = _FENCE.findall(path.read_text(encoding="utf-8"))
    return [text for tag, text in found if tag == language]


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub makes of its headings."""
    prose = _FENCE.sub("", path.read_text(encoding="utf-8"))
    found = set()
    for heading in re.findall(r"^#+ (.+)$", prose, re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", re.sub(r"`", "", heading).lower())
        found.add(plain.strip().replace(" ", "-"))
    return found
