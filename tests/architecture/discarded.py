"""A mypy plugin: no call whose only use is to be iterated or entered is a statement by itself.

Such a call does nothing: a generator's body begins with the first step, and that of a context
manager with `with`. mypy knows the type of every expression, so its answer holds for methods too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from mypy.checker import TypeChecker
from mypy.nodes import CallExpr, ExpressionStmt, MypyFile, Node
from mypy.plugin import FunctionContext, MethodContext, Plugin
from mypy.types import Instance, Type, get_proper_type

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


@lru_cache(maxsize=8)
def statements(tree: MypyFile) -> frozenset[CallExpr]:
    """Return the calls of a module that are statements."""
    return frozenset(called_in(tree))


def check(context: FunctionContext | MethodContext) -> Type:
    """Report a call whose result is lazy and thrown away."""
    kind = get_proper_type(context.default_return_type)
    if isinstance(kind, Instance) and kind.type.fullname in LAZY:
        assert isinstance(context.api, TypeChecker)
        if context.context in statements(context.api.tree):
            context.api.fail(f"The {kind.type.name} of this call is thrown away", context.context)
    return context.default_return_type


class Discarded(Plugin):
    """Checks every call of a function or a method."""

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type]:
        return check

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type]:
        return check


def plugin(version: str) -> type[Plugin]:
    """Return the plugin; mypy calls this."""
    return Discarded
