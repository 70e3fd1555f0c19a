"""Patterns that betray a translation do not become more frequent in the product.

Docstrings, comments, the texts of errors and `--help`, and names count alike. A count may only
fall: a change that lowers one lowers its bound. What users read, the string literals, has none.
"""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.architecture.source import PACKAGES, Source, sources

PRODUCT = (*PACKAGES, "csdf_edge")

MOST = {
    r"(?<![Tt]here )\b(is|are|was|were) no (?!longer\b|more\b|less\b|other\b)": 3,
    r"\bof (its|their|his|your) own\b": 6,
    r"\bbesides?\b": 28,
    r"\b(go|goes|going|went) on\b": 8,
    r"\bso (many|long)\b": 2,
    r"\banew\b": 0,
    r", too[.,;:)]": 0,
    r"\b(is|are|was|were) there\b|\b(has|have) come\b": 0,
    r"\bgiven? up\b": 0,
    r"\b(told|heard|takers?|looks)\b": 46,
    r"\b(whoever|what stands|in vain|no news)\b": 0,
}
"""Pattern → its occurrences."""

SAID = (
    *MOST,
    r"\b(stands?|stood) (in|there|beside|behind)\b",
    r"\b(came|comes) (for|within|where|again)\b",
    r"\bhow many\b",
    r"\bthe longest that\b|\bthe most (that|which|connections)\b",
)
"""Patterns that no literal has."""

FRAGMENTS = 10
"""Docstrings that begin with a word that needs a subject before it."""


@cache
def prose(source: Source) -> str:
    """Return a file's text without line breaks, so that a pattern may span lines."""
    return " ".join(re.sub(r"^\s*#", "", line).strip() for line in source.text.splitlines())


@cache
def literals(source: Source) -> tuple[str, ...]:
    """Return the string literals that are not docstrings, with `{}` for expressions."""
    skipped = {id(n.value) for n in source.nodes if isinstance(n, ast.Expr)}
    found = []
    for node in source.nodes:
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(value) for value in node.values}
            filled = (v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
            found.append("".join(map(str, filled)))
        elif isinstance(node, ast.Constant) and id(node) not in skipped:
            found.append(str(node.value))
    return tuple(found)


@pytest.mark.parametrize("pattern", MOST)
def test_a_pattern_of_translated_prose_does_not_grow(pattern: str) -> None:
    found = [(s.name, hit[0]) for s in sources(*PRODUCT) for hit in re.finditer(pattern, prose(s))]
    assert len(found) <= MOST[pattern], found


@pytest.mark.parametrize("pattern", SAID)
def test_what_users_read_has_no_pattern_of_translated_prose(pattern: str) -> None:
    found = [
        (s.name, text)
        for s in sources(*PRODUCT)
        for text in literals(s)
        if re.search(pattern, text)
    ]
    assert not found


def test_docstrings_begin_with_their_subject() -> None:
    found = [
        (source.name, node.lineno)
        for source in sources(*PRODUCT)
        for node in source.nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if re.match(r"\s*(Of|Those|As|Who|What)\b", str(node.value.value))
    ]
    assert len(found) <= FRAGMENTS, found
