"""A matplotlib figure as an SVG element that stands in a page, the same for the same data."""

from __future__ import annotations

import io

import matplotlib as mpl
from matplotlib.figure import Figure


def as_svg(drawing: Figure) -> str:
    """Return the figure as text from `<svg` on, without a date and random identifiers."""
    stream = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "csdf-edge"}):
        drawing.savefig(stream, format="svg", metadata={"Date": None})
    text = stream.getvalue()
    return text[text.index("<svg") :]
