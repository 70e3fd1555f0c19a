"""Every mistake in `cluster.yaml` is one sentence with file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.config.load import Cluster, load_cluster
from launcher.config.source import parse_source
from launcher.config.units import parse_bytes, parse_link, parse_share, parse_speed
from launcher.errors import EXIT_BAD_INPUT, BadInputError
from launcher.run.runtime import Node

BASE = "model: m.onnx\nnodes:\n  - name: a\n  - name: b\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("m.onnx", "i.npy", "labels.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "photos").mkdir()
    for name in ("2.png", "1.png"):
        (tmp_path / "photos" / name).write_text("")
    return tmp_path


def load(folder: Path, text: str) -> Cluster:
    path = folder / "cluster.yaml"
    path.write_text(text, "utf-8")
    return load_cluster(path, "cluster.yaml")


def node(line: str) -> str:
    """The base with one more line in node b."""
    return f"{BASE}    {line}\n"


ADDED = [
    ("a: [1", "cluster.yaml, line 6: is not valid YAML: "),
    ("\tseed: 1", "line 5: is not valid YAML: a tab; write spaces"),
    ("---\nseed: 1", "line 5: is not valid YAML: a second document begins here"),
    (
        "seed: 1\nframes: 2\nseed: 2",
        "line 7, seed: duplicate key; the first is on line 5",
    ),
    ("pins: &p\n  x: *p", "line 5, pins.x: contains itself"),
    ("? [a]\n: 1", "line 5: a key must be text"),
    ("verify: 'no'", "verify: must be true or false, not 'no'; remove the quotes"),
    ("verify: 'never'", "verify: must be true or false, not 'never'"),
    ("batch: yes", "or auto, not true"),
    ("seed: !!int x", "line 5, seed: invalid literal for int()"),
    ("within: 10", "line 5, within: must be a share from 0 to 1, such as 10% or 0.1, not 10"),
    ("within: much", "line 5, within: must be a share such as 10% or 0.1, not 'much'"),
    (
        "objective: memory\nwithin: 10%",
        "line 6, within: has no effect with objective: memory; remove it, or write objective: both "
        "or objective: paper",
    ),
    ("stratgy: x", "line 5, stratgy: unknown key; did you mean 'strategy'?"),
    ("zzz: x", "line 5, zzz: unknown key; the keys known here are model, "),
    (
        "input: [rtsp://me:secret@camera/stream]",
        "line 5, input[0]: 'rtsp://camera/stream' is a source, of which there can be only one",
    ),
    (
        "task: detection",
        "line 5, task: must be 'auto', 'classify', 'detect', 'segment', 'pose', 'obb', 'semantic' "
        "or 'none', not 'detection'; did you mean 'detect'?",
    ),
    ("task: {kind: cats}", "line 5, task.kind: must be 'auto', "),
    (
        "run: {connect_timeout: 3}",
        "line 5, run.connect_timeout: unknown key; did you mean 'connect_timeout_s'?",
    ),
    (
        "recovery: {heartbeat: 3}",
        "line 5, recovery.heartbeat: unknown key; did you mean 'heartbeat_s'?",
    ),
    ("frames: 0", "line 5, frames: must be at least 1, not 0"),
    ("frames: many", "frames: must be a whole number, not 'many'"),
    ("seed: -1", "line 5, seed: must be at least 0, not -1"),
    ("verify: maybe", "verify: must be true or false, not 'maybe'"),
    ("slack_frames: .inf", "slack_frames: must be a whole"),
    ("run:\n  deploy_timeout_s: 0", "line 6, run.deploy_timeout_s: must be above 0, not 0"),
    ("run:\n  lease_s: 0.0001", "line 6, run.lease_s: must be at least 1, not 0.0001"),
    ("run:\n  lease_s: 100000", "run.lease_s: must be at most 86400"),
    ("frames: 100000000000000000000000", "line 5, frames: must be at most 1000000000, not 1000"),
    ("slack_frames: 3000000000", "slack_frames: must be at most 1000000"),
    ("seed: 4294967296", "seed: must be at most 4294967295"),
    ('journal: "a\\0b"', "line 5, journal: a text must not contain"),
    ("run:\n  order: random", "line 6, run.order: must be 'pipelined' or 'strict', not 'random'"),
    ("input: 5", "line 5, input: must be a glob, a list of"),
    ("input: []", "input.files: must not be empty"),
    ("input:\n  - i.npy\n  - photos/*.jpg", "line 7, input[1]: no file matches '"),
    ("input:\n  files: x.png", "line 6, input.files: no file matches '"),
    (
        "input: {files: i.npy, mean: [a]}",
        "line 5, input.mean: must be one number, or a list with one per channel",
    ),
    (
        "input: {files: i.npy, resize: fit}",
        "input.resize: must be 'crop', 'pad', 'stretch' or 'letterbox', not 'fit'",
    ),
    ("labels: l.txt", "line 5, labels: there is no file '"),
    ("truth: photos", "line 5, truth: '"),
    ("pins:\n  conv*: c", "line 6, pins.conv*: there is no node 'c'; the nodes are a, b"),
    ("recovery: often", "line 5, recovery: "),
    ("pins: {conv: 1}", "line 5, pins.conv: must be text, not 1"),
    ("ga: {vertical: {heat: 2}}", "line 5, ga.vertical.heat: must be at most 1"),
    (
        "ga: {vertical: {individuals: 10}}",
        "line 5, ga.vertical.individuals: must be a multiple of",
    ),
    ("ga: {vertical: {haet: 0.1}}", "unknown key; did you mean 'heat'?"),
    ("ga: {vertical-paper: {chains: 4}}", "unknown key"),
    ("ga: {sequential: {heat: 0.1}}", "keys known here are vertical, vertical-paper, runs, hybrid"),
    ("ga: {vertical: {chains: many}}", "must be a whole number"),
    ("ga: {runs: {chains: 50}}", "line 5, ga.runs.chains: must be a multiple of 12"),
    ("ga: {hybrid: {rounds: 2}}", "unknown key"),
    ("serve: {token: short}", "line 5, serve.token: must have at least 16 characters"),
    ("serve: {token: with a space in the middle}", "line 5, serve.token: must have visible ASCII"),
    ("serve: {token: ünicode-is-no-header-1}", "line 5, serve.token: must have visible ASCII"),
    ("serve: {traces: nowhere}", "line 5, serve.traces: must be a URL such as http://"),
    *(
        (
            f"serve: {{grpc: '{address}'}}",
            f"line 5, serve.grpc: '{address}' is not an address; write HOST:PORT",
        )
        for address in ("nowhere", "host:99999", "host:-1", ":8000", "http://host:80")
    ),
    ("keys: k\ninsecure: true", "line 6, insecure: contradicts `keys`"),
]
"""What is wrong at the end of the base."""

OF_NODE = [
    ("host: a: b", "line 5: is not valid YAML: a misplaced colon"),
    ("threads: yes", "threads: must be a whole number, not true"),
    ("threads: '4'", "threads: must be a whole number, not '4'; remove the quotes"),
    ("memori: 4GB", "cluster.yaml, line 5, nodes[1].memori: unknown key; did you mean 'memory'?"),
    (
        "address: 192.168.1.2:7070",
        "line 5, nodes[1].address: '192.168.1.2:7070' is not an agent's address",
    ),
    ("address: udp://h:1", "is not an agent's address"),
    ("address: tcp://h", "is not an agent's address"),
    ("address: tcp://h:65536", "is not an agent's address"),
    ("address: tcp://*:7070", "is not an agent's address"),
    ("data: 5741", "data: applies only to a node with an address"),
    *(
        (f"address: tcp://h:1\n    data: {data}", "nodes[1].data: ")
        for data in ("0", "65536", "true", "1.5", "'5741x'", "tcp://h", "tcp://*:1", "[1]")
    ),
    (
        "address: tcp://h:1\n    data: 65534\n    slots: 2",
        "2 slots with data port 65534 would need ports up to 65536",
    ),
    ("memory: lots", "line 5, nodes[1].memory: must be a size such as 4GB"),
    ("memory: 0", "nodes[1].memory: must be a size of one byte"),
    ("link: 1000", "nodes[1].link: must be a rate such as 1Gbit/s"),
    ("macs_per_s: fast", "nodes[1].macs_per_s: must be a number"),
    ("threads: 0", "nodes[1].threads: must be at least 1, not 0"),
    ("threads: 1.5", "threads: must be a whole number, not 1.5"),
    ("cpus: [-1]", "nodes[1].cpus[0]: must be at least 0, not -1"),
    (
        "cpus: [1]\n    address: tcp://h:1",
        "line 5, nodes[1].cpus: applies only to a node without an address",
    ),
    (
        "meter: plug\n    address: tcp://h:1",
        "line 5, nodes[1].meter: applies only to a node without an address",
    ),
    ("meter: 'a plug'", "nodes[1].meter: 'a plug' is not auto, none or the name of a plugin"),
]
"""What is wrong of node b."""

WHOLE = [
    ("", "cluster.yaml: is empty"),
    ("- a\n", "cluster.yaml, line 1: must be a mapping"),
    (
        f"{BASE}model: !env MODEL\n".replace("model: m.onnx\n", "", 1),
        "model: the tag '!env' has no meaning here; remove it",
    ),
    ("nodes:\n- name: a\n", "line 1: the key 'model' is missing"),
    ("model: m.onnx\n", "line 1: the key 'nodes' is missing"),
    (
        "model: m.onnx\nnodes: []\n",
        "cluster.yaml, line 2, nodes: lists no node; a cluster needs at least one",
    ),
    (
        BASE.replace("nodes:", "nodez:"),
        "cluster.yaml, line 2, nodez: unknown key; did you mean 'nodes'?",
    ),
    (
        BASE.replace("m.onnx", "{pth: m.onnx}"),
        "line 1, model.pth: unknown key; did you mean 'path'?",
    ),
    (
        "model: m.onnx\nnodes:\n  - {name: a, adress: 'tcp://a:1'}\n",
        "line 3, nodes[0].adress: unknown key; did you mean 'address'?",
    ),
    (
        BASE.replace("name: b", "name: a"),
        "line 4, nodes[1].name: 'a' is already the name of the node on line 3; each",
    ),
    (BASE.replace("name: b", "name: '@host'"), "line 4, nodes[1].name: '@host' is reserved"),
    (BASE.replace("name: b", "name: b/c"), "nodes[1].name: 'b/c' cannot be a node's name"),
    (
        BASE.replace("name: b", "name: no"),
        "nodes[1].name: must be text, not false (YAML reads on, off, yes and no so: use quotes)",
    ),
    (BASE.replace("name: b", "threads: 2"), "line 4, nodes[1]: the key 'name' is missing"),
    (
        BASE.replace("- name: b", "- b"),
        "line 4, nodes[1]: must be a mapping of keys to values, not 'b'",
    ),
    (
        "model: m.onnx\nnodes:\n  - {name: a, address: 'tcp://h:1'}\n"
        "  - {name: b, address: 'tcp://h:1'}\n",
        "line 4, nodes[1].address: 'tcp://h:1' is already the address of the node on line 3; each",
    ),
    (BASE.replace("m.onnx", "n.onnx"), "line 1, model: there is no file"),
    (BASE.replace("m.onnx", "{path: n.onnx}"), "line 1, model.path: there is no file"),
    (BASE.replace("m.onnx", "photos"), "line 1, model: '"),
    (
        BASE.replace("m.onnx", "{path: m.onnx, input_shape: [1, x]}"),
        "line 1, model.input_shape: must be a list of whole numbers above 0",
    ),
    (
        "model: m.onnx\nnodes:\n  - {name: a, standby: true}\n",
        "nodes: all nodes stand by; remove `standby: true` from at least one",
    ),
    (
        node("standby: true") + "pins: {conv: b}\n",
        "pins.conv: node 'b' stands by until another one is lost",
    ),
]
"""What is wrong with a whole file."""

MISTAKES = [
    *((f"{BASE}{end}\n", sentence) for end, sentence in ADDED),
    *((node(line), sentence) for line, sentence in OF_NODE),
    *WHOLE,
]


@pytest.mark.parametrize(("text", "sentence"), MISTAKES)
def test_a_mistake_is_one_sentence_with_file_line_and_key(
    folder: Path, text: str, sentence: str
) -> None:
    with pytest.raises(BadInputError) as caught:
        load(folder, text)
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("cluster.yaml")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == EXIT_BAD_INPUT


def test_the_first_of_several_mistakes_is_reported(folder: Path) -> None:
    with pytest.raises(BadInputError, match="line 5, frames"):
        load(folder, f"{BASE}frames: x\nseed: y\n")


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    with pytest.raises(BadInputError, match=r"cluster\.yaml: there is no such file"):
        load_cluster(path)
    path.write_bytes(b"model: \xff\xfe")
    with pytest.raises(BadInputError, match=r"cluster\.yaml: is not UTF-8 text \(byte 7\)"):
        load_cluster(path)
    path.write_bytes(b"model: \x00")
    with pytest.raises(BadInputError, match=r"cluster\.yaml: is not a text file that YAML allows"):
        load_cluster(path)


def test_everything_that_is_left_out_has_a_default(folder: Path) -> None:
    config = load(folder, BASE).config
    assert config.strategy == "auto"
    assert config.input.is_random
    assert config.frames is None
    assert config.verify
    assert config.run.order == "pipelined"
    assert [node.name for node in config.nodes] == ["a", "b"]
    assert config.nodes[0].address is None
    assert config.nodes[0].memory is None


def test_short_and_long_forms_mean_the_same(folder: Path) -> None:
    short = load(folder, f"{BASE}input: photos/*.png\n").config
    listed = load(folder, f"{BASE}input: [photos/*.png]\n").config
    long = load(
        folder, BASE.replace("m.onnx", "{path: m.onnx}") + "input:\n  files: photos/*.png\n"
    ).config
    assert short == listed == long
    off = load(folder, f"{BASE}recovery: false\n").config
    assert off == load(folder, f"{BASE}recovery: {{enabled: false}}\n").config
    assert not off.recovery.enabled
    assert load(folder, BASE).config == load(folder, f"{BASE}recovery: true\n").config


def test_all_keys_of_a_node(folder: Path) -> None:
    text = (
        "model: m.onnx\nnodes:\n  - {name: a, address: 'tcp://[fe80::1]:7070', memory: 512MiB, "
        "threads: 4, macs_per_s: 2e10, link: 100Mbit/s}\n  - {name: b, cpus: [0, 1]}\n"
    )
    first, second = load(folder, text).config.nodes
    assert first.address == "tcp://[fe80::1]:7070"
    assert first.memory == 512 * 2**20
    assert first.macs_per_s == 2e10
    assert first.link == 12.5e6
    assert second.cpus == (0, 1)


def test_paths_are_relative_to_the_file(folder: Path) -> None:
    cluster = load(folder, BASE)
    assert cluster.model == str(folder / "m.onnx")
    assert (
        load(folder, BASE.replace("m.onnx", "onnx-wheel:resnet50")).model == "onnx-wheel:resnet50"
    )


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_in_a_sentence(text: str) -> None:
    try:
        parse_source(text, "cluster.yaml")
    except BadInputError as error:
        sentence = str(error)
    else:
        return
    assert sentence.startswith("cluster.yaml")


@pytest.mark.parametrize(
    ("data", "door"),
    [("7000", "tcp://h:7000"), ("tcp://10.0.0.9:5501", "tcp://10.0.0.9:5501"), ("null", None)],
)
def test_a_data_port_is_a_number_at_the_nodes_host_or_an_address(
    folder: Path, data: str, door: str | None
) -> None:
    cluster = load(folder, node(f"address: tcp://h:5500\n    data: {data}"))
    assert cluster.config.nodes[1].data_address == door


def test_the_data_port_of_each_slot_follows_in_steps_of_two() -> None:
    board = Node("b", "tcp://h:6000", slots=3, data="tcp://g:7000")
    assert board.doors == {
        "tcp://h:6000": "tcp://g:7000",
        "tcp://h:6002": "tcp://g:7002",
        "tcp://h:6004": "tcp://g:7004",
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [("4GB", 4 * 10**9), ("512MiB", 2**29), ("1.5 GB", 1_500_000_000), ("2g", 2 * 10**9), (7, 7)],
)
def test_sizes(text: object, value: int) -> None:
    assert parse_bytes(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("1Gbit/s", 1.25e8), ("100 Mbps", 1.25e7), ("12MB/s", 1.2e7)]
)
def test_rates_of_links_are_bytes_per_second(text: str, value: float) -> None:
    assert parse_link(text) == value


@pytest.mark.parametrize(("text", "value"), [("20G", 2e10), ("2e10", 2e10), (5, 5.0), ("1T", 1e12)])
def test_speeds(text: object, value: float) -> None:
    assert parse_speed(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("10%", 0.1), ("2.5 %", 0.025), ("0.1", 0.1), (0, 0.0), (1, 1.0)]
)
def test_shares(text: object, value: float) -> None:
    assert parse_share(text) == pytest.approx(value)
