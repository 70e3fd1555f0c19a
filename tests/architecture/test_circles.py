"""No module needs, at any depth and inside any function, a module that needs it."""

from graphlib import CycleError, TopologicalSorter

import pytest

from tests.architecture.source import Source, sources


@pytest.mark.parametrize("package", ["launcher", "nodes"])
def test_no_modules_of_a_package_import_each_other_in_a_circle(package: str) -> None:
    assert circle(sources(package)) == ()


def test_a_circle_inside_functions_is_found() -> None:
    first = Source("p/first.py", "import p.second")
    second = Source("p/second.py", "def f():\n    from p.first import g\n    return g()")
    assert set(circle((first, second))) == {"p.first", "p.second"}
    assert circle((first,)) == ()


def circle(modules: tuple[Source, ...]) -> tuple[str, ...]:
    """One circle of imports among the modules, if there is any; imports for types count too."""
    names = {_name(module): module for module in modules}
    needs = {
        name: {found for each in module.imports if (found := _module(each, names)) is not None}
        for name, module in names.items()
    }
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        return tuple(error.args[1])
    return ()


def _name(module: Source) -> str:
    return module.name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def _module(imported: str, names: dict[str, Source]) -> str | None:
    """The module that `from a.b import c` needs: `a.b.c` if that is one, else `a.b`."""
    parent = imported.rpartition(".")[0]
    return next((name for name in (imported, parent) if name in names), None)
