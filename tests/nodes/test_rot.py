"""What a disk has changed is found before it is used: removed, counted, missing like any other."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from queue import SimpleQueue

import pytest

from nodes.cache import blobs as cache
from nodes.cache.blobs import MOST_WAITING, BlobStore, CacheError, Lookups
from nodes.core import events as ev
from nodes.executors.preparing.entries import PreparedFiles
from nodes.protocol.messages import BlobInfo, Deploy, Failed, Missing, Query, Shutdown
from tests.nodes.lone_core import BLOB, DEPLOYMENT
from tests.nodes.speaker import AgentProcess, Speaker

QUOTA = 1 << 20
WAIT_S = 30.0


def put(store: BlobStore, content: bytes) -> str:
    blob = BlobInfo(sha256(content).hexdigest(), len(content))
    assert store.write(blob, 0, content)
    return blob.digest


def rot(path: Path, *, is_seen: bool = True) -> None:
    """Change one bit; `is_seen`: by somebody who writes, not by the disk itself."""
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    if not is_seen:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The digests of blobs that are read, as they are."""
    real, names = cache._sha256, []

    def counted(path: Path, until_s: float) -> str:
        names.append(path.name)
        return real(path, until_s)

    monkeypatch.setattr(cache, "_sha256", counted)
    return names


def test_a_blob_that_has_rotted_is_missing_and_can_be_sent_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    digest, other = (put(BlobStore(tmp_path, QUOTA), text) for text in (b"weights", b"graph"))
    rot(tmp_path / "blobs" / digest, is_seen=False)
    store = BlobStore(tmp_path, QUOTA)
    with caplog.at_level(logging.WARNING):
        assert store.missing([digest, other]) == (digest,)
    assert not (tmp_path / "blobs" / digest).exists()
    assert store.room.damaged == 1
    assert len(caplog.messages) == 1
    assert f"blob {digest} in the cache under {tmp_path} was damaged on disk" in caplog.text
    put(store, b"weights")
    assert store.missing([digest, other]) == ()


@pytest.mark.parametrize("content", [b"", b"weight", b"weights and more"])
def test_a_blob_of_another_length_has_rotted_too(tmp_path: Path, content: bytes) -> None:
    digest = put(BlobStore(tmp_path, QUOTA), b"weights")
    (tmp_path / "blobs" / digest).write_bytes(content)
    assert BlobStore(tmp_path, QUOTA).missing([digest]) == (digest,)


def test_a_blob_is_read_once_per_process_whoever_else_uses_it(
    tmp_path: Path, reads: list[str]
) -> None:
    one = BlobStore(tmp_path, QUOTA)
    digest = put(one, b"weights")
    two = BlobStore(tmp_path, QUOTA)
    for store in (one, two, one, two):
        assert store.missing([digest]) == ()
        store.path(digest)
        store.verify([digest])
    assert reads == [digest], "what came over the network was hashed then"


def test_a_blob_that_somebody_has_written_to_is_read_again(tmp_path: Path) -> None:
    store = BlobStore(tmp_path, QUOTA)
    digest = put(store, b"weights")
    rot(store.path(digest))
    assert store.missing([digest]) == (digest,)


def test_what_nobody_asked_about_is_read_before_it_is_deployed(tmp_path: Path) -> None:
    digest = put(BlobStore(tmp_path, QUOTA), b"weights")
    rot(tmp_path / "blobs" / digest)
    with pytest.raises(CacheError, match="was damaged and has been removed; launch again"):
        BlobStore(tmp_path, QUOTA).verify([digest])


def test_a_look_up_answers_in_time_and_the_rest_is_read_before_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = put(BlobStore(tmp_path, QUOTA), b"weights")
    rot(tmp_path / "blobs" / digest)
    store = BlobStore(tmp_path, QUOTA)
    monkeypatch.setattr(cache, "LOOK_UP_S", -1.0)
    assert store.missing([digest]) == ()
    with pytest.raises(CacheError, match="was damaged"):
        store.verify([digest])


def test_a_blob_that_the_disk_cannot_read_any_more_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = put(BlobStore(tmp_path, QUOTA), b"weights")
    monkeypatch.setattr(cache, "_sha256", lambda *_: "")
    assert BlobStore(tmp_path, QUOTA).missing([digest]) == (digest,)


def test_look_ups_are_answered_in_order_though_the_first_must_be_read(tmp_path: Path) -> None:
    writer = BlobStore(tmp_path, QUOTA)
    digests = [put(writer, bytes([number])) for number in range(9)]
    answers: SimpleQueue[ev.Event] = SimpleQueue()
    store = BlobStore(tmp_path, QUOTA)
    lookups = Lookups(store, answers.put)
    absent = sha256(b"absent").hexdigest()
    expected = []
    for number, digest in enumerate(digests):
        answer = lookups.look_up(b"%d" % number, (digest, absent))
        expected.append(ev.Answered(b"%d" % number, Missing((absent,))))
        if answer is not None:
            answers.put(answer)
    assert [answers.get(timeout=WAIT_S) for _ in digests] == expected
    assert lookups.look_up(b"known", tuple(digests)) == ev.Answered(b"known", Missing(()))


def test_questions_that_wait_are_bounded(tmp_path: Path) -> None:
    digest = put(BlobStore(tmp_path, QUOTA), b"weights")
    answers: SimpleQueue[ev.Event] = SimpleQueue()
    store = BlobStore(tmp_path, QUOTA)
    lookups = Lookups(store, answers.put)
    lookups._is_reading = True  # and is not getting on
    asked = [lookups.look_up(b"", (digest,)) for _ in range(MOST_WAITING + 1)]
    assert asked[:-1] == [None] * MOST_WAITING
    assert isinstance(asked[-1], ev.ChunkFailed)


# ------------------------------------------------------------------------------ derived


def make(files: PreparedFiles, key: str = "key") -> Path:
    with files.making(key) as folder:
        (folder / "model").write_bytes(b"weights")
    return files.root / key


@pytest.mark.parametrize("name", ["model", "entry.json"])
def test_an_entry_that_has_rotted_is_not_found_and_counted(tmp_path: Path, name: str) -> None:
    store = BlobStore(tmp_path, QUOTA)
    entry = make(PreparedFiles(store.derived, store.room))
    rot(entry / name, is_seen=False)
    assert PreparedFiles(store.derived, store.room).find("key") is None
    assert not entry.exists()
    assert store.room.damaged == 1


def test_an_entry_that_somebody_has_written_to_is_read_again(tmp_path: Path) -> None:
    files = PreparedFiles(tmp_path)
    entry = make(files)
    assert files.find("key") == entry
    rot(entry / "model")
    assert files.find("key") is None


def test_an_entry_that_was_evicted_is_not_damaged(tmp_path: Path) -> None:
    store = BlobStore(tmp_path, QUOTA)
    files = PreparedFiles(store.derived, store.room)
    make(files)
    store.room.evict_to(0)
    assert files.find("key") is None
    assert store.room.damaged == 0


# ------------------------------------------------------------------------------ a whole agent


@pytest.fixture
def connected(
    tmp_path: Path, start: Callable[..., AgentProcess], dial: Callable[..., Speaker]
) -> tuple[AgentProcess, Speaker]:
    """An agent with one blob, which is none, and a launcher's session with it."""
    blobs = tmp_path / "cache" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / BLOB.digest).write_bytes(b"what was not written")
    agent = start()
    launcher = dial(agent.control)
    launcher.open_session()
    return agent, launcher


def test_an_agent_counts_what_was_damaged(connected: tuple[AgentProcess, Speaker]) -> None:
    agent, launcher = connected
    assert launcher.ask(Query((BLOB.digest,))) == Missing((BLOB.digest,))
    launcher.say(Shutdown())
    assert agent.report()["damaged_files"] == 1


def test_a_damaged_blob_that_no_launcher_asked_about_is_not_deployed(
    connected: tuple[AgentProcess, Speaker],
) -> None:
    _, launcher = connected
    launcher.say(Deploy(DEPLOYMENT))
    failed = launcher.hear(Failed)
    assert isinstance(failed, Failed)
    assert f"blob {BLOB.digest} is missing from the cache" in failed.reason
    assert "was damaged and has been removed" in failed.reason
    assert launcher.ask(Query((BLOB.digest,))) == Missing((BLOB.digest,))
