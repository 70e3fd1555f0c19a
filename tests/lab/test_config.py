"""What lab.yaml may say, and the sentence for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.lab import config
from benchmarks.lab.cluster_file import cluster, text
from benchmarks.lab.config import DeviceConfig, LabConfig, boards
from launcher.config.load import load_cluster
from launcher.config.source import parse_source
from launcher.errors import BadInputError
from tests.docs import markdown
from tests.lab.layouts import layout

EXAMPLE = markdown.ROOT / "benchmarks" / "lab" / "example.yaml"
DOCUMENT = markdown.ROOT / "docs" / "laboratory.md"


def read(written: str) -> LabConfig:
    return config.check(parse_source(written, "lab.yaml"))


def test_each_board_is_a_line_and_takes_the_rest_from_the_defaults() -> None:
    found = boards(
        read(
            """
            defaults: {board: cpu, cpu: 0.3, memory: 1GB, link: 1Gbit/s}
            devices:
              - {count: 2}
              - {name: slow, cpu: 0.1, link: 100Mbit/s}
              - {name: pair, count: 2, board: accelerator, memory: 64MiB, disk: 32MB}
            """
        )
    )
    usual = {"board": "cpu", "cpu": 0.3, "memory": 10**9, "link": 125e6, "disk": None}
    pair = {**usual, "board": "accelerator", "memory": 64 << 20, "disk": 32 * 10**6}
    assert found == (
        DeviceConfig(name="node1", **usual),
        DeviceConfig(name="node2", **usual),
        DeviceConfig(name="slow", **{**usual, "cpu": 0.1, "link": 12.5e6}),
        DeviceConfig(name="pair1", **pair),
        DeviceConfig(name="pair2", **pair),
    )


def test_a_number_of_devices_is_so_many_by_the_defaults() -> None:
    found = boards(read("devices: 3"))
    assert [one.name for one in found] == ["node1", "node2", "node3"]
    assert {one.board for one in found} == {"accelerator"}
    assert {(one.memory, one.link) for one in found} == {(None, None)}


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("- devices", "lab.yaml, line 1: must be a mapping with the key"),
        ("name: x", "the key 'devices' is missing"),
        ("devices: 0", "devices[0].count: must be at least 1, not 0"),
        ("devices: 251", "devices[0].count: must be at most 250, not 251"),
        ("devices: [{count: 200}, {count: 51}]", "devices: 251 devices are more than the 250"),
        ("devices: [{name: a}, {name: a}]", "devices: 'a' is the name of two devices"),
        ("devices: [{name: node2}, {}]", "devices: 'node2' is the name of two devices"),
        ("devices: [{name: a.b}]", "devices[0].name: 'a.b' is no name for a device"),
        ("devices: [{cpus: 1}]", "devices[0].cpus: unknown key; did you mean 'cpu'?"),
        ("devices: [{cpu: 0}]", "devices[0].cpu: must be a number of cores from 0.001 on, not 0"),
        ("devices: [{link: 100}]", "devices[0].link: must be a rate such as 1Gbit/s"),
        ("devices: [{board: gpu}]", "devices[0].board: must be 'accelerator' or 'cpu'"),
        ("devices: [{memory: lots}]", "devices[0].memory: must be a size such as 4GB"),
        ("devices: 1\nname: Lab", "line 2, name: 'Lab' is no name for a laboratory"),
        ("devices: 1\ndefaults: {name: x}", "line 2, defaults.name: unknown key"),
    ],
)
def test_a_mistake_is_one_sentence_that_says_where(written: str, sentence: str) -> None:
    with pytest.raises(BadInputError) as error:
        read(written)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_the_cluster_that_is_written_is_one_that_launch_reads(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"")
    made = read(
        f"""
        devices: [{{memory: 1GB, link: 100Mbit/s, cpu: 0.5}}, {{board: cpu}}]
        cluster: {{model: {{path: {tmp_path / "net.onnx"}, name: cats}}}}
        """
    )
    file = tmp_path / "elsewhere" / "cluster.yaml"
    file.parent.mkdir()
    file.write_text(text(layout(made, tmp_path)))
    found = load_cluster(file)
    assert found.model == str(tmp_path / "net.onnx")
    one, two = found.config.nodes
    assert (one.address, one.memory, one.link) == ("tcp://10.78.9.1:5500", 10**9, 12.5e6)
    assert (one.accelerator, two.accelerator) == (True, False)
    assert (one.macs_per_s, two.macs_per_s) == (0.5 * 2e10, 0.2 * 2e10)
    assert (two.address, two.memory, two.link) == ("tcp://10.78.9.2:5500", None, None)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("{nodes: []}", "cluster.nodes: the laboratory's own devices are the nodes"),
        ("{modle: x}", "modle: unknown key; did you mean 'model'?"),
        ("{frames: 0}", "frames: must be at least 1"),
    ],
)
def test_what_launch_would_not_take_is_refused(given: str, sentence: str, tmp_path: Path) -> None:
    made = read(f"devices: 1\ncluster: {given}")
    with pytest.raises(BadInputError, match=sentence):
        cluster(layout(made, tmp_path))


def test_the_example_and_those_in_the_document_are_valid() -> None:
    assert len(boards(config.load(EXAMPLE))) == 4
    shown = markdown.blocks(DOCUMENT, "yml")
    assert shown
    for written in shown:
        assert boards(read(written))
