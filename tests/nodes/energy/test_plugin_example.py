"""The meter of docs/plugins.md is installed, is opened by its name, and passes the contract."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodes.host.energy.base import GROUP, MeterError
from nodes.host.energy.opening import open_meter
from tests.docs import markdown, plugin

ROOT = Path(__file__).parents[3]
MODULE, TESTS = (block for block in markdown.blocks(plugin.PAGE, "python") if "PlugMeter" in block)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    module = MODULE.replace("/run/plug", str(tmp_path))
    yield from plugin.installed(tmp_path, monkeypatch, "csdf-plug", module, GROUP)


def test_it_is_opened_by_its_name(installed: Path) -> None:
    (installed / "joules").write_text("12.5\n")
    meter, unmetered = open_meter("plug")
    assert meter is not None
    assert (meter.read_j(0.0), unmetered) == (12.5, "")
    meter.close()


def test_without_its_file_the_agent_refuses_to_start_in_a_sentence(installed: Path) -> None:
    with pytest.raises(MeterError, match=r"--meter plug: FileNotFoundError: .*joules"):
        open_meter("plug")


def test_its_tests_pass(installed: Path) -> None:
    (installed / "test_plug.py").write_text(TESTS)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_plug.py"],
        cwd=installed, env={"PYTHONPATH": f"{installed}:{ROOT}", "PATH": "/usr/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    assert "passed" in ran.stdout
