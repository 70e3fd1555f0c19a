"""Tables of texts, described once: printed on a console, and written into pages.

Commands print a table and lines below it, and write pages of a few paragraphs, pictures and a
table. Everything that is shown is text: it is escaped in pages, and control characters are escaped
on consoles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from rich.table import Table

from launcher.view.elements import PageElement, as_html, table

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:right;"
    "border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}"
    "svg{max-width:100%;height:auto}"
)


@dataclass(frozen=True, slots=True)
class RowTable:
    """The heads of a table's columns, and its rows of texts, of which the last may be missing.

    On a console, the first column and those whose heads are in `words` are aligned left, the others
    right. In a table `in_groups`, a line divides rows with another first text.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Sequence[str] = ()
    title: str | None = None
    caption: str | None = None
    in_groups: bool = False

    def on_console(self) -> Table:
        """Return the table for a console."""
        shown = Table(title=self.title, caption=self.caption, caption_justify="left")
        for index, head in enumerate(self.heads):
            is_left = index == 0 or head in self.words
            shown.add_column(head, justify="left" if is_left else "right")
        ends = [self.in_groups and one[0] != next_[0] for one, next_ in pairwise(self.rows)]
        for row, ends_group in zip(self.rows, [*ends, False], strict=True):
            shown.add_row(*row, end_section=ends_group)
        return shown

    def on_page(self, label: str) -> PageElement:
        """Return the table for a page; `label` names it for those who do not see it."""
        return table(self.heads, self.rows, label=label)


def picture_page(
    title: str, paragraphs: Iterable[str], pictures: Iterable[str], rows: RowTable
) -> str:
    """Return a page of one file that loads nothing; `pictures` are `<svg>` elements."""
    shown, plots = escape(title), "\n".join(pictures)
    texts = "\n".join(f"<p>{escape(text)}</p>" for text in paragraphs)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{shown}</title>\n'
        f"<style>{_STYLE}</style></head>\n<body><h1>{shown}</h1>\n"
        f"{texts}\n{plots}\n{as_html(rows.on_page(title))}\n</body></html>\n"
    )
