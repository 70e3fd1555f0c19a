"""The repository's Python files as syntax trees, for rules that no linter knows."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("cnn", "csdf", "partition", "ga", "nodes", "launcher")


@dataclass(frozen=True)
class Source:
    """One Python file; `name` is its path from the repository's root, with slashes."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.text, self.name)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of it."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def imports(self) -> tuple[str, ...]:
        """Every module that it imports, by `import`, `from … import` or `import_module("…")`."""
        found: list[str] = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.module is not None, f"{self.name}: relative imports hide the package"
                found += [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Call) and called(node) in {
                "importlib.import_module",
                "import_module",
                "__import__",
            }:
                found += [str(a.value) for a in node.args[:1] if isinstance(a, ast.Constant)]
        return tuple(found)

    @property
    def module(self) -> str:
        """The name under which others import it."""
        return self.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def imported_from(self, others: Iterable[Source]) -> set[str]:
        """The modules of `others` that it imports, wherever the import stands."""
        modules = {other.module for other in others}
        found = set()
        for name in self.imports:
            parent = name.rpartition(".")[0]
            found |= {name if name in modules else parent} & modules
        return found

    def uses(self, module: str) -> bool:
        """Whether it imports `module` or something in it."""
        return any(name == module or name.startswith(f"{module}.") for name in self.imports)

    @cached_property
    def calls(self) -> tuple[ast.Call, ...]:
        """Every call in it."""
        return tuple(node for node in self.nodes if isinstance(node, ast.Call))


def called(call: ast.Call) -> str:
    """What a call calls, as written: `np.random.default_rng`, `open`; empty if it is no name."""
    target = call.func
    parts: list[str] = []
    while isinstance(target, ast.Attribute):
        parts.append(target.attr)
        target = target.value
    if not isinstance(target, ast.Name):
        return ""
    return ".".join([target.id, *reversed(parts)])


def sources(*folders: str) -> tuple[Source, ...]:
    """All Python files under the folders, in order."""
    return tuple(one for folder in folders for one in _in_folder(folder))


@cache
def _in_folder(folder: str) -> tuple[Source, ...]:
    found = tuple(
        Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / folder).rglob("*.py"))
    )
    _READ.extend(found)
    return found


_READ: list[Source] = []
"""All files that were read."""


def forget_trees() -> None:
    """Drop what was parsed, which is made again where it is needed again."""
    for source in _READ:
        for name in ("tree", "nodes", "imports", "calls"):
            source.__dict__.pop(name, None)
