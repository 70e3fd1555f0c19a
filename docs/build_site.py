"""Builds the documentation as a site that can be read without a network: `make docs`.

    python -m docs.build_site    # writes build/docs/index.html

The pages are the repository's own Markdown files, which GitHub shows as well, and the README is the
front page. This module copies them into a folder beside the output and rewrites their links: a link
to a page leads to that page of the site, a link to any other file to a copy of it. Sphinx makes
HTML of that folder. A link or an anchor that leads nowhere is an error, and so are a page that the
navigation lacks and a page of which a browser would fetch a part from another machine.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SITE, STAGED, CACHE = (ROOT / "build" / name for name in ("docs", "docs-source", "docs-cache"))

NAVIGATION: dict[str, tuple[str, ...]] = {
    "Start": (
        "README.md",
        "docs/install.md",
        "docs/running.md",
        "docs/python.md",
        "docs/serving.md",
        "docs/operate.md",
        "docs/service.md",
        "docs/observing.md",
        "docs/streaming.md",
        "docs/sources.md",
        "docs/sinks.md",
        "docs/plugins.md",
        "docs/tasks.md",
        "examples/README.md",
        "examples/digits/README.md",
        "deploy/README.md",
        "deploy/ansible/README.md",
        "deploy/image/README.md",
        "deploy/kubernetes/README.md",
        "docs/doctor.md",
    ),
    "Reference": ("docs/cluster-yaml.md", "docs/commands.md", "docs/models.md"),
    "Memory and speed": ("docs/strategies.md", "docs/measuring.md"),
    "Security": ("docs/security.md",),
    "How it works": (
        "docs/architecture.md",
        "docs/glossary.md",
        "docs/papers.md",
        "docs/decisions/README.md",
    ),
    "Measurements": (
        "docs/results.md",
        "docs/benchmarks.md",
        "docs/laboratory.md",
        "docs/status.md",
    ),
    "Dataflow graphs": ("docs/csdf.md", "docs/certificates.md"),
    "The project": ("CONTRIBUTING.md", "CHANGELOG.md"),
}
"""Heading → its pages. The front page comes first; decisions stand below their own page."""

MOVED = {
    "README.md": "index.md",
    "deploy/README.md": "agents-as-services.md",
    "examples/README.md": "examples.md",
    "examples/digits/README.md": "digits.md",
    "docs/decisions/README.md": "decisions/index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages that have another path in the site than below `docs/`."""

DECISIONS = "docs/decisions/README.md"
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
_CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_FETCHED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=\"(?:https?:)?//[^\"]*\"")


class SiteError(Exception):
    """A page or a link with which no site can be built."""


def pages() -> dict[str, str]:
    """Page in the repository → page in the site."""
    listed = [page for group in NAVIGATION.values() for page in group]
    return {page: MOVED.get(page, page.removeprefix("docs/")) for page in listed + decisions()}


def decisions() -> list[str]:
    """The pages of decisions, in the order of their numbers."""
    folder = (ROOT / DECISIONS).parent
    return sorted(path.relative_to(ROOT).as_posix() for path in folder.glob("[0-9]*.md"))


def stage(folder: Path) -> None:
    """Write all pages of the site into `folder`, and the files to which they link.

    Raises `SiteError` for a link to a file that is not there.
    """
    for page, place in pages().items():
        text = _relinked(page, (ROOT / page).read_text(encoding="utf-8"), folder)
        if page == "README.md":
            text += "".join(
                _toctree([pages()[each] for each in group], caption)
                for caption, group in NAVIGATION.items()
            )
        if page == DECISIONS:
            text += _toctree([Path(each).name for each in decisions()])
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text, encoding="utf-8")


def _toctree(places: list[str], caption: str | None = None) -> str:
    """A part of the navigation. A page cannot list itself: the front page is `self`."""
    names = ["self" if place == "index.md" else place.removesuffix(".md") for place in places]
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", "```{toctree}", *options, "", *names, "```", ""])


def _relinked(page: str, text: str, folder: Path) -> str:
    """The page's text with its relative links as they must be in the site."""

    def relinked(found: re.Match[str]) -> str:
        before, target, anchor, after = found.groups(default="")
        if re.match(r"[a-z]+:", target):
            return found[0]
        place = _place(page, target, folder)
        here = Path(pages()[page]).parent
        return f"{before}{os.path.relpath(place, here)}{anchor}{after}"

    parts = _CODE.split(text)  # every second part is code
    return "".join(
        part if number % 2 else _LINK.sub(relinked, part) for number, part in enumerate(parts)
    )


def _place(page: str, target: str, folder: Path) -> str:
    """Where in the site a page's link leads; other files than pages are copied there."""
    path = (ROOT / page).parent.joinpath(target).resolve()
    if path.is_dir():
        path /= "README.md"
    if not (path.is_file() and path.is_relative_to(ROOT)):
        raise SiteError(f"{page} links to {target}, which is no file of the repository")
    name = path.relative_to(ROOT).as_posix()
    if name in pages():
        return pages()[name]
    if path.suffix == ".md":
        raise SiteError(f"{page} links to {name}, which the navigation in docs/build_site.py lacks")
    copy = folder / "files" / name
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, copy)
    return f"files/{name}"


def build() -> int:
    """Build the site in `SITE`; returns Sphinx's exit code, and 1 too for what would be fetched."""
    from sphinx.application import Sphinx  # noqa: PLC0415 - `stage` is tested without it

    for folder in (SITE, STAGED, CACHE):  # a cached page would not repeat its warnings
        shutil.rmtree(folder, ignore_errors=True)
    stage(STAGED)
    settings = {
        "project": "csdf-edge",
        "html_title": "csdf-edge",
        "html_theme": "furo",
        "html_show_sphinx": False,
        "html_show_copyright": False,
        "html_copy_source": False,
        "extensions": ["myst_parser"],
        "myst_heading_anchors": 4,
    }
    app = Sphinx(
        str(STAGED), None, str(SITE), str(CACHE), "html",
        confoverrides=settings, status=None, warningiserror=True,
    )  # fmt: skip
    app.build()
    fetched = {
        (page.name, tag)
        for page in SITE.rglob("*.html")
        for tag in _FETCHED.findall(page.read_text(encoding="utf-8"))
    }
    for name, tag in sorted(fetched):
        sys.stderr.write(f"{name}: a browser would fetch this from another machine: {tag}\n")
    return app.statuscode or int(bool(fetched))


def main() -> int:
    """Entry point; returns the exit code."""
    try:
        code = build()
    except SiteError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if code == 0:
        sys.stdout.write(f"{SITE / 'index.html'}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
