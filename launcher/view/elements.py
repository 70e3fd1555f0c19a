"""Elements of a page as values: written as HTML for files, and as JSON for the page in a browser.

The content of pages is decided here, on our side, and the browser only displays it. Text is escaped
in HTML, and becomes text nodes in the browser, so that no name can inject markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, TypeAlias

from nodes.protocol.fields import printable

Child: TypeAlias = "PageElement | str"

SVG = "http://www.w3.org/2000/svg"

_EMPTY = {"meta", "br"}
"""Elements that HTML writes without an end."""


@dataclass(frozen=True, slots=True)
class PageElement:
    """An element of HTML or, below `svg`, of SVG."""

    tag: str
    attributes: Mapping[str, str]
    children: tuple[Child, ...] = ()


def element(tag: str, *children: Child | None, **attributes: object) -> PageElement:
    """Return an element without the children and attributes that are None.

    Control characters in text are escaped. Underscores in attribute names become hyphens; `class_`
    is the attribute `class`.
    """
    written = {
        name.rstrip("_").replace("_", "-"): _number(value)
        for name, value in attributes.items()
        if value is not None
    }
    kept = (child for child in children if child is not None)
    shown = (printable(child, lines=True) if isinstance(child, str) else child for child in kept)
    return PageElement(tag, written, tuple(shown))


def _number(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def as_html(element: PageElement) -> str:
    """Return an element as HTML."""
    given = "".join(f' {name}="{escape(text)}"' for name, text in element.attributes.items())
    if element.tag in _EMPTY:
        return f"<{element.tag}{given}>"
    inner = "".join(
        escape(child, quote=False) if isinstance(child, str) else as_html(child)
        for child in element.children
    )
    return f"<{element.tag}{given}>{inner}</{element.tag}>"


def as_json(element: PageElement) -> list[Any]:
    """Return an element as JSON-like data: tag, attributes, children."""
    return [
        element.tag,
        dict(element.attributes),
        [child if isinstance(child, str) else as_json(child) for child in element.children],
    ]


def table(
    heads: Iterable[str],
    rows: Iterable[Iterable[Child | None]],
    *,
    label: str,
    **attributes: object,
) -> PageElement:
    """Return a table whose first column heads its rows, which scrolls if it is wider than the
    screen; `label` names it for those who do not see it."""
    head = element("tr", *(element("th", text, scope="col") for text in heads))
    body = [
        element("tr", *(_cell(index, child) for index, child in enumerate(row))) for row in rows
    ]
    inner = element("table", element("thead", head), element("tbody", *body), **attributes)
    return element("div", inner, class_="wide", tabindex="0", role="region", aria_label=label)


def _cell(index: int, child: Child | None) -> PageElement:
    return element("td", child) if index else element("th", child, scope="row")
