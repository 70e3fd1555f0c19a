"""What docstrings refer to as `package.module.name` is defined there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.source import PACKAGES, ROOT

REFERENCE = re.compile(rf"`((?:{'|'.join(PACKAGES)}|benchmarks|tests)(?:\.\w+)+)`")
FOLDERS = (*PACKAGES, "benchmarks", "tests")


def references() -> Iterator[tuple[str, str]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            where = str(path.relative_to(ROOT))
            for found in REFERENCE.findall(path.read_text(encoding="utf-8")):
                yield where, found


def is_defined(reference: str) -> bool:
    """Whether a module, or a name in one, is defined where this says; imported is not defined."""
    parts = reference.split(".")
    for count in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:count])
        if place.is_dir():
            path = place / "__init__.py"
            return count == len(parts) or parts[count] in path.read_text(encoding="utf-8")
        if (path := place.with_suffix(".py")).exists():
            tree: ast.AST = ast.parse(path.read_text(encoding="utf-8"))
            for name in parts[count:]:
                inner = _definition(tree, name)
                if inner is None:
                    return False
                tree = inner
            return True
    return False


def _definition(scope: ast.AST, name: str) -> ast.AST | None:
    """Where a name is defined in a module, or in a class, as an attribute of `self` too."""
    for node in getattr(scope, "body", []):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() if node.name == name:
                return node
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
                if name in names:
                    return node
    own = ast.walk(scope) if isinstance(scope, ast.ClassDef) else ()
    stored = (n for n in own if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
    return next((node for node in stored if node.attr == name), None)


def test_every_reference_is_to_where_the_name_is_defined() -> None:
    found = list(references())
    assert len(found) > 200
    assert not [(where, name) for where, name in found if not is_defined(name)]


@pytest.mark.parametrize(
    ("reference", "known"),
    [
        ("launcher.run.runtime.Frames", True),
        ("launcher.run.runner.Frames", False),
        ("csdf.buffers.storage.Storage.work", True),
        ("csdf.buffers.storage.Storage.play", False),
        ("nodes.core", True),
        ("nodes.gone", False),
    ],
)
def test_an_imported_name_is_not_defined_there(reference: str, known: bool) -> None:
    assert is_defined(reference) is known
