"""The committed figures are what their script draws today, and show what the text says of them."""

import subprocess
import sys
from pathlib import Path

import pytest

FIGURES = Path(__file__).parents[2] / "docs" / "figures"
COMMITTED = sorted(FIGURES.glob("*.svg"))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("figures")
    command = [sys.executable, str(FIGURES / "draw.py"), "--output", str(folder)]
    subprocess.run(command, check=True, timeout=60)
    return folder


def test_the_script_draws_all_figures_and_no_other(drawn: Path) -> None:
    assert [path.name for path in COMMITTED] == sorted(path.name for path in drawn.iterdir())


@pytest.mark.parametrize("figure", COMMITTED, ids=lambda path: path.name)
def test_a_figure_is_what_the_script_draws(figure: Path, drawn: Path) -> None:
    assert figure.read_text(encoding="utf-8") == (drawn / figure.name).read_text(encoding="utf-8")


def test_the_overview_shows_that_pipelining_halves_the_period() -> None:
    text = (FIGURES / "overview.svg").read_text(encoding="utf-8")
    assert "a result every 8 s" in text
    assert "a result every 4 s" in text
