"""The agent's shell with a real cache: a launcher that leaves early must not harm the next one."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from nodes.agent import Shell
from nodes.cache.blobs import MAX_PARTIAL, BlobStore
from nodes.core import events as ev
from nodes.protocol.messages import (
    PROTOCOL,
    Attach,
    BlobInfo,
    Bye,
    Deploy,
    Failed,
    GetTrace,
    Hello,
    Missing,
    Put,
    Query,
    Stored,
    TensorHeader,
    Traced,
    Welcome,
)
from tests.nodes.lone_core import DEPLOYMENT
from tests.nodes.test_worker import Engine

QUOTA = 1 << 20
LAUNCHER = b"launcher"


class Script:
    """A wire on which what a launcher is to say lies ready; what it is told is kept."""

    is_guarded = has_new_secret = False

    def __init__(self, says: list[object | Callable[[], None]]) -> None:
        self.says = deque(says)
        self.told: list[object] = []

    def wait(self, _: float | None) -> list[ev.Event]:
        said = self.says.popleft()
        if callable(said):
            said()
            return []
        return [said if isinstance(said, ev.DataReceived) else ev.ControlReceived(LAUNCHER, said)]

    def reply(self, _: bytes, message: object, __: int) -> bool:
        self.told.append(message)
        return True

    def watch(self, descriptor: int) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "cache", QUOTA)


def told(store: BlobStore, *says: object | Callable[[], None]) -> list[object]:
    """What an agent with this cache answers, until it is stopped after the last of these."""
    wire = Script([Hello(PROTOCOL, "one", 5.0), *says, lambda: shell.stop("done")])
    identity = Welcome(PROTOCOL, "n0", "1", "ipc:///nowhere", "engine", "machine", 1, 1)
    with Shell(identity, wire, store, Engine()) as shell:
        assert shell.run().why == "done"
    return wire.told


def files(store: BlobStore) -> set[str]:
    root = store.derived.parent
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def halves() -> list[Put]:
    contents = [b"%02d." % number for number in range(MAX_PARTIAL)]
    return [Put(BlobInfo(sha256(c).hexdigest(), len(c)), 0, c[:1]) for c in contents]


def test_uploads_cut_short_are_forgotten_with_their_session(store: BlobStore) -> None:
    left: list[set[str]] = []
    content = b"one more"
    blob = BlobInfo(sha256(content).hexdigest(), len(content))
    answers = told(
        store,
        *halves(),
        Bye(),
        lambda: left.append(files(store)),
        Hello(PROTOCOL, "two", 5.0),
        Put(blob, 0, content),
    )
    assert left == [set()]
    assert answers[-1] == Stored(blob.digest, 0, complete=True)


def test_a_trace_ends_with_the_session_that_asked_for_it(store: BlobStore) -> None:
    came = ev.DataReceived(b"link", TensorHeader(5, 0, 0, "float32", (1,)), b"1234", 4)
    attach = ev.DataReceived(b"link", Attach(5, "n9"), None, 0)
    answers = told(
        store,
        attach,
        *(came, GetTrace(1), came, GetTrace(2), came),
        Bye(),
        *(came, Hello(PROTOCOL, "two", 5.0), came, GetTrace(1), came, GetTrace(2)),
    )
    lengths = [len(answer.events) > 0 for answer in answers if isinstance(answer, Traced)]
    assert lengths == [False, True, False, True]


def test_what_was_asked_for_and_never_deployed_may_be_evicted_after_the_session(
    store: BlobStore,
) -> None:
    blob = BlobInfo(sha256(b"asked").hexdigest(), 5)
    assert store.write(blob, 0, b"asked")
    during: list[set[str]] = []
    after: list[set[str]] = []
    answers = told(
        store,
        Query((blob.digest,)),
        lambda: during.append({name.partition("/")[0] for name in files(store)}),
        Bye(),
        lambda: after.append({name.partition("/")[0] for name in files(store)}),
    )
    assert answers[-1] == Missing(())
    assert (during, after) == ([{"blobs", "pins"}], [{"blobs"}])


def test_a_cache_that_cannot_be_cleaned_is_reported_and_the_agent_continues(
    store: BlobStore, caplog: pytest.LogCaptureFixture
) -> None:
    def spoil() -> None:
        store.derived.rmdir()
        store.derived.write_text("")

    with caplog.at_level(logging.WARNING):
        answers = told(
            store,
            Deploy(DEPLOYMENT),
            spoil,
            Bye(),
            Hello(PROTOCOL, "two", 5.0),
        )
    assert [type(answer) for answer in answers] == [Welcome, Failed, Welcome]
    assert "cannot be written under" in caplog.text
