"""Folders of keys: what is written and refused, who is admitted, and that changes count at once."""

from __future__ import annotations

import json
import os

import pytest

from nodes.cli import main
from nodes.net.curve import new_pair, public_of
from nodes.net.keys import (
    CONTROL,
    DATA,
    KeyFolder,
    Keyring,
    KeysError,
    read_secret,
    write_public,
    write_secret,
)
from nodes.protocol.messages import HOST
from tests.descriptors import opened_under


@pytest.fixture
def folder(tmp_path):
    """A folder with its own pair and nobody let in."""
    public, secret = new_pair()
    write_secret(tmp_path / "keys", "here", secret, public)
    return tmp_path / "keys"


def admit(folder, part, name):
    """Put a new public key into a folder; returns it."""
    public, _ = new_pair()
    write_public(folder / part / f"{name}.pub", name, public)
    return public


def test_a_pair_belongs_together():
    public, secret = new_pair()
    assert len(public) == len(secret) == 32
    assert public_of(secret) == public != new_pair()[0]


def test_a_secret_is_its_owners_alone(folder):
    assert (folder / "secret.key").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    written = (folder / "public.key").read_text().splitlines()[-1]
    assert bytes.fromhex(written) == public_of(read_secret(folder))


def test_a_secret_is_never_overwritten(folder):
    before = (folder / "secret.key").read_bytes()
    with pytest.raises(KeysError, match="already exists"):
        write_secret(folder, "here", *new_pair())
    assert (folder / "secret.key").read_bytes() == before


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o644, 0o660])
def test_a_secret_that_others_can_read_is_refused(folder, mode):
    (folder / "secret.key").chmod(mode)
    with pytest.raises(KeysError, match=r"can be read by other users .*chmod 600"):
        KeyFolder(folder)


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"# nothing\n", b"ab" * 31, b"AB" * 32, b"ab" * 32 + b"\n" + b"cd" * 32],
)
@pytest.mark.parametrize("name", ["secret.key", "nodes/n1.pub", "launchers/laptop.pub"])
def test_a_file_that_holds_no_key_is_named(folder, name, content):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)  # a secret that is there keeps its mode
    with pytest.raises(KeysError, match=rf"{path} does not contain one key"):
        KeyFolder(folder)


STRANGER = 54321
"""A user who is nobody here."""

GIVING_AWAY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@GIVING_AWAY
@pytest.mark.parametrize(
    "name", ["secret.key", ".", "nodes", "launchers", "nodes/n1.pub", "launchers/laptop.pub"]
)
def test_what_belongs_to_another_user_is_refused(folder, name):
    admit(folder, "nodes", "n1")
    admit(folder, "launchers", "laptop")
    KeyFolder(folder)
    os.chown(folder / name, STRANGER, -1)
    where = (folder / name).resolve()
    says = rf"{where} belongs to {STRANGER}, and only keys of root .* `chown -h root {where}`"
    with pytest.raises(KeysError, match=says):
        KeyFolder(folder)


@GIVING_AWAY
@pytest.mark.parametrize("given", ["link", "target"])
@pytest.mark.parametrize("name", ["secret.key", "nodes/n1.pub"])
def test_a_link_that_belongs_to_another_user_or_leads_to_his_file_is_refused(
    folder, tmp_path, name, given
):
    admit(folder, "nodes", "n1")
    path, target = folder / name, tmp_path / "elsewhere"
    path.rename(target)
    path.symlink_to(target)
    KeyFolder(folder)
    refused = path if given == "link" else target
    os.chown(refused, STRANGER, -1, follow_symlinks=False)
    with pytest.raises(KeysError, match=rf"{refused} belongs to {STRANGER}"):
        KeyFolder(folder)


@GIVING_AWAY
def test_an_agent_that_is_not_root_trusts_its_own_keys_and_root_s(folder, monkeypatch):
    """As deploy/README.md has them copied: they belong to the agent's user."""
    admit(folder, "launchers", "laptop")
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    KeyFolder(folder)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, STRANGER, -1)
    assert KeyFolder(folder).launchers
    os.chown(folder / "launchers" / "laptop.pub", STRANGER + 1, -1)
    with pytest.raises(KeysError, match=f"belongs to {STRANGER + 1}"):
        KeyFolder(folder)


@GIVING_AWAY
def test_who_is_given_away_later_is_out_and_nobody_else(folder):
    kept, given = admit(folder, "nodes", "n1"), admit(folder, "nodes", "n2")
    keys = KeyFolder(folder)
    assert keys.admits(DATA, given)
    os.chown(folder / "nodes" / "n2.pub", STRANGER, -1)
    assert keys.refresh()
    assert keys.admits(DATA, kept)
    assert not keys.admits(DATA, given)


def test_a_list_that_everybody_can_write_is_refused(folder):
    admit(folder, "launchers", "laptop")
    (folder / "launchers").chmod(0o777)
    with pytest.raises(KeysError, match="can be written by everybody"):
        KeyFolder(folder)


@pytest.mark.parametrize("place", [".", "launchers/laptop.pub"])
def test_so_is_whatever_else_decides_who_is_admitted(folder, place):
    admit(folder, "launchers", "laptop")
    (folder / place).chmod(0o777)
    with pytest.raises(KeysError, match="can be written by everybody: run `chmod go-w"):
        KeyFolder(folder)


def test_what_is_no_file_is_reported_and_not_waited_for(folder):
    (folder / "launchers").mkdir()
    os.mkfifo(folder / "launchers" / "laptop.pub")
    with pytest.raises(KeysError, match=r"laptop.pub does not contain one key"):
        KeyFolder(folder)
    (folder / "launchers" / "laptop.pub").unlink()
    (folder / "launchers").rmdir()
    (folder / "launchers").write_text("")
    with pytest.raises(KeysError, match="launchers cannot be read: Not a directory"):
        KeyFolder(folder)
    (folder / "secret.key").unlink()
    (folder / "secret.key").mkdir()
    with pytest.raises(KeysError, match=r"secret.key cannot be read \(Is a directory\)"):
        KeyFolder(folder)


def test_folders_in_the_place_of_keys_leave_no_descriptors(folder):
    ring = KeyFolder(folder)
    (folder / "nodes" / "n1.pub").mkdir(parents=True)
    for _ in range(3):
        (folder / "nodes" / "n1.pub" / "touched").touch()
        (folder / "nodes" / "n1.pub" / "touched").unlink()
        assert ring.refresh()
        assert "n1.pub cannot be read: Is a directory" in ring.problems[0]
    assert opened_under(folder) == []


def test_keys_made_where_new_files_are_everybodys_can_be_used(folder):
    before = os.umask(0)
    try:
        laptop = admit(folder, "launchers", "laptop")
    finally:
        os.umask(before)
    assert KeyFolder(folder).admits(CONTROL, laptop)


def test_a_folder_that_everybody_can_write_from_now_on_admits_nobody(folder):
    laptop = admit(folder, "launchers", "laptop")
    ring = KeyFolder(folder)
    folder.chmod(0o777)
    assert ring.refresh()
    assert not ring.admits(CONTROL, laptop)


def test_launchers_command_and_nodes_only_send_data(folder):
    laptop, n1 = admit(folder, "launchers", "laptop"), admit(folder, "nodes", "n1")
    ring = KeyFolder(folder)
    assert (ring.admits(CONTROL, laptop), ring.admits(DATA, laptop)) == (True, True)
    assert (ring.admits(CONTROL, n1), ring.admits(DATA, n1)) == (False, True)
    stranger, _ = new_pair()
    assert not any(ring.admits(port, key) for port in (CONTROL, DATA) for key in (stranger, b""))
    assert not ring.admits("another port", laptop)


def test_nobody_is_somebody_else(folder):
    laptop, n1 = admit(folder, "launchers", "laptop"), admit(folder, "nodes", "n1")
    ring = KeyFolder(folder)
    assert ring.is_key_of(laptop, HOST)
    assert ring.is_key_of(n1, "n1")
    assert not ring.is_key_of(n1, HOST)
    assert not ring.is_key_of(laptop, "n1")
    assert not ring.is_key_of(n1, "n2")
    assert ring.key_of("n1") == n1
    with pytest.raises(KeysError, match=rf"key of node 'n2' is missing.*{folder}/nodes/n2.pub"):
        ring.key_of("n2")


def test_what_changes_counts_at_once(folder):
    ring = KeyFolder(folder)
    assert not ring.refresh()
    n1 = admit(folder, "nodes", "n1")
    assert not ring.admits(DATA, n1)
    assert ring.refresh()
    assert ring.admits(DATA, n1)
    renewed = admit(folder, "nodes", "n1")
    assert ring.refresh()
    assert (ring.admits(DATA, n1), ring.admits(DATA, renewed)) == (False, True)
    (folder / "nodes" / "n1.pub").unlink()
    assert ring.refresh()
    assert not ring.admits(DATA, renewed)


def test_a_file_that_breaks_later_keeps_nobody_else_out(folder):
    n1 = admit(folder, "nodes", "n1")
    ring = KeyFolder(folder)
    (folder / "nodes" / "n2.pub").write_text("half a k")
    assert ring.refresh()
    assert ring.admits(DATA, n1)
    assert "n2.pub does not contain one key" in ring.problems[0]


def test_a_secret_that_breaks_later_changes_nothing(folder):
    n1, secret = admit(folder, "nodes", "n1"), read_secret(folder)
    ring = KeyFolder(folder)
    (folder / "secret.key").chmod(0o644)
    assert ring.refresh()
    assert (ring.secret, ring.admits(DATA, n1)) == (secret, True)
    assert "can be read by other users" in ring.problems[0]
    assert not ring.refresh()


def test_whoever_is_withdrawn_is_out_though_the_secret_came_with_a_wrong_mode(folder):
    laptop = admit(folder, "launchers", "laptop")
    ring = KeyFolder(folder)
    (folder / "secret.key").chmod(0o644)
    (folder / "launchers" / "laptop.pub").unlink()
    assert ring.refresh()
    assert not ring.admits(CONTROL, laptop)


def test_a_folder_that_is_gone_changes_nothing(folder):
    laptop = admit(folder, "launchers", "laptop")
    ring = KeyFolder(folder)
    folder.rename(folder.with_name("elsewhere"))
    assert ring.refresh()
    assert ring.admits(CONTROL, laptop)
    assert "is gone" in ring.problems[0]


def test_a_keyring_in_memory_admits_whom_it_was_given():
    public, secret = new_pair()
    ring = Keyring(secret, nodes={"me": public})
    assert ring.admits(DATA, public)
    assert not ring.admits(CONTROL, public)
    assert not ring.refresh()


# ---------------------------------------------------------------- node-agent keygen


def test_keygen_makes_a_folder_that_an_agent_can_use(tmp_path, capsys):
    assert main(["keygen", "--out", str(tmp_path / "k"), "--name", "n0", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert bytes.fromhex(said["public_key"]) == public_of(KeyFolder(tmp_path / "k").secret)
    assert (tmp_path / "k" / "launchers").is_dir()


def test_keygen_tells_what_to_do_next(tmp_path, capsys):
    assert main(["keygen", "--out", str(tmp_path / "k"), "--name", "n0"]) == 0
    assert "nodes/n0.pub" in capsys.readouterr().out


def test_keygen_overwrites_nothing(tmp_path, capsys):
    main(["keygen", "--out", str(tmp_path / "k")])
    assert main(["keygen", "--out", str(tmp_path / "k")]) == 2
    assert "already exists" in capsys.readouterr().err
