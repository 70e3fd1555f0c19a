"""Whatever becomes of a laboratory, `down` leaves nothing of it; and one without root's means."""

from __future__ import annotations

import json
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

pytestmark = pytest.mark.alone

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
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    told = capsys.readouterr()
    assert ended.value.code == 0, told.err
    return told.out


@pytest.mark.slow
@pytest.mark.namespaces
def test_from_up_to_down_on_the_command_line(
    emulated: None, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = json.loads(subprocess.check_output(command("up", str(file), "--strict", "--json")))
    assert made["mode"] == "emulated devices"
    assert Path(made["cluster"]).exists()
    assert len(left_of(NAME)) > 10
    paused = said(capsys, "fault", "pause", "node1", "--lab", NAME, "--json")
    assert json.loads(paused)["fault"] == "pause"
    seen = json.loads(said(capsys, "status", NAME, "--json"))
    assert [device["used"]["frozen"] for device in seen["devices"]] == [True, False]
    told = said(capsys, "status", NAME).splitlines()
    assert told[0] == f"laboratory '{NAME}': emulated devices"
    assert "paused" in told[2]
    assert "8 Mbit/s" in told[2]
    gone = json.loads(said(capsys, "down", NAME, "--json"))
    assert (gone["removed"], gone["processes"], gone["mounts"]) == (NAME, 2, 1)
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
def test_an_agent_that_cannot_start_is_told_of_and_all_is_removed(emulated: None) -> None:
    tight = CONFIG.model_copy(update={"devices": (DeviceConfig(memory=8_000_000),)})
    with pytest.raises(LabError, match="the agent of 'node1' has ended"):
        Lab(tight).up()
    assert left_of(NAME) == set()


@pytest.mark.slow
def test_without_the_means_agents_are_plain_processes_and_called_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = tmp_path / machine.base().name
    with Lab(CONFIG, plain=True, base=base) as lab:
        seen = lab.status()
        assert seen.mode == "plain processes on loopback, NOT emulated devices"
        assert seen.missing == ("it was asked for plain processes",)
        assert [device.alive for device in seen.devices] == [True, True]
        assert all(address.startswith("tcp://127.0.0.1:") for address in lab.addresses.values())
        lab.pause("node1")
        (pid,) = seen["node1"].processes
        assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        lab.resume("node1")
        lab.kill("node2")
        assert not lab.status()["node2"].alive
        lab.restart("node2")
        assert lab.status()["node2"].alive
        with pytest.raises(BadInputError, match="of plain processes"):
            lab.cut("node1")
    assert not base.exists()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.slow
@pytest.mark.namespaces
def test_what_is_missing_is_said_and_need_not_be_done_without(emulated: None, file: Path) -> None:
    """As root in a container often is: without the rights to make namespaces."""
    without = ["setpriv", "--bounding-set=-net_admin,-sys_admin"]
    made = subprocess.check_output([*without, *command("up", str(file), "--json")])
    said = json.loads(made)
    assert said["mode"].startswith("plain processes")
    assert said["missing"][0].startswith("network namespaces: ip netns add")
    assert down(NAME).processes
    refused = [*without, *command("up", str(file), "--strict")]
    ended = subprocess.run(refused, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "boards cannot be emulated here: network namespaces: " in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["up", "missing.yaml"], "lab: missing.yaml: there is no such file"),
        (["status", "nosuch"], "lab: no laboratory 'nosuch' is up"),
        (["fault", "slow", "node1", "--lab", "nosuch"], "lab: no laboratory 'nosuch' is up"),
        (["fault", "explode", "node1"], "'explode' is not one of"),
    ],
)
def test_a_users_mistake_is_a_sentence_and_exit_code_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
