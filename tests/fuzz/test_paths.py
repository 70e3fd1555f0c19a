"""No path that is given from outside ever leaves its folder: of any text whatsoever as a name, only
what lies below that folder is opened, made or removed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnn.errors import CnnError
from cnn.reading.source import locate
from launcher.errors import BadInputError
from launcher.plan.files import PLAN, read_plan
from nodes.cache.blobs import BlobStore, CacheError
from nodes.executors.base import ExecutorError
from nodes.executors.onnx.file import check_optimised, inspect
from nodes.protocol.messages import BlobInfo
from tests.fuzz.good import PLANS
from tests.fuzz.model_files import LOCATIONS, external, lay_out, plain
from tests.fuzz.opened import leads_out, opened

PARTS = st.sampled_from(
    ["..", ".", "", "/", "w.bin", "parts", "inside", "outside", "up", "circle", "etc", "passwd",
     "~", "secret", "\0", "\\", "…", "\n", "%2e%2e", "a" * 64, "x" * 300, "proc", "self", "fd", "0"]
)  # fmt: skip
NAMES = st.one_of(
    st.sampled_from(LOCATIONS),
    st.lists(PARTS, max_size=8).map("/".join),
    st.lists(PARTS, max_size=4).map("".join),
    st.text(max_size=20),
)
"""Names of files that nobody should be led by."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model's folder: what may be opened, beside what may not."""
    return lay_out(tmp_path_factory.mktemp("paths"))


@contextmanager
def kept_inside(folder: Path) -> Iterator[None]:
    """Nothing elsewhere is opened, nor was anything there made or removed."""
    around = {path for path in folder.parent.rglob("*") if folder not in path.parents}
    with opened() as paths:
        yield
    assert leads_out(paths, folder) == []
    assert around == {path for path in folder.parent.rglob("*") if folder not in path.parents}


def model(folder: Path, location: str) -> Path:
    proto = plain()
    proto.graph.initializer[0].CopyFrom(external("w", location))
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_a_path_that_leaves_is_noticed(place: Path) -> None:
    """Else the tests below could not fail."""
    for way in ("up/secret", "outside", "../secret"):
        with pytest.raises(AssertionError), kept_inside(place):
            (place / way).read_bytes()
    with pytest.raises(AssertionError), kept_inside(place):
        (place.parent / "made").touch()
    (place.parent / "made").unlink()


@given(location=NAMES)
def test_of_the_model_files_of_an_agent(place: Path, location: str) -> None:
    path = model(place, location)
    for look_through in (inspect, check_optimised):
        with kept_inside(place):
            try:
                look_through(path)
            except ExecutorError:
                continue
        assert location in ("w.bin", "a" * 64), "a plain name of a file that is there"


@given(location=NAMES)
def test_of_the_external_weights_of_the_launcher(place: Path, location: str) -> None:
    path = model(place, location)
    with kept_inside(place):
        try:
            _, weights, _ = locate(path).load()
        except CnnError:
            return
    assert weights["w"].nbytes == 432


@given(
    name=NAMES,
    key=st.sampled_from(["model", "model_digest", "strategy", "explanation", "assignment"]),
)
def test_of_a_saved_plan(place: Path, name: str, key: str) -> None:
    """Models and nodes that it names are compared with those that are there, never opened."""
    data = json.loads(PLANS[0])
    data[key] = {name: [name]} if key == "assignment" else name
    (place / PLAN).write_text(json.dumps(data))
    with kept_inside(place):
        try:
            read_plan(place)
        except BadInputError:
            return


@given(digest=NAMES, content=st.binary(max_size=9))
def test_of_the_digests_of_blobs(
    tmp_path_factory: pytest.TempPathFactory, digest: str, content: bytes
) -> None:
    root = tmp_path_factory.mktemp("agent") / "cache"
    store = BlobStore(root, 1 << 20)
    with kept_inside(root):
        for use in (
            lambda: store.write(BlobInfo(digest, len(content)), 0, content),
            lambda: store.path(digest),
            lambda: store.pin([digest]),
        ):
            with suppress(CacheError):
                use()
                assert digest == "a" * 64, "nothing else here is a digest"
        store.release()
    good = sha256(content).hexdigest()
    assert store.write(BlobInfo(good, len(content)), 0, content)
    assert store.path(good) == root / "blobs" / good
