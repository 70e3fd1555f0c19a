"""Patterns that betray a translation do not become more frequent in the product.

Docstrings, comments, the texts of errors and `--help`, and names count alike. A count may only
fall: a change that lowers one lowers its bound.
"""

from __future__ import annotations

import ast
import re

import pytest

from tests.architecture.source import PACKAGES, Source, sources

PRODUCT = (*PACKAGES, "csdf_edge")

MOST = {
    r"(?<![Tt]here )\b(is|are|was|were) no (?!longer\b|more\b|less\b|other\b)": 17,
    r"\bof (its|their|his|your) own\b": 16,
    r"\bbesides?\b": 49,
    r"\b(go|goes|going|went) on\b": 21,
    r"\bso (many|long)\b": 4,
    r"\banew\b": 2,
    r", too[.,;:)]": 0,
    r"\b(is|are|was|were) there\b|\b(has|have) come\b": 11,
    r"\bgiven? up\b": 7,
    r"\b(told|heard|takers?|looks)\b": 48,
    r"\b(whoever|what stands|in vain|no news)\b": 1,
}
"""Pattern → its occurrences."""

FRAGMENTS = 10
"""Docstrings that begin with a word that needs a subject before it."""


def prose(source: Source) -> str:
    """Return a file's text without line breaks, so that a pattern may span lines."""
    return " ".join(re.sub(r"^\s*#", "", line).strip() for line in source.text.splitlines())


@pytest.mark.parametrize("pattern", MOST)
def test_a_pattern_of_translated_prose_does_not_grow(pattern: str) -> None:
    found = [(s.name, hit[0]) for s in sources(*PRODUCT) for hit in re.finditer(pattern, prose(s))]
    assert len(found) <= MOST[pattern], found


def test_docstrings_begin_with_their_subject() -> None:
    found = [
        (source.name, node.lineno)
        for source in sources(*PRODUCT)
        for node in source.nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if re.match(r"\s*(Of|Those|As|Who|What)\b", str(node.value.value))
    ]
    assert len(found) <= FRAGMENTS, found
