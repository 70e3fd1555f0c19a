"""Agents that meter themselves by a plugin, shut in by the sandbox, and agents that cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from csdf_edge.testing import executor_models as models
from nodes.protocol.messages import Start
from tests.nodes.deploying import Launcher, line
from tests.nodes.speaker import AgentProcess, refusal_of

PLUGIN = """
from pathlib import Path
from nodes.host.energy.base import SensorFile

class Counting:
    description, period_s = "a file that counts", 60.0

    def __init__(self):
        self.file = SensorFile(Path(__file__).with_name("joules"))

    def read_j(self, now_s):
        return float(self.file.read())

    def close(self):
        self.file.close()

def broken():
    raise ValueError("no answer from the meter")
"""

POINTS = "[csdf_edge.meters]\ncounting = counting:Counting\nbroken = counting:broken\n"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an installed plugin, with the counter that it reads."""
    folder = tmp_path / "plugin"
    information = folder / "counting-1.dist-info"
    information.mkdir(parents=True)
    (folder / "counting.py").write_text(PLUGIN)
    (folder / "joules").write_text("100\n")
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 1\n")
    (information / "entry_points.txt").write_text(POINTS)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


def test_a_plugin_counts_the_joules_of_each_epoch_from_inside_the_sandbox(
    tmp_path: Path,
    start: Callable[..., AgentProcess],
    dial: Callable[..., Launcher],
    installed: Path,
) -> None:
    launcher = dial(start("--name", "a", "--meter", "counting").control)
    welcome = launcher.open_session()
    assert (welcome.meter, welcome.unmetered) == ("a file that counts", "")
    deployed = line(tmp_path / "models", models.classifier())
    launcher.upload(deployed.blobs)
    for epoch, (before, after) in enumerate([("100", "142"), ("200", ""), ("300", "301")], 1):
        (installed / "joules").write_text(before)
        launcher.deploy(deployed.deployment(epoch))
        launcher.say(Start(epoch))
        assert launcher.stats().energy_j == 0.0
        (installed / "joules").write_text(after)
        spent_j = launcher.stop(epoch).stats.energy_j
        assert spent_j == (int(after) - int(before) if after else None), "it had vanished"


def test_an_agent_without_a_sensor_says_why_it_measures_nothing(
    start: Callable[..., AgentProcess], dial: Callable[..., Launcher]
) -> None:
    welcome = dial(start("--meter", "none").control).open_session()
    assert (welcome.meter, welcome.unmetered) == ("", "it was started with --meter none")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("shelly", "no installed package has a meter of this name (installed: broken, counting)"),
        ("broken", "ValueError: no answer from the meter"),
    ],
)
def test_a_meter_that_was_asked_for_and_cannot_be_opened_is_a_refusal_to_start(
    tmp_path: Path, installed: Path, name: str, reason: str
) -> None:
    assert f"--meter {name}: {reason}" in refusal_of(tmp_path / "cache", "--meter", name)
