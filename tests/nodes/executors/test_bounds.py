"""What preparing may take, whatever the network: disk under the cache's quota, memory that is free.

A few bytes of a network can ask for any number: optimisers compute what is constant.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from csdf_edge.testing import executor_models as models
from nodes.cache.blobs import BlobStore
from nodes.executors.base import ExecutorError, LoadOptions
from nodes.executors.onnx.file import inspect
from nodes.executors.onnx.optimise import needed_bytes
from nodes.executors.onnx.runtime import OnnxRuntimeExecutor
from nodes.executors.preparing import process as preparing
from nodes.executors.preparing.entries import Job, NoRoomError, PreparedFiles
from nodes.executors.preparing.process import PreparingProcess
from nodes.protocol.messages import BlobInfo
from tests.arm64.marks import not_in_qemu
from tests.nodes.executors.test_onnx_runtime import wide
from tests.nodes.test_sandbox import is_offered

OPTIONS = LoadOptions()
QUOTA = 20_000_000
FITS, TOO_MUCH = 3_000_000, 30_000_000


def fold_reverse_channels(floats: int) -> bytes:
    """x + a constant of so many floats, which is made by an operator."""
    return models.model(
        f"of {floats}",
        [
            helper.make_node("ConstantOfShape", ["size"], ["constant"]),
            helper.make_node("Add", ["x", "constant"], ["y"]),
        ],
        [("x", TensorProto.FLOAT, [1])],
        [("y", TensorProto.FLOAT, [floats])],
        {"size": np.array([floats], np.int64)},
    ).SerializeToString()


def put(store: BlobStore, content: bytes) -> Path:
    blob = BlobInfo(sha256(content).hexdigest(), len(content))
    store.pin([blob.digest])
    assert store.write(blob, 0, content)
    return store.path(blob.digest)


def disk_bytes(root: Path) -> int:
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BlobStore]:
    store = BlobStore(tmp_path / "cache", QUOTA)
    yield store
    store.release()


@pytest.fixture
def engine(store: BlobStore) -> Iterator[OnnxRuntimeExecutor]:
    engine = OnnxRuntimeExecutor(store.derived, room=store.room)
    if engine.describe() != f"ONNX Runtime {onnxruntime.__version__} (CPU)":
        pytest.skip("this machine computes on a GPU")
    yield engine
    engine.close()


def test_constants_that_fit_are_kept_though_more_than_was_guessed(
    store: BlobStore, engine: OnnxRuntimeExecutor
) -> None:
    engine.prepare([put(store, fold_reverse_channels(FITS))], OPTIONS)
    assert 4 * FITS < disk_bytes(store.room.root) <= QUOTA


def test_constants_beyond_the_quota_end_in_a_sentence_and_leave_nothing(
    store: BlobStore, engine: OnnxRuntimeExecutor
) -> None:
    graph = put(store, fold_reverse_channels(TOO_MUCH))
    with pytest.raises(
        NoRoomError, match=rf"subnet of {TOO_MUCH}: .* quota of 20.0 MB; raise the quota"
    ):
        engine.prepare([graph], OPTIONS)
    assert not list(store.derived.iterdir())
    assert not list(store.room.partial.iterdir())


def test_many_networks_whose_constants_fit_one_by_one_stay_under_the_quota(
    store: BlobStore, engine: OnnxRuntimeExecutor
) -> None:
    graphs = [put(store, fold_reverse_channels(FITS + number)) for number in range(3)]
    with pytest.raises(NoRoomError, match="quota"):
        engine.prepare(graphs, OPTIONS)
    assert disk_bytes(store.room.root) <= QUOTA
    store.unpin()
    engine.prepare([put(store, fold_reverse_channels(FITS + 3))], OPTIONS)
    assert disk_bytes(store.room.root) <= QUOTA


def test_others_are_evicted_for_what_is_needed(store: BlobStore) -> None:
    engine = OnnxRuntimeExecutor(store.derived, room=store.room)
    for number in range(4):
        store.unpin()
        engine.prepare([put(store, fold_reverse_channels(FITS + number))], OPTIONS)
        assert disk_bytes(store.room.root) <= QUOTA
    engine.close()


def test_a_disk_that_fills_up_while_an_engine_writes_is_said_so(tmp_path: Path) -> None:
    small = tmp_path / "disk"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount file systems")
    try:
        store = BlobStore(small / "cache", QUOTA)
        engine = OnnxRuntimeExecutor(store.derived, room=store.room)
        with pytest.raises(ExecutorError, match="No space left on device; make room"):
            engine.prepare([put(store, fold_reverse_channels(FITS))], OPTIONS)
        assert not list(store.derived.iterdir())
        engine.close()
        store.release()
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True)


def test_two_agents_that_reserve_at_once_get_no_more_than_there_is(tmp_path: Path) -> None:
    one, two = BlobStore(tmp_path, 100).room, BlobStore(tmp_path, 100).room
    with one.reserve(60) as first, two.reserve(60) as second:
        assert (first, second) == (60, 40)
        with pytest.raises(Exception, match=r"100 bytes .* are in use, and 1 more"):
            BlobStore(tmp_path, 100).write(BlobInfo("0" * 64, 1), 0, b"x")
    with one.reserve(1000) as all_of_it:
        assert all_of_it == 100


HANGS = """
import os
import sys
from pathlib import Path
from nodes.executors.preparing.entries import PreparedFiles
with PreparedFiles(Path(sys.argv[1])).making("never") as folder:
    (folder / "model").write_bytes(bytes(1000))
    sys.stdin.readline()
    os.kill(os.getpid(), 9)
"""


def test_a_child_that_is_killed_leaves_neither_files_nor_reservations(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = subprocess.Popen

    def hangs(_: object, **options: object) -> subprocess.Popen[str]:
        return real([sys.executable, "-c", HANGS, str(store.derived)], **options)

    monkeypatch.setattr(subprocess, "Popen", hangs)
    child = PreparingProcess("tensorrt", "", PreparedFiles(store.derived, store.room))
    with pytest.raises(ExecutorError, match="was killed"):
        child.make([Job(Path("/nowhere"), "s", "k")], OPTIONS, lambda _: None)
    assert not list(store.derived.iterdir())
    assert not list(store.room.partial.iterdir())


LOOKS_AROUND = """
import resource, sys
from nodes.executors.base import ExecutorError
from nodes.executors.preparing import child

def look_around(*_):
    bounded = resource.getrlimit(resource.RLIMIT_DATA)[0] != resource.RLIM_INFINITY
    try:
        open("/etc/passwd").close()
        raise ExecutorError(f"every file, bounded={bounded}")
    except PermissionError:
        raise ExecutorError(f"its own files, bounded={bounded}")

child._maker = lambda place: look_around
child.room_bytes = lambda: 1 << 30
child.work(sys.stdin, sys.stdout)
"""


@pytest.mark.skipif(not is_offered(), reason="this kernel offers no Landlock")
@pytest.mark.parametrize(
    ("uses_driver", "says"),
    [(False, "its own files, bounded=True"), (True, "every file, bounded=False")],
)
def test_a_child_is_confined_and_bounded_unless_it_needs_a_driver(
    store: BlobStore,
    monkeypatch: pytest.MonkeyPatch,
    uses_driver: bool,
    says: str,
) -> None:
    monkeypatch.setattr(preparing, "CHILD", (sys.executable, "-c", LOOKS_AROUND))
    files = PreparedFiles(store.derived, store.room)
    child = PreparingProcess("engine", "", files, uses_driver=uses_driver)
    with pytest.raises(ExecutorError, match=says):
        child.make([Job(store.derived / "graph", "s", "k")], OPTIONS, lambda _: None)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("raise OSError('the card is broken')", r"\(exit code 1\): OSError: the card is broken$"),
        pytest.param(
            "import os, sys; print('a\\nwhat(): b\\n', file=sys.stderr); os.abort()",
            r"what\(\): b$",
            marks=not_in_qemu,
        ),
        ("import sys; sys.stderr.write('x' * 10**6); sys.exit(3)", r"\(exit code 3\): x{500}$"),
        ("import sys; sys.exit(3)", r"\(exit code 3\)$"),
    ],
)
def test_the_last_words_of_a_child_that_ends_are_said(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch, script: str, says: str
) -> None:
    monkeypatch.setattr(preparing, "CHILD", (sys.executable, "-c", script))
    child = PreparingProcess("tensorrt", "", PreparedFiles(store.derived, store.room))
    with pytest.raises(ExecutorError, match=says):
        child.make([Job(store.derived / "graph", "s", "k")], OPTIONS, lambda _: None)
    assert not list(store.derived.iterdir())


CHILD = """
import sys
from nodes.executors.preparing import child
child.room_bytes = lambda: int(sys.argv[1])
child._LEAST_MEMORY_BYTES = 0
child.work(sys.stdin, sys.stdout)
"""


@pytest.fixture
def leave_free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let children that are started from now on find so many bytes of memory free."""

    def leave(free_bytes: int) -> None:
        command = (sys.executable, "-c", CHILD, str(free_bytes))
        monkeypatch.setattr(preparing, "CHILD", command)

    return leave


@not_in_qemu
def test_constants_beyond_what_memory_is_free_cost_a_sentence_and_no_process(
    tmp_path: Path, leave_free: Callable[[int], None]
) -> None:
    """It holds the constant (60 MB) and a copy that it writes."""
    store = BlobStore(tmp_path / "cache", 1 << 30)
    graph = put(store, fold_reverse_channels(15_000_000))
    leave_free(90_000_000)
    engine = OnnxRuntimeExecutor(store.derived, room=store.room)
    with pytest.raises(ExecutorError, match=r"subnet of 15000000: .* than the 90 MB of memory"):
        engine.prepare([graph], OPTIONS)
    engine.prepare([put(store, fold_reverse_channels(1000))], OPTIONS)
    engine.close()
    store.release()


@pytest.mark.parametrize("floats", [10**10, 10**13, 10**18])
def test_a_constant_that_no_machine_holds_is_refused_when_the_subnet_first_runs(
    store: BlobStore, engine: OnnxRuntimeExecutor, floats: int
) -> None:
    """ONNX Runtime leaves it uncomputed until then."""
    with pytest.raises(ExecutorError, match=rf"subnet of {floats}: .* of memory that are free"):
        engine.prepare([put(store, fold_reverse_channels(floats))], OPTIONS)
    assert not list(store.derived.iterdir())


def test_a_network_is_prepared_fully_in_what_it_is_said_to_need(
    tmp_path: Path, leave_free: Callable[[int], None]
) -> None:
    _, proto = wide(megabytes=16)
    graph = models.save(proto, tmp_path)
    leave_free(needed_bytes(inspect(graph)))
    engine = OnnxRuntimeExecutor(tmp_path / "derived")
    engine.prepare([graph], OPTIONS)
    (entry,) = (tmp_path / "derived").iterdir()
    assert not Job.is_light_key(entry.name)
    engine.close()
