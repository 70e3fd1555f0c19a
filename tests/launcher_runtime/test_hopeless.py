"""What waiting cannot mend ends a launch at once, with the sentence that says what to do."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.commands.make_keys import make_keys
from nodes.protocol.messages import PROTOCOL, Refused
from tests.launcher_runtime.clusters import daemons, foreign_agent, wait_until_it_listens

pytestmark = pytest.mark.slow

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


def launch(
    folder: Path, addresses: dict[str, str], *lines: str
) -> subprocess.CompletedProcess[str]:
    for address in addresses.values():
        wait_until_it_listens(address)
    nodes = [f"- {{name: {name}, address: '{address}'}}" for name, address in addresses.items()]
    text = [f"model: {DIGITS / 'digits.onnx'}", "frames: 2", "strategy: sequential"]
    (folder / "cluster.yaml").write_text("\n".join([*text, *lines, "nodes:", *nodes]))
    command = (sys.executable, "-m", "launcher.commands.launch", str(folder / "cluster.yaml"))
    return subprocess.run(command, capture_output=True, text=True, check=False)


def refused_at_once(done: subprocess.CompletedProcess[str], sentence: str) -> None:
    assert done.returncode == 2, done.stderr
    assert "waiting for" not in done.stderr
    assert sentence in done.stderr.splitlines()[-1]


def test_a_key_that_is_not_admitted(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    make_keys(keys, {"a": "tcp://127.0.0.1:5500"})
    theirs = tmp_path / "theirs"
    shutil.copytree(keys / "a", theirs / "a")
    (theirs / "a" / "launchers" / "launcher.pub").unlink()
    with daemons(("a",), tmp_path / "cache", keys=theirs) as started:
        addresses = {name: address for name, (address, _) in started.items()}
        refused_at_once(launch(tmp_path, addresses, "keys: keys"), "does not admit this launcher's")
        refused_at_once(launch(tmp_path, addresses), "requires a key, and this launcher uses none")


@pytest.mark.alone
def test_an_agent_without_keys(tmp_path: Path) -> None:
    make_keys(tmp_path / "keys", {"a": "tcp://127.0.0.1:5500"})
    with daemons(("a",), tmp_path / "cache") as started:
        addresses = {name: address for name, (address, _) in started.items()}
        refused_at_once(launch(tmp_path, addresses, "keys: keys"), "uses no keys: start its agent")


@pytest.mark.parametrize("protocol", [1, PROTOCOL + 7])
def test_another_protocol(tmp_path: Path, protocol: int) -> None:
    with foreign_agent(Refused("another version", protocol)) as address:
        refused_at_once(launch(tmp_path, {"a": address}), f"speaks protocol {protocol}")


def test_all_of_several_nodes_are_named(tmp_path: Path) -> None:
    answer = Refused("another version", 1)
    with foreign_agent(answer) as one, foreign_agent(answer) as other:
        done = launch(tmp_path, {"a": one, "b": other})
    refused_at_once(done, "node 'a'")
    refused_at_once(done, "node 'b'")
