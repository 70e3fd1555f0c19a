"""What is heard of agents is untrusted, and what is written into cluster.yaml leaves the rest."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import cnn
from launcher.commands.discover import write_nodes
from launcher.config.load import load_cluster
from launcher.config.source import parse_source
from launcher.discover.writing import with_nodes
from launcher.errors import BadInputError
from nodes.net.announcing import announced
from nodes.protocol.announcements import LONGEST_TEXT, Announcement, heard

BOARD = Announcement("board", ("192.0.2.9",), 5500, "0.1.0", 8, "ONNX Runtime", "a Pi", 4, 10**9)
OTHER = Announcement("other", ("2001:db8::7",), 5600, guarded=True)


def as_heard(texts: dict[str, str]) -> dict[bytes, bytes | None]:
    return {key.encode(): value.encode() for key, value in texts.items()}


@pytest.mark.parametrize("agent", [BOARD, OTHER])
def test_what_an_agent_announces_is_received(agent):
    assert heard(agent.hosts, agent.port, as_heard(agent.texts())) == agent


@pytest.mark.parametrize(
    ("hosts", "port", "name"),
    [
        (("127.0.0.1",), 5500, "a"),
        (("224.0.0.1", "0.0.0.0", "fe80::1", "no address"), 5500, "a"),
        ((), 5500, "a"),
        (("192.0.2.1",), 0, "a"),
        (("192.0.2.1",), 5500, ""),
        (("192.0.2.1",), 5500, "@host"),
        (("192.0.2.1",), 5500, "a b"),
        (("192.0.2.1",), 5500, "a" * 80),
        (("192.0.2.1",), 5500, "a\x1b[2J"),
    ],
)
def test_announcements_that_no_launcher_could_use_are_dropped(hosts, port, name):
    assert heard(hosts, port, {b"name": name.encode()}) is None


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from(["192.0.2.1", "2001:db8::1", "::1", "x"]), max_size=40),
    st.integers(-1, 70_000),
    st.dictionaries(
        st.sampled_from([b"name", b"engine", b"cores", b"memory", b"protocol", b"\xff"]),
        st.none() | st.binary(max_size=200) | st.just(b"9" * 20) | st.just(b"a"),
    ),
)
def test_whatever_is_announced_is_bounded_and_printable(hosts, port, texts):
    agent = heard(hosts, port, texts)
    if agent is not None:
        shown = (agent.name, agent.version, agent.engine, agent.machine)
        assert all(text.isprintable() and len(text) <= LONGEST_TEXT for text in shown)
        assert len(agent.hosts) <= 16
        assert 0 <= agent.cores < 10**15


def test_a_new_file_can_be_launched(tmp_path):
    path = tmp_path / "cluster.yaml"
    assert [node["name"] for node in write_nodes(path, [BOARD, OTHER])] == ["board", "other"]
    nodes = load_cluster(path).config.nodes
    assert [node.address for node in nodes] == [
        "tcp://192.0.2.9:5500",
        "tcp://[2001:db8::7]:5600",
    ]
    assert write_nodes(path, [OTHER, BOARD]) == []
    assert cnn.read(load_cluster(path).models[0].path).network.layers


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", fullmatch=True) | st.sampled_from(
    ["true", "NO", "null", "1e3", "0x10", "1_000", "2026-01-01", "host", "launcher", "a" * 63]
)
HEARD = st.tuples(NAMES, st.integers(1, 9), st.integers(1, 65535) | st.sampled_from([65534, 65535]))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(HEARD, min_size=1, max_size=4))
def test_whatever_is_announced_a_new_file_has_nodes_that_launch_accepts(found):
    texts = [({b"name": name.encode()}, f"192.0.2.{host}", port) for name, host, port in found]
    agents = [heard([host], port, given) for given, host, port in texts]
    usable = [agent for agent in agents if agent is not None]
    assume(usable)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.yaml"
        write_nodes(path, usable)
        nodes = load_cluster(path).config.nodes
    assert {node.address for node in nodes} == {agent.address for agent in usable}


FORMS = {
    "block": """\
# Our cluster.
model: builtin:digits   # small
nodes:
  - name: a             # the first
    address: tcp://192.0.2.1:5500
    engine_options: {allow_spinning: false}
    # at the window

# Behind the nodes.
input: random
""",
    "last": "model: builtin:digits\ninput: random\nnodes:\n- name: a  # the end",
    "flow": "model: builtin:digits\ninput: random\nnodes: [{name: a}, {name: b}] # two\n",
    "json": '{"model": "builtin:digits", "input": "random",\n "nodes": [{"name": "a"}\n ]}\n',
    "nested": "model: builtin:digits\nnodes:\n  - {name: a}\n  - name: b\n    cpus:\n      - 0\n"
    "input: random\n",
    "windows": "model: builtin:digits\r\nnodes:\r\n  - name: a\r\ninput: random\r\n",
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_nodes_are_added_and_everything_else_stays(text, tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_bytes(text.encode())
    path.chmod(0o600)
    before = parse_source(text, "before").data
    added = write_nodes(path, [BOARD])
    assert added == [{"name": "board", "address": "tcp://192.0.2.9:5500"}]
    written = path.read_bytes().decode()
    assert parse_source(written, "after").data == before | {"nodes": [*before["nodes"], *added]}
    kept = iter(written)
    assert all(character in kept for character in text.rstrip("\n"))  # nothing is gone or moved
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_cluster(path).config.nodes[-1].name == "board"


def test_a_name_that_is_taken_gets_a_number(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text("model: builtin:digits\ninput: random\nnodes: [{name: board}]\n")
    assert write_nodes(path, [BOARD])[0]["name"] == "board-2"


def test_a_name_of_digits_stays_a_name(tmp_path):
    path = tmp_path / "cluster.yaml"
    write_nodes(path, [Announcement("007", ("192.0.2.9",), 5500)])
    assert load_cluster(path).config.nodes[0].name == "007"


@pytest.mark.parametrize(
    "text",
    [
        "model: builtin:digits\n",
        "model: builtin:digits\nnodes: []\n",
        "model: builtin:digits\nnodes: &all\n  - name: a\nmore: *all\n",
        "[1, 2]\n",
    ],
)
def test_a_file_in_which_no_node_can_be_added_is_left_alone(text, tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(BadInputError, match="nodes"):
        write_nodes(path, [BOARD])
    assert path.read_text() == text


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.from_regex(r"(model|nodes|[a-z#'\"\[{: \n-]){0,40}", fullmatch=True))
def test_any_text_is_extended_or_refused(text):
    try:
        before = parse_source(text, "it").data
        written = with_nodes(text, [{"name": "x", "address": "y"}], "it")
    except BadInputError:
        return
    assert parse_source(written, "it").data["nodes"][:-1] == before["nodes"]


def test_an_agent_that_nobody_else_can_reach_is_not_announced(tmp_path):
    command = [sys.executable, "-m", "nodes.cli", "--announce", "--cache", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--announce: no other machine can reach tcp://127.0.0.1:5500" in done.stderr


def test_an_agent_that_cannot_be_announced_works_all_the_same(caplog):
    with caplog.at_level(logging.WARNING), announced(Announcement("a", (), 5500)):
        assert "this agent is not announced: this machine has no address" in caplog.text


def test_without_zeroconf_a_sentence_says_what_to_install(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['zeroconf'] = None\n")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"}
    command = [sys.executable, "-m", "launcher.commands.launch", "discover", "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path
    )
    assert done.returncode == 2
    assert "pip install 'csdf-edge[discover]'" in json.loads(done.stdout)["error"]
