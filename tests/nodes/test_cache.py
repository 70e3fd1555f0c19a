"""A node's blob store: what it promises about content, room, sharing and crashes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodes.cache import blobs as cache
from nodes.cache.blobs import MAX_PARTIAL, BlobStore, CacheError
from nodes.protocol.messages import BlobInfo

QUOTA = 1 << 20


def blob_of(content: bytes) -> BlobInfo:
    return BlobInfo(sha256(content).hexdigest(), len(content))


def put(store: BlobStore, content: bytes) -> str:
    blob = blob_of(content)
    assert store.write(blob, 0, content)
    return blob.digest


def last_used(store: BlobStore, digest: str, time_s: float) -> None:
    os.utime(store.path(digest), (time_s, time_s))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BlobStore]:
    store = BlobStore(tmp_path / "cache", QUOTA)
    yield store
    store.release()


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


# ------------------------------------------------------------------------------ writing


@settings(max_examples=30)
@given(content=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300), max_size=5))
def test_chunks_in_order_make_the_blob(tmp_path_factory, content: bytes, cuts: list[int]) -> None:
    store = BlobStore(tmp_path_factory.mktemp("cache"), QUOTA)
    blob = blob_of(content)
    bounds = [0, *sorted({min(cut, len(content)) for cut in cuts} - {0, len(content)})]
    chunks = [content[a:b] for a, b in zip(bounds, [*bounds[1:], len(content)], strict=True)]
    complete = [store.write(blob, at, chunk) for at, chunk in zip(bounds, chunks, strict=True)]
    assert complete == [False] * (len(chunks) - 1) + [True]
    assert store.path(blob.digest).read_bytes() == content


def test_a_blob_lies_beside_the_others_under_its_digest(store: BlobStore) -> None:
    first, second = put(store, b"graph"), put(store, b"weights")
    assert store.path(first).parent == store.path(second).parent
    assert store.path(first).name == first


def test_a_blob_that_is_here_is_complete_at_once(store: BlobStore) -> None:
    digest = put(store, b"twice")
    assert store.write(BlobInfo(digest, 5), 0, b"tw")
    assert store.path(digest).read_bytes() == b"twice"


def test_missing_keeps_the_order_and_drops_repeats(store: BlobStore) -> None:
    here = put(store, b"here")
    a, b = blob_of(b"a").digest, blob_of(b"b").digest
    assert store.missing([b, here, a, b]) == (b, a)


@pytest.mark.parametrize(
    ("offset", "data", "says"),
    [
        (4, b"6789", "byte 4 arrived instead of byte 5"),
        (6, b"789", "byte 6 arrived instead of byte 5"),
        (5, b"678901", "11 bytes arrived, more than its declared size of 10"),
        (5, b"xxxxx", "SHA-256"),
    ],
    ids=["overlap", "gap", "too long", "wrong hash"],
)
def test_a_wrong_chunk_is_refused_and_all_of_the_blob_forgotten(
    store: BlobStore, offset: int, data: bytes, says: str
) -> None:
    blob = blob_of(b"0123456789")
    assert not store.write(blob, 0, b"01234")
    with pytest.raises(CacheError, match=says):
        store.write(blob, offset, data)
    assert files(store.derived.parent) == set()
    with pytest.raises(CacheError, match="byte 5 arrived instead of byte 0"):
        store.write(blob, 5, b"56789")
    assert store.write(blob, 0, b"0123456789"), "it can be sent again"


def test_offset_zero_starts_again(store: BlobStore) -> None:
    blob = blob_of(b"0123456789")
    assert not store.write(blob, 0, b"wrong")
    assert not store.write(blob, 0, b"01234")
    assert store.write(blob, 5, b"56789")


def test_half_written_blobs_are_bounded(store: BlobStore) -> None:
    for number in range(MAX_PARTIAL):
        assert not store.write(blob_of(b"%02d." % number), 0, b"0")
    with pytest.raises(CacheError, match="partly received"):
        store.write(blob_of(b"one more"), 0, b"o")


@pytest.mark.parametrize(
    "name", ["", "..", "../../etc/passwd", "/etc/passwd", "A" * 64, "0" * 63, "0" * 64 + "\n"]
)
def test_only_digests_are_names(store: BlobStore, name: str) -> None:
    for use in (
        store.path,
        lambda digest: store.missing([digest]),
        lambda digest: store.pin([digest]),
        lambda digest: store.write(BlobInfo(digest, 1), 0, b"x"),
    ):
        with pytest.raises(CacheError, match="not a SHA-256 digest"):
            use(name)


def test_a_blob_that_is_not_here_has_no_path(store: BlobStore) -> None:
    with pytest.raises(CacheError, match="is missing from the cache"):
        store.path("0" * 64)


# ------------------------------------------------------------------------------ room


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    store = BlobStore(tmp_path, 30)
    old, older, new = (put(store, letter * 10) for letter in (b"a", b"b", b"c"))
    for digest, time_s in ((older, 100), (old, 200), (new, 300)):
        last_used(store, digest, time_s)
    put(store, b"d" * 10)
    assert store.missing([old, older, new]) == (older,)


def test_asking_for_a_blob_is_using_it(tmp_path: Path) -> None:
    store = BlobStore(tmp_path, 20)
    asked, other = put(store, b"a" * 10), put(store, b"b" * 10)
    last_used(store, asked, 100)
    last_used(store, other, 200)
    assert store.missing([asked]) == ()
    put(store, b"c" * 10)
    assert store.missing([asked, other]) == (other,)


def test_pinned_blobs_stay_and_then_there_is_no_room(tmp_path: Path) -> None:
    store = BlobStore(tmp_path, 20)
    digests = [put(store, b"a" * 10), put(store, b"b" * 10)]
    store.pin(digests[:1])
    store.pin(digests[1:])
    with pytest.raises(CacheError, match=r"20 bytes .* in use, and 10 more exceed its quota of 20"):
        put(store, b"c" * 10)
    store.unpin()
    put(store, b"c" * 10)


def test_another_agents_pins_hold_too(tmp_path: Path) -> None:
    ours, theirs = BlobStore(tmp_path, 20), BlobStore(tmp_path, 20)
    pinned, free = put(ours, b"a" * 10), put(ours, b"b" * 10)
    last_used(ours, pinned, 100)
    ours.pin([pinned])
    put(theirs, b"c" * 10)
    assert theirs.missing([pinned, free]) == (free,)
    last_used(theirs, pinned, 100)
    ours.release()
    put(theirs, b"d" * 10)
    assert theirs.missing([pinned]) == (pinned,)


def test_a_blob_larger_than_the_quota_is_refused_before_a_byte_is_kept(tmp_path: Path) -> None:
    store = BlobStore(tmp_path, 20)
    kept = put(store, b"a" * 10)
    with pytest.raises(CacheError, match="21 bytes exceed the quota of this node's cache, 20"):
        store.write(BlobInfo("0" * 64, 21), 0, b"x")
    assert store.missing([kept]) == ()


def test_derived_files_count_and_are_evicted(tmp_path: Path) -> None:
    store = BlobStore(tmp_path, 100)
    entry = store.derived / "onnxruntime-1"
    entry.mkdir()
    (entry / "model").write_bytes(b"x" * 60)
    os.utime(entry, (100, 100))
    put(store, b"a" * 50)
    assert not entry.exists()


def test_a_smaller_quota_takes_effect_at_start_up(tmp_path: Path) -> None:
    digest = put(BlobStore(tmp_path, 100), b"a" * 60)
    assert BlobStore(tmp_path, 50).missing([digest]) == (digest,)


def test_a_full_disk_is_said_so(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", no_space)
    with pytest.raises(CacheError, match="No space left on device; make room"):
        store.write(blob_of(b"0123456789"), 0, b"01234")
    assert files(store.derived.parent) == set()


def test_a_root_that_is_no_directory_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="choose another cache directory"):
        BlobStore(tmp_path / "file", QUOTA)


def test_a_disk_that_cannot_be_read_any_more_is_said_so(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A card that dies, a network disk that is gone: no bare error reaches the agent's loop."""
    blob = blob_of(b"0123456789")

    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "utime", fails)
    monkeypatch.setattr(os, "stat", fails)
    monkeypatch.setattr(Path, "stat", fails)  # Python 3.10 keeps an os.stat of its own
    for ask in (
        lambda: store.missing([blob.digest]),
        lambda: store.path(blob.digest),
        lambda: store.write(blob, 0, b"0123456789"),
    ):
        with pytest.raises(CacheError, match="Input/output error; make room"):
            ask()


def test_folders_that_somebody_has_removed_are_made_again(store: BlobStore) -> None:
    put(store, b"0123456789")
    store.derived.parent.rename(store.derived.parent.with_name("elsewhere"))
    digest = blob_of(b"0123456789").digest
    store.pin([digest])
    assert store.missing([digest]) == (digest,)
    put(store, b"0123456789")
    assert store.derived.is_dir()


def test_files_are_counted_as_bytes_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_FILES", 3)
    store = BlobStore(tmp_path, QUOTA)
    first, *others = (put(store, bytes([number])) for number in range(3))
    last_used(store, first, 1.0)
    fourth = put(store, b"four")
    assert store.missing([first, *others, fourth]) == (first,)
    store.pin([*others, fourth])
    with pytest.raises(CacheError, match=r"3 files .* are in use"):
        put(store, b"five")


def test_pins_are_bounded(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_PINNED", 2)
    digests = [blob_of(bytes([number])).digest for number in range(3)]
    store.pin(digests[:2])
    store.pin(digests[:2])
    with pytest.raises(CacheError, match="more than 2 blobs would be in use"):
        store.pin(digests[2:])


# ------------------------------------------------------------------------------ sharing, crashes


def test_two_agents_may_write_the_same_blob_at_once(tmp_path: Path) -> None:
    one, two = BlobStore(tmp_path, QUOTA), BlobStore(tmp_path, QUOTA)
    blob = blob_of(b"0123456789")
    assert not one.write(blob, 0, b"01234")
    assert not two.write(blob, 0, b"012")
    assert one.write(blob, 5, b"56789")
    assert two.write(blob, 3, b"3456789"), "the other has finished it"
    assert files(tmp_path) == {f"blobs/{blob.digest}"}


DIES = """
import os, sys
from pathlib import Path
from nodes.cache.blobs import BlobStore
from nodes.protocol.messages import BlobInfo
store = BlobStore(Path(sys.argv[1]), 1 << 20)
store.pin(["1" * 64])
store.write(BlobInfo("0" * 64, 10), 0, b"01234")
os._exit(9)
"""


def test_what_a_dead_agent_left_is_cleared_and_what_a_living_one_writes_is_not(
    tmp_path: Path,
) -> None:
    living = BlobStore(tmp_path, QUOTA)
    blob = blob_of(b"0123456789")
    assert not living.write(blob, 0, b"01234")
    subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], check=False)
    assert len(files(tmp_path)) == 3
    BlobStore(tmp_path, QUOTA)
    assert len(files(tmp_path)) == 1
    assert living.write(blob, 5, b"56789")


def test_room_that_a_dead_agent_had_taken_is_there_again_for_a_living_one(tmp_path: Path) -> None:
    living = BlobStore(tmp_path, 15)
    subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], check=False)
    put(living, b"0123456789")


def test_files_of_unknown_origin_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "partial").mkdir()
    (tmp_path / "partial" / "notes.txt").write_text("mine")
    BlobStore(tmp_path, QUOTA)
    assert (tmp_path / "partial" / "notes.txt").exists()


def test_what_is_half_written_is_forgotten_when_it_is_released(store: BlobStore) -> None:
    store.write(blob_of(b"0123456789"), 0, b"01234")
    store.pin(["0" * 64])
    store.release()
    assert files(store.derived.parent) == set()
