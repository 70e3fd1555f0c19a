"""mypy refuses calls of generators and of context managers that are statements by themselves."""

from __future__ import annotations

from pathlib import Path

from mypy import api

from tests.architecture.source import ROOT

MISTAKES = """
from collections.abc import Callable, Iterator
from contextlib import contextmanager

class Waiter:
    def __init__(self, given: Callable[[], Iterator[int]]) -> None:
        self.given = given

    def wait(self) -> Iterator[int]:
        yield 1

@contextmanager
def opened() -> Iterator[int]:
    yield 1

def mistaken(waiter: Waiter, given: Callable[[], Iterator[int]]) -> None:
    waiter.wait()
    opened()
    iter([1])
    given()
    waiter.given()

def right(waiter: Waiter) -> None:
    for _ in waiter.wait():
        pass
    with opened():
        pass
"""


def test_what_a_lazy_call_would_do_is_not_thrown_away(tmp_path: Path) -> None:
    path = tmp_path / "mistakes.py"
    path.write_text(MISTAKES)
    config = str(ROOT / "pyproject.toml")
    found, _, code = api.run(["--config-file", config, "--no-incremental", str(path)])
    assert code == 1
    lines = [line.split(":")[1] for line in found.splitlines() if "is thrown away" in line]
    assert lines == [str(number) for number in range(17, 22)], found
