"""A word means one thing: no two classes of the product share a public name."""

import ast
from collections import defaultdict

from tests.architecture.source import PACKAGES, sources


def test_no_two_classes_share_a_public_name() -> None:
    defined = defaultdict(list)
    for source in sources(*PACKAGES):
        for statement in source.tree.body:
            if isinstance(statement, ast.ClassDef) and not statement.name.startswith("_"):
                defined[statement.name].append(source.name)
    assert {name: files for name, files in defined.items() if len(files) > 1} == {}
