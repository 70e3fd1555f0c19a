"""Addresses as people write them: taken, or refused with what to write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ga.sweep.storage import storage_url
from launcher.config.load import validated
from launcher.config.source import parse_source, source_text
from launcher.errors import BadInputError
from nodes.protocol.addresses import host_of, slot_address
from partition.errors import PartitionError

PORTS = st.integers(1, 65535)
LABEL = st.from_regex(r"[a-z0-9_]([a-z0-9_-]{0,8}[a-z0-9_])?", fullmatch=True)
NAMES = st.lists(LABEL, min_size=1, max_size=3).map(".".join)
SCOPED = st.tuples(st.ip_addresses(v=6, network="fe80::/10"), LABEL).map(
    lambda t: f"[{t[0]}%{t[1]}]"
)
HOSTS = st.one_of(
    NAMES, st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).map("[{}]".format), SCOPED
)


def node_at(address: str) -> str | None:
    data = {"model": "m.onnx", "nodes": [{"name": "a", "address": address}]}
    return validated(parse_source(source_text(data), "cluster.yaml")).nodes[0].address


@given(HOSTS, PORTS)
def test_every_name_and_address_of_a_host_is_taken(host: str, port: int) -> None:
    address = f"tcp://{host}:{port}"
    assert node_at(address) == address
    assert host_of(address) == host.strip("[]")
    if port <= 65533:
        assert slot_address(address, 2) == f"tcp://{host}:{port + 2}"


@given(st.text(st.characters(categories=("L", "N", "P", "S", "Z")), max_size=30))
def test_everything_else_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(BadInputError, match=r"nodes\[0\]\.address: .* write tcp://HOST:PORT"):
        node_at(text)


@pytest.mark.slow
def test_an_unknown_host_name_is_called_so(tmp_path: Path) -> None:
    model = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
    (tmp_path / "cluster.yaml").write_text(
        f"model: {model}\nrun: {{connect_timeout_s: 1, start_wait_s: 0}}\nframes: 1\n"
        "nodes: [{name: a, address: 'tcp://no_such_board.invalid:5500'}]\ninsecure: true\n"
        "recovery: {wait_s: 0}\n"
    )
    command = (sys.executable, "-m", "launcher.commands.launch", str(tmp_path / "cluster.yaml"))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (1, 2)
    assert "its host name 'no_such_board.invalid' cannot be resolved" in done.stderr, done.stderr


def test_the_last_port_leaves_none_for_data(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "nodes.cli", "--listen", "tcp://127.0.0.1:65535")
    done = subprocess.run(
        (*command, "--cache", str(tmp_path)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "65535 is the last port, and the data port follows it" in done.stderr


@pytest.mark.parametrize("name", ["what?.db", "a{b}.db"])
def test_a_database_whose_name_a_url_cannot_have_is_refused(name: str) -> None:
    with pytest.raises(PartitionError, match=r"must not contain '[?{]'; name another file"):
        storage_url(name)


def test_postgres_is_postgresql() -> None:
    assert storage_url("postgres://u:p@h/d") == "postgresql://u:p@h/d"
