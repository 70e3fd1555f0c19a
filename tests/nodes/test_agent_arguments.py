"""Arguments with which `node-agent` cannot start: one sentence, exit code 2."""

from __future__ import annotations

import pytest

from nodes.cli import main
from tests.nodes.speaker import refusal_of

ANYWHERE = ("--insecure", "--listen")


@pytest.fixture
def refusal(capsys):
    """Runs it; it must end with exit code 2 and one sentence, which is returned.

    Only for what is refused before the engine is opened: after that it shuts its process in, which
    is this one (`refusal_of`).
    """

    def refusal(*arguments: str) -> str:
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = ended.code
        said = capsys.readouterr()
        assert code == 2
        assert not said.out
        return said.err.strip().splitlines()[-1]

    return refusal


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--listen", "127.0.0.1:5500"), "neither tcp://HOST:PORT nor ipc://PATH"),
        (("--listen", "tcp://127.0.0.1"), "neither tcp://HOST:PORT nor ipc://PATH"),
        (("--listen", "tcp://127.0.0.1:99999"), "neither tcp://HOST:PORT nor ipc://PATH"),
        (("--name", "@host"), "'@host' cannot be a node's name"),
        (("--cpus", "some"), "'some' is not a list of CPUs"),
        (("--metrics", "9550"), "'9550' is not HOST:PORT"),
        (("--cpus", "9999"), "cannot run on the CPUs 9999"),
        (
            ("--cache-bytes", "much"),
            "must be a size such as 4GB, 512MiB or a number of bytes, not 'much'",
        ),
        (("--tensor-bytes", "-1"), "--tensor-bytes"),
        (("--connections", "0"), "'0' is not a whole number from 1 to 999999"),
        (("--engine", "abacus"), "abacus"),
        (("--slots", "9"), "'9' is not a whole number from 1 to 8"),
        (("--slots", "2", "--data", "tcp://127.0.0.1:7000"), "--data cannot be combined"),
        (("--slots", "2", "--listen", "ipc:///tmp/agent"), "--slots needs a TCP address"),
        (("--slots", "3", "--listen", "tcp://127.0.0.1:65531"), "would need ports up to 65536"),
        (("--slots", "2", "--listen", "tcp://0.0.0.0:0", "--keys", "/nonexistent"), "/nonexistent"),
    ],
)
def test_a_bad_argument_is_reported_in_a_sentence(arguments, sentence, refusal, tmp_path):
    assert sentence in refusal("--cache", str(tmp_path), *arguments)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((*ANYWHERE, "tcp://203.0.113.7:5500"), "give an IP address"),
        ((*ANYWHERE, "tcp://some-name:5500"), "give an IP address"),
        (("--listen", "tcp://127.0.0.1:0", "--engine", "abacus"), "abacus"),
    ],
)
def test_the_parent_of_slots_reports_a_bad_argument_in_a_sentence(arguments, sentence, tmp_path):
    """It replaces the process that read its arguments."""
    assert sentence in refusal_of(tmp_path, "--slots", "2", *arguments)


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("tcp://203.0.113.7:5500", "give an IP address of this machine"),
        ("tcp://some-name:5500", "give an IP address of this machine"),
        ("ipc:///no/such/directory/agent", "ipc:///no/such/directory/agent"),
    ],
)
def test_an_address_of_nobody_is_reported_in_a_sentence(address, sentence, tmp_path):
    assert sentence in refusal_of(tmp_path, "--insecure", "--listen", address)


@pytest.mark.parametrize("where", ["--listen", "--data"])
@pytest.mark.parametrize("address", ["tcp://0.0.0.0:0", "tcp://203.0.113.7:0", "tcp://[::]:0"])
def test_other_machines_are_not_let_in_without_keys(refusal, tmp_path, monkeypatch, where, address):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    said = refusal(where, address, "--cache", str(tmp_path))
    assert f"{address} can be reached from other machines" in said
    assert str(tmp_path / "config" / "csdf-edge" / "keys") in said
    assert all(hint in said for hint in ("--make-keys", "keygen", "--insecure"))


def test_keys_that_cannot_be_used_are_reported_in_a_sentence(refusal, tmp_path, capsys):
    assert main(["keygen", "--out", str(tmp_path / "keys")]) == 0
    capsys.readouterr()
    (tmp_path / "keys" / "secret.key").chmod(0o644)
    said = refusal("--keys", str(tmp_path / "keys"), "--cache", str(tmp_path))
    assert "secret.key can be read by other users" in said
    assert "not allowed with" in refusal("--keys", "k", "--insecure")


def test_a_cache_that_cannot_be_used_is_reported_in_a_sentence(refusal, tmp_path):
    (tmp_path / "file").touch()
    where = str(tmp_path / "file" / "cache")
    assert where in refusal("--listen", "tcp://127.0.0.1:0", "--cache", where)
