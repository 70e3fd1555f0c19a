"""The package `csdf` exports its API without importing anything."""

import subprocess
import sys

import pytest

import csdf


@pytest.mark.parametrize("name", csdf.__all__)
def test_every_exported_name_is_documented(name: str) -> None:
    thing = getattr(csdf, name)
    assert thing.__name__ == name
    assert thing.__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'csdf' has no attribute 'nothing'"):
        getattr(csdf, "nothing")  # noqa: B009 - mypy knows that there is no such name


def test_importing_the_package_imports_none_of_its_modules() -> None:
    code = "import csdf, sys; assert not {'numpy', 'csdf.errors', 'csdf.model'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
