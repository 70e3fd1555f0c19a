"""Two whole emulated boards and an agent on x86-64, installed and used as the documents say.

`make test-arm64-board` runs this file in a network namespace. The tests follow one another: the
first installs what all others use.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
import pytest

from tests.arm64.boards import DISK, HERE, Board, Room, make_network
from tests.arm64.launches import ROOT, launch, model, stream_until_it_is_back, write_cluster
from tests.docs.markdown import blocks
from tests.launcher_runtime.clusters import wait_until_it_listens, write_network
from tests.upgrade.boards import BROKEN, make_wheel

pytestmark = pytest.mark.timeout(5400)

README = ROOT / "deploy" / "README.md"
TAKE_PREPARED = """
there=/opt/csdf-edge/versions/$version
sudo mkdir -p /opt/csdf-edge/versions
sudo mv /opt/csdf-edge/prepared $there
sudo sed -i "s:/opt/csdf-edge/prepared/:$there/:" $there/bin/pip*
"""
"""An environment of Python with the agent's requirements (environment.sh), in which `venv` and
`pip install -r` find them: an emulated board unpacks them in a quarter of an hour. It does so in
the test of upgrades.
"""

PC = "pc"
NETWORKS = ("digits", "squeezenet")
FIXTURES = sorted((ROOT / "tests/fixtures/models").glob("*.onnx"))
PIXELS = 99
"""A frame of 224 × 224 pixels takes QEMU a minute of MobileNetV2 and half an hour of ResNet152.
Xception needs an odd number of them."""


def cluster(
    room: Room, *names: str, node: Mapping[str, object] = MappingProxyType({}), **keys: object
) -> Path:
    """Write `cluster.yaml` with these nodes, or all; each has the keys of `node` too."""
    addresses = {board.name: board.address for board in room.boards.values()}
    addresses[PC] = f"tcp://{HERE}:5500"
    nodes = [{"name": name, "address": addresses[name], **node} for name in names or addresses]
    return write_cluster(room.folder, nodes, **keys)


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    make_network()
    made = Room(tmp_path_factory.mktemp("room"))
    for name in ("dist", "deploy"):
        (made.folder / name).symlink_to(ROOT / name)
    try:
        for board in made.boards.values():
            board.power_on()
        for board in made.boards.values():
            board.wait()
        yield made
    finally:
        for board in made.boards.values():
            board.cut_power()


@pytest.fixture(scope="module")
def left(room: Room) -> Board:
    return room.boards["left"]


@pytest.fixture(scope="module")
def installed(room: Room) -> Room:
    """Follow the commands of `deploy/README.md`: first those here, then those on each board."""
    cluster(room, model="onnx-wheel:squeezenet")
    here, there = blocks(README, "sh")[:2]
    names = " ".join(room.boards)
    room.shell(here.replace("jetson1 jetson2 jetson3 jetson4 jetson5", names))
    version, *lines = (line for line in there.splitlines() if "journalctl" not in line)
    script = "\n".join([version, TAKE_PREPARED, *lines])
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda name: room.on(name, script), room.boards))
    return room


@pytest.fixture(scope="module")
def with_pc(installed: Room) -> Iterator[Room]:
    """The boards with their agents, and one on this machine."""
    address = f"tcp://{HERE}:5500"
    options = ["--listen", address, "--name", PC, "--keys", "keys/pc", "--cache", "pc-cache"]
    agent = subprocess.Popen(
        [sys.executable, "-m", "nodes.cli", *options], stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, cwd=installed.folder,
    )  # fmt: skip
    try:
        wait_until_it_listens(address)
        yield installed
    finally:
        agent.terminate()
        agent.wait()


def agent_is(room: Room, name: str) -> dict[str, str]:
    """What systemd knows of a board's agent."""
    properties = "ActiveState,User,WatchdogUSec,MemoryMax,MainPID,NRestarts"
    said = room.on(name, f"systemctl show node-agent --property {properties}")
    return dict(line.split("=", 1) for line in said.splitlines())


def test_the_service_runs_as_its_unit_says(installed: Room) -> None:
    for name in installed.boards:
        found = agent_is(installed, name)
        assert (found["ActiveState"], found["User"]) == ("active", "csdf-edge")
        assert (found["WatchdogUSec"], found["NRestarts"]) == ("2min", "0")
        memory = int(installed.on(name, "awk '/MemTotal/ {print $2}' /proc/meminfo")) * 1024
        assert int(found["MemoryMax"]) == pytest.approx(0.8 * memory, rel=0.01)
        journal = installed.on(name, "sudo journalctl --unit node-agent --output cat")
        assert " ready: control tcp://0.0.0.0:5500" in journal
        assert "this agent can open every file of its user" not in journal  # Landlock works
        assert installed.on(name, "uname --machine") == "aarch64\n"


def test_the_doctor_finds_no_error(with_pc: Room) -> None:
    code, found = launch("doctor", str(cluster(with_pc, model="onnx-wheel:squeezenet")))
    assert code == 0, found["findings"]


@pytest.mark.parametrize("strategy", ["auto", "vertical"])
@pytest.mark.parametrize("name", NETWORKS)
def test_three_machines_compute_what_the_whole_network_does(
    with_pc: Room, name: str, strategy: str
) -> None:
    network, given = model(name, with_pc.folder)
    path = cluster(with_pc, model=network, input=given, strategy=strategy, frames=3)
    code, report = launch(str(path))
    assert code == 0, report
    assert report["max_relative_error"] <= 1e-4
    if strategy != "auto":
        assert len(report["nodes"]) == 3


def test_a_power_cut_in_a_stream_and_the_return(with_pc: Room, left: Board) -> None:
    network = write_network(with_pc.folder / "net.onnx", layers=9, channels=64)
    # An emulated board is so slow that it has layers only as long as its speed is believed.
    path = cluster(
        with_pc, node={"macs_per_s": "1G"}, model=str(network), strategy="sequential",
        objective="period", recovery={"adapt": False, "heartbeat_s": 20},
    )  # fmt: skip

    def cut_and_boot() -> None:
        left.cut_power()
        left.power_on()
        left.wait()

    stream_until_it_is_back(path, network, cut_and_boot)
    assert agent_is(with_pc, "left")["ActiveState"] == "active"


@pytest.mark.slow
def test_a_power_cut_in_an_upload_and_the_return(with_pc: Room, left: Board) -> None:
    network = str(smaller(ROOT / "tests/fixtures/models/ResNet50.onnx", with_pc.folder))
    path = cluster(with_pc, "left", model=network, input="random", frames=1, recovery=False)
    before = left.received_bytes()
    with subprocess.Popen(
        [sys.executable, "-c", "from csdf_edge.entry import launch; launch()", str(path)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as launching:  # fmt: skip
        while left.received_bytes() < before + 30_000_000:  # of 102 MB
            with pytest.raises(subprocess.TimeoutExpired):
                launching.wait(0.05)
        left.cut_power()
        assert launching.wait(300) != 0
    left.power_on()
    left.wait()
    code, report = launch(str(path))
    assert code == 0, report
    assert report["max_relative_error"] <= 1e-4


@pytest.mark.slow
def test_an_agent_that_hangs_is_ended_by_the_watchdog(installed: Room) -> None:
    before = agent_is(installed, "right")
    said = (
        "sudo timeout 300 journalctl --unit node-agent --follow --lines 0 --output cat 2>/dev/null"
    )
    installed.on(
        "right",
        f"sudo kill -STOP {before['MainPID']}\n"
        f"bash -c 'grep --max-count 1 \" ready: control\" < <({said})'",
    )
    found = agent_is(installed, "right")
    assert (found["ActiveState"], found["NRestarts"]) == ("active", "1")
    assert found["MainPID"] != before["MainPID"]


def smaller(path: Path, folder: Path) -> Path:
    """Write a network with frames of `PIXELS` × `PIXELS`.

    VGG16's first Gemm fixes their size, so the 3 × 3 values that are left before it are padded
    to the 7 × 7 that it takes; its weights are as before.
    """
    network = onnx.load(path)
    graph = network.graph
    for size in graph.input[0].type.tensor_type.shape.dim:
        if size.dim_value > 3:
            size.dim_value = PIXELS
    if path.stem == "VGG16":
        (after,) = (node for node in graph.node if node.input[0] == "max_pool2d_4")
        missing = onnx.numpy_helper.from_array(np.array([0] * 6 + [4, 4]), "missing")
        graph.initializer.append(missing)
        pad = onnx.helper.make_node("Pad", ["max_pool2d_4", "missing"], ["padded"])
        after.input[0] = "padded"
        graph.node.insert(list(graph.node).index(after), pad)
    onnx.save(network, folder / path.name)
    return folder / path.name


@pytest.mark.slow
@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_memory_is_what_was_predicted(installed: Room, path: Path) -> None:
    network = str(smaller(path, installed.folder))
    written = cluster(installed, "left", model=network, input="random", frames=1)
    code, report = launch(str(written))
    assert code == 0, report
    assert report["max_relative_error"] <= 1e-4
    (node,) = report["nodes"]
    predicted, peak = node["memory_predicted_bytes"], node["memory_measured_bytes"]
    with (DISK.parent / "memory.jsonl").open("a") as table:
        row = {"network": path.stem, "predicted": predicted, "peak": peak}
        table.write(json.dumps(row) + "\n")
    assert 0.9 <= predicted / peak <= 1.1


@pytest.mark.slow
def test_an_upgrade_and_the_return_from_a_broken_version(installed: Room) -> None:
    home = str(installed.folder / "home")
    path = cluster(installed, "left", "right", model="onnx-wheel:squeezenet", input="random")
    good = make_wheel(installed.folder, "0.2.0")
    code, said = launch("upgrade", str(path), "--wheel", str(good), HOME=home)
    assert code == 0, said
    assert said["upgraded"] == ["left", "right"]
    bad = make_wheel(installed.folder, "0.3.0", BROKEN)
    code, said = launch("upgrade", str(path), "--wheel", str(bad), HOME=home)
    assert (code, said["untouched"]) == (1, ["right"])
    (problem,) = said["problems"]
    assert problem["outcome"] == "it has its former version again, whose agent works"
    digest = hashlib.sha256(good.read_bytes()).hexdigest()[:12]
    for name in installed.boards:
        current = installed.on(name, "readlink /opt/csdf-edge/current")
        assert current == f"versions/0.2.0-{digest}\n"
