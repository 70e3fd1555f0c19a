"""Who may reach a server, by the section `serve` of `cluster.yaml`."""

from __future__ import annotations

import pytest

from launcher.config.load import validated
from launcher.config.serve import ServeConfig
from launcher.config.source import parse_source

TOKEN = "a-token-of-some-length"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "[::1]", "localhost"])
def test_programs_on_this_machine_need_no_token(host: str) -> None:
    assert ServeConfig(http=f"{host}:8000").what_is_unsafe() is None


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.168.1.5", "localhost.example", "board"])
@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_other_machines_need_a_token_or_leave(host: str, kind: str) -> None:
    address = {kind: f"{host}:8000"}
    assert "give a token" in str(ServeConfig(**address).what_is_unsafe())
    assert ServeConfig(**address, token=TOKEN).what_is_unsafe() is None
    assert ServeConfig(**address, insecure=True).what_is_unsafe() is None


def test_the_file_may_leave_the_token_to_an_option_or_the_environment() -> None:
    text = "model: a.onnx\nnodes: [{name: a}]\nserve: {http: '0.0.0.0:8000'}\n"
    section = validated(parse_source(text, "cluster.yaml")).serve
    assert section.addresses == {"http": ("0.0.0.0", 8000)}


@pytest.mark.parametrize(
    ("given", "served"),
    [
        ({}, {"http": 8000, "grpc": 8001}),
        ({"grpc": "off"}, {"http": 8000}),
        ({"http": "off"}, {"grpc": 8001}),
        ({"http": "127.0.0.1:9000", "grpc": "off"}, {"http": 9000}),
        ({"grpc": "127.0.0.1:9001"}, {"grpc": 9001}),
    ],
)
def test_a_protocol_that_is_off_is_not_served(
    given: dict[str, str], served: dict[str, int]
) -> None:
    addresses = ServeConfig(**given).addresses
    assert {kind: port for kind, (_, port) in addresses.items()} == served


def test_a_server_without_a_protocol_is_refused() -> None:
    assert "both off" in str(ServeConfig(http="off", grpc="off").what_is_unsafe())
