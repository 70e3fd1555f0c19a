"""Whatever becomes of a laboratory, `down` leaves nothing of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.lab import DeviceConfig, Lab, LabConfig, LabError, down, machine
from benchmarks.lab.cli import main
from launcher.errors import BadInputError
from tests.lab.boards import left_of

NAME = f"u{os.getpid() % 10**7}"
CONFIG = LabConfig(
    name=NAME,
    devices=(DeviceConfig(cpu=0.5, memory=10**8, link=1e6, disk=10**7), DeviceConfig(cpu=0.5)),
)


@pytest.fixture
def emulated() -> Iterator[None]:
    missing = machine.look(CONFIG).missing
    if missing:
        pytest.skip(f"boards cannot be emulated here: {'; '.join(missing)}")
    assert left_of(NAME) == set()
    yield
    down(NAME)
    assert left_of(NAME) == set()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.lab", *arguments]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lab.yaml"
    path.write_text(
        f"name: {NAME}\ndevices:\n"
        "- {cpu: 0.5, memory: 100MB, link: 1MB/s, disk: 10MB}\n- {cpu: 0.5}\n"
    )
    return path


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command prints; it must end with 0."""
    code = main(list(arguments))
    told = capsys.readouterr()
    assert code == 0, told.err
    return told.out


@pytest.mark.slow
@pytest.mark.namespaces
def test_from_up_to_down_on_the_command_line(
    emulated: None, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = subprocess.check_output(command("up", str(file)), text=True)
    assert Path(made.splitlines()[-1].removeprefix("launch ")).exists()
    assert len(left_of(NAME)) > 10
    assert said(capsys, "fault", "pause", "node1", "--lab", NAME) == "node1: pause\n"
    told = said(capsys, "status", NAME).splitlines()
    assert told[0] == f"laboratory '{NAME}'"
    assert "paused" in told[2]
    assert "8 Mbit/s" in told[2]
    assert "alive" in told[3]
    gone = said(capsys, "down", NAME)
    assert gone.startswith(f"removed '{NAME}': 2 processes, ")
    assert "1 mounts" in gone
    assert left_of(NAME) == set()
    assert said(capsys, "down", NAME) == f"there is no laboratory '{NAME}'\n"


@pytest.mark.slow
@pytest.mark.namespaces
def test_what_a_killed_up_has_left_is_removed(emulated: None, file: Path) -> None:
    with subprocess.Popen(command("up", str(file))) as making:
        while not any("nodes.cli" in trace for trace in left_of(NAME)):
            assert making.poll() is None
        making.kill()
    assert left_of(NAME)
    with pytest.raises(BadInputError, match="is there already"):
        Lab(CONFIG).up()
    down(NAME)
    assert left_of(NAME) == set()


@pytest.mark.slow
@pytest.mark.namespaces
def test_agents_that_died_and_a_lost_state_file_do_not_keep_it(emulated: None) -> None:
    made = Lab(CONFIG)
    made.up()
    for device in made.status(0.0).devices:
        for pid in device.processes:
            os.kill(pid, signal.SIGKILL)
    (made.layout.folder / "state.json").unlink()
    with pytest.raises(BadInputError, match="no laboratory"):
        Lab.attach(NAME)
    down(NAME)
    assert left_of(NAME) == set()


@pytest.mark.slow
@pytest.mark.namespaces
def test_an_agent_that_cannot_start_is_reported_and_all_is_removed(emulated: None) -> None:
    tight = CONFIG.model_copy(update={"devices": (DeviceConfig(memory=8_000_000),)})
    with pytest.raises(LabError, match="the agent of 'node1' has ended"):
        Lab(tight).up()
    assert left_of(NAME) == set()


@pytest.mark.slow
@pytest.mark.namespaces
def test_what_is_missing_is_said(emulated: None, file: Path) -> None:
    """As root in a container often is: without the rights to make namespaces."""
    without = ["setpriv", "--bounding-set=-net_admin,-sys_admin"]
    refused = [*without, *command("up", str(file))]
    ended = subprocess.run(refused, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "boards cannot be emulated here: network namespaces: " in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["up", "missing.yaml"], "lab: missing.yaml: there is no such file"),
        (["status", "nosuch"], "lab: no laboratory 'nosuch' is up"),
        (["fault", "slow", "node1", "--lab", "nosuch"], "lab: no laboratory 'nosuch' is up"),
    ],
)
def test_a_users_mistake_is_a_sentence_and_exit_code_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert sentence in capsys.readouterr().err
