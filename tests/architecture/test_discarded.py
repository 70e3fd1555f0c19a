"""No call whose only use is to be iterated, entered or bound is a statement of its own.

Such a call does nothing: a generator's body begins with the first step, and that of a context
manager with `with`. mypy knows the type of every expression, so its answer holds for methods, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mypy import build
from mypy.main import process_options
from mypy.nodes import CallExpr, ExpressionStmt, Node
from mypy.types import Instance, get_proper_type

from tests.architecture.source import PACKAGES, ROOT

LAZY = {
    "typing.Iterator",
    "typing.Generator",
    "typing.AsyncIterator",
    "typing.AsyncGenerator",
    "contextlib.AbstractContextManager",
    "contextlib.AbstractAsyncContextManager",
    "contextlib._GeneratorContextManager",
    "contextlib._AsyncGeneratorContextManager",
}
"""Types of what a call has not done yet."""


PARTS = ("defs", "items", "func", "body", "bodies", "handlers", "else_body", "finally_body")
"""Where mypy's syntax trees have the statements of a definition or of another statement."""


def called_in(part: object) -> Iterator[CallExpr]:
    """Yield the calls that are statements, at any depth."""
    if isinstance(part, list):
        for each in part:
            yield from called_in(each)
    elif isinstance(part, ExpressionStmt):
        if isinstance(part.expr, CallExpr):
            yield part.expr
    elif isinstance(part, Node):
        for name in PARTS:
            yield from called_in(getattr(part, name, None))


def discarded(*given: str) -> list[str]:
    """Return where the result of a lazy call is thrown away, in these packages or files."""
    arguments = ["--config-file", str(ROOT / "pyproject.toml"), "--no-incremental", *given]
    files, options = process_options(arguments)
    options.export_types = options.preserve_asts = True
    result = build.build(files, options)
    assert not result.errors, result.errors
    names = {file.module for file in files}
    found = []
    for name in sorted(names):
        tree = result.graph[name].tree
        assert tree is not None, name
        for call in called_in(tree):
            kind = get_proper_type(result.types.get(call))
            if isinstance(kind, Instance) and kind.type.fullname in LAZY:
                found.append(f"{name}, line {call.line}: its {kind.type.name} is thrown away")
    return found


MISTAKES = """
from collections.abc import Iterator
from contextlib import contextmanager

class Waiter:
    def wait(self) -> Iterator[int]:
        yield 1

@contextmanager
def opened() -> Iterator[int]:
    yield 1

def mistaken(waiter: Waiter) -> None:
    waiter.wait()
    opened()
    iter([1])

def right(waiter: Waiter) -> None:
    for _ in waiter.wait():
        pass
    with opened():
        pass
"""


def test_the_rule_finds_what_it_is_for(tmp_path: Path) -> None:
    path = tmp_path / "mistakes.py"
    path.write_text(MISTAKES)
    lines = [found.split(":")[0] for found in discarded(str(path))]
    assert lines == [f"mistakes, line {number}" for number in (14, 15, 16)]


@pytest.mark.slow
def test_no_generator_and_no_context_manager_is_called_in_vain() -> None:
    packages = [word for name in (*PACKAGES, "csdf_edge") for word in ("--package", name)]
    assert discarded(*packages) == []
