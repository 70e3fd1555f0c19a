"""A cluster's keys: made by one command, asked for where other machines can come, and told of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.commands.launch import main
from launcher.commands.make_keys import make_keys
from launcher.config.access import LAUNCHER, Access, launcher_keys
from launcher.config.load import load_cluster
from launcher.errors import BadInputError
from launcher.plan.devices import nodes_of
from launcher.run.processes import start_agents
from launcher.run.runtime import Node
from nodes.net.curve import public_of
from nodes.net.keys import CONTROL, DATA, KeyFolder
from nodes.protocol.messages import HOST
from tests.launcher.launches import ended

HERE, ELSEWHERE = "tcp://127.0.0.1:5500", "tcp://192.0.2.7:5500"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """The keys of a cluster of the nodes a and b."""
    make_keys(tmp_path / "keys", {"a": None, "b": None})
    return tmp_path / "keys"


def write_cluster(folder: Path, extra: str = "", address: str = ELSEWHERE) -> Path:
    path = folder / "cluster.yaml"
    path.write_text(
        f"model: onnx-wheel:squeezenet\nnodes: [{{name: a, address: '{address}'}}]\n{extra}"
    )
    return path


def test_every_machine_admits_every_other_one(keys: Path) -> None:
    rings = {name: KeyFolder(keys / name) for name in (LAUNCHER, "a", "b")}
    public = {name: public_of(ring.secret) for name, ring in rings.items()}
    assert len(set(public.values())) == 3
    assert rings[LAUNCHER].nodes == {"a": public["a"], "b": public["b"]}
    for name, other in (("a", "b"), ("b", "a")):
        assert rings[name].nodes == {other: public[other]}
        assert rings[name].is_key_of(public[LAUNCHER], HOST)
        assert not rings[name].admits(CONTROL, public[other])
        assert rings[name].admits(DATA, public[other])


def test_secrets_are_for_their_owner_only(keys: Path) -> None:
    assert keys.stat().st_mode & 0o077 == 0
    assert (keys / ".gitignore").read_text() == "*\n"
    for secret in keys.glob("*/secret.key"):
        assert secret.stat().st_mode & 0o777 == 0o600


def test_made_again_it_keeps_what_is_there_and_follows_the_cluster(keys: Path) -> None:
    before = KeyFolder(keys / "a").secret
    for path in sorted((keys / "b").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    made = make_keys(keys, {"a": None, "c": None})
    assert (made.made, made.withdrawn) == (("c",), ("b",))
    assert set(made.kept) == {LAUNCHER, "a"}
    ring = KeyFolder(keys / "a")
    assert ring.secret == before
    assert list(ring.nodes) == ["c"]


def test_a_node_of_another_file_stays_admitted_and_is_named(keys: Path) -> None:
    before = KeyFolder(keys / LAUNCHER).nodes
    made = make_keys(keys, {"c": "tcp://127.0.0.1:5500"}, without=["c"])
    assert (made.withdrawn, made.others, made.hosts) == ((), ("a", "b"), {})
    assert before.items() <= KeyFolder(keys / LAUNCHER).nodes.items()
    assert "a, b: not in this file, and admitted as before" in made.text()
    assert "c: on this machine, where agents use keys only if cluster.yaml names" in made.text()
    assert "no machine" not in made.text()


def test_a_machine_whose_secret_was_deleted_gets_a_new_one(keys: Path) -> None:
    before = KeyFolder(keys / LAUNCHER).nodes["a"]
    (keys / "a" / "secret.key").unlink()
    assert make_keys(keys, {"a": None, "b": None}).made == ("a",)
    after = KeyFolder(keys / "b").nodes["a"]
    assert before != after == KeyFolder(keys / LAUNCHER).nodes["a"]


def test_a_second_launcher_stays_admitted(keys: Path) -> None:
    more = keys / "a" / "launchers" / "desk.pub"
    more.write_text("ab" * 32)
    make_keys(keys, {"a": None, "b": None})
    assert more.exists()


@pytest.mark.parametrize(
    ("address", "named", "insecure", "guarded"),
    [
        (ELSEWHERE, False, False, True),
        ("tcp://edge-7.example:5500", False, False, True),
        ("tcp://[2001:db8::7]:5500", False, False, True),
        (HERE, False, False, False),
        ("tcp://[::1]:5500", False, False, False),
        ("tcp://localhost:5500", False, False, False),
        (HERE, True, False, True),
        (ELSEWHERE, False, True, False),
        ("ipc:///tmp/agent", True, False, False),
    ],
)
def test_what_is_guarded(address: str, named: bool, insecure: bool, guarded: bool) -> None:
    assert Access(is_named=named, insecure=insecure).guards(address) is guarded


def test_other_machines_are_not_reached_without_keys(tmp_path: Path) -> None:
    access = Access(tmp_path / "keys")
    with pytest.raises(BadInputError, match=r"node 'a'.*--make-keys.*insecure: true"):
        launcher_keys(access, {"a": ELSEWHERE})
    assert launcher_keys(access, {"a": HERE}) is None


def test_the_hint_names_the_cluster_s_file(tmp_path: Path) -> None:
    path = write_cluster(tmp_path).rename(tmp_path / "my boards.yaml")
    access = load_cluster(path).access
    with pytest.raises(BadInputError, match=rf"`launch '{path}' --make-keys`"):
        launcher_keys(access, {"a": ELSEWHERE})
    with pytest.raises(BadInputError, match=rf"`launch '{path}' --make-keys`"):
        access.agent_arguments("a", ELSEWHERE)


def test_nothing_is_started_before_that_is_said(tmp_path: Path) -> None:
    nodes = (Node("a", ELSEWHERE, access=Access(tmp_path)), Node("b", access=Access(tmp_path)))
    with pytest.raises(BadInputError, match="there are no keys"), start_agents(nodes):
        pass


def test_an_agent_that_is_started_here_gets_its_keys(keys: Path) -> None:
    access = Access(keys)
    assert access.agent_arguments("b", ELSEWHERE) == ["--keys", str(keys / "b")]
    assert access.agent_arguments("b", "ipc:///tmp/b") == []
    assert Access(insecure=True).agent_arguments("b", ELSEWHERE) == ["--insecure"]
    with pytest.raises(BadInputError, match=r"node 'c'.*--make-keys"):
        access.agent_arguments("c", ELSEWHERE)


def test_a_node_without_a_key_is_named(keys: Path) -> None:
    with pytest.raises(BadInputError, match="key of node 'c' is missing"):
        launcher_keys(Access(keys), {"a": ELSEWHERE, "c": ELSEWHERE})


def test_keys_that_others_can_read_are_refused(keys: Path) -> None:
    (keys / LAUNCHER / "secret.key").chmod(0o640)
    with pytest.raises(BadInputError, match="can be read by other users"):
        launcher_keys(Access(keys), {"a": ELSEWHERE})


def test_a_launch_goes_by_the_keys_as_they_were_when_it_began(tmp_path: Path, keys: Path) -> None:
    (node,) = nodes_of(load_cluster(write_cluster(tmp_path)))
    before = KeyFolder(keys / LAUNCHER)
    keys.rename(tmp_path / "elsewhere")
    ring = launcher_keys(node.access, {"a": ELSEWHERE})
    assert ring is not None
    assert (ring.secret, ring.key_of("a")) == (before.secret, before.key_of("a"))
    with start_agents((node,)):
        pass


# ---------------------------------------------------------------- cluster.yaml and the command


def test_keys_are_next_to_the_file_unless_it_says_otherwise(tmp_path: Path) -> None:
    assert load_cluster(write_cluster(tmp_path)).access == Access(tmp_path / "keys")
    named = load_cluster(write_cluster(tmp_path, "keys: ../k\n")).access
    assert named == Access(tmp_path / "../k", is_named=True)


def test_make_keys_as_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write_cluster(tmp_path))
    code, out, _ = ended(main, capsys, path, "--make-keys")
    assert code == 0
    assert f"rsync -a --delete {tmp_path}/keys/a/ 192.0.2.7:" in out
    code, out, _ = ended(main, capsys, path, "--make-keys", "--json")
    assert (code, json.loads(out)["made"]) == (0, [])
    assert json.loads(out)["kept"] == [LAUNCHER, "a"]


def test_a_folder_that_cannot_be_written_is_reported_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "keys").write_text("a file")
    code, out, err = ended(main, capsys, str(write_cluster(tmp_path)), "--make-keys")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert str(tmp_path / "keys") in err


def test_launch_refuses_before_it_searches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = ended(main, capsys, str(write_cluster(tmp_path)))
    assert code == 2
    assert "there are no keys in" in err.splitlines()[-1]
    assert "searching" not in err
