"""What a program may import from csdf-edge."""

import inspect
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from pydantic import BaseModel

import csdf_edge

ROOT = Path(__file__).parents[2]

SNAPSHOT = Path(__file__).with_name("public.txt")
"""`python -m tests.csdf_edge.test_public` writes it anew, for a change of the API that is meant."""


def signatures() -> str:
    lines = []
    for name in csdf_edge.__all__:
        thing = getattr(csdf_edge, name)
        is_error = inspect.isclass(thing) and issubclass(thing, Exception)
        known = callable(thing) and not is_error
        shown = inspect.signature(thing) if known else ""
        if inspect.isclass(thing) and issubclass(thing, BaseModel):  # its schema has the types
            shown = f"({', '.join(thing.model_fields)})"
        lines.append(f"{name}{shown}\n")
    return "".join(lines)


def test_the_names_and_signatures_are_those_that_were_published() -> None:
    assert signatures() == SNAPSHOT.read_text(encoding="utf-8")


def test_everything_public_is_documented() -> None:
    for name in csdf_edge.__all__:
        if name != "__version__":
            assert inspect.getdoc(getattr(csdf_edge, name)), name


def test_the_version_is_the_installed_one() -> None:
    assert csdf_edge.__version__ == version("csdf-edge")


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(csdf_edge, "nothing")


def test_importing_it_imports_nothing_else_of_ours() -> None:
    code = (
        "import csdf_edge, csdf_edge.entry, sys; "
        "assert not {'cnn', 'csdf', 'launcher', 'nodes', 'numpy', 'email'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


if __name__ == "__main__":
    SNAPSHOT.write_text(signatures(), encoding="utf-8")
