"""What of a cluster.yaml makes another release, and what is refused before anything changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.service.server import write_cluster, write_version
from launcher.errors import BadInputError
from launcher.service.generations import cluster_of, read_generation, release_cluster
from launcher.service.store import Generation, Store, open_state


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    for version in (1, 2):
        write_version(tmp_path, version)
    with open_state(tmp_path / "state") as store:
        yield store


def applied(store: Store, path: Path) -> Generation:
    found = read_generation(path, store, store.generations()).generation
    store.add(found)
    return found


def digests(generation: Generation) -> dict[str, str]:
    return {model.name: model.digest for model in generation.models}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"nodes": []}, "lists no node"),
        ({"strategy": "sequentail"}, "did you mean 'sequential'?"),
        ({"sinks": [{"kind": "stdout"}]}, "answers requests only"),
        ({"input": "rtsp://camera/1"}, "takes no source"),
        ({"serve": {"http": "0.0.0.0:8000"}}, "can be reached from other machines"),
        ({"batch": 3, "pins": {"no*": "n7"}}, "there is no node 'n7'"),
    ],
)
def test_a_mistake_is_refused_and_nothing_is_kept(
    store: Store, tmp_path: Path, change: dict[str, object], sentence: str
) -> None:
    path = write_cluster(tmp_path, ("digits", 1), **change)
    with pytest.raises(BadInputError, match=r"cluster\.yaml") as raised:
        read_generation(path, store, [])
    assert sentence in str(raised.value)
    assert not store.generations()


def test_a_file_that_is_no_network_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "digits1.onnx").write_text("half a file")
    with pytest.raises(BadInputError, match="not an ONNX file"):
        read_generation(write_cluster(tmp_path, ("digits", 1)), store, [])


def test_a_version_has_one_content(store: Store, tmp_path: Path) -> None:
    path = write_cluster(tmp_path, ("digits", 1))
    applied(store, path)
    path.write_text(path.read_text().replace("digits1.onnx", "digits2.onnx"))
    with pytest.raises(BadInputError, match="another network than version 1") as raised:
        applied(store, path)
    assert "write version: 2" in str(raised.value)


def test_what_is_the_same_goes_on_and_what_differs_is_deployed_anew(
    store: Store, tmp_path: Path
) -> None:
    first = applied(store, write_cluster(tmp_path, ("digits", 1)))
    second = applied(store, write_cluster(tmp_path, ("digits", 1), ("other", 2)))
    assert digests(second)["digits"] == digests(first)["digits"]
    third = applied(store, write_cluster(tmp_path, ("digits", 1), ("other", 2), count=3))
    assert set(digests(third).values()).isdisjoint(digests(second).values())
    fourth = applied(store, write_cluster(tmp_path, ("digits", 1), ("other", 2), input="random"))
    assert digests(fourth) == digests(second)


def test_a_generation_has_its_files_whatever_becomes_of_the_users(
    store: Store, tmp_path: Path
) -> None:
    first = applied(store, write_cluster(tmp_path, ("digits", 1)))
    before = (tmp_path / "digits1.onnx").read_bytes()
    applied(store, write_cluster(tmp_path, ("digits", 2)))
    for path in (tmp_path / "cluster.yaml", *tmp_path.glob("*.onnx")):
        path.unlink()
    cluster = release_cluster(store, store.generations(), first.models[0].release)
    (model,) = cluster.models
    assert Path(model.path).read_bytes() == before
    assert (model.name, model.config.version) == ("digits", 1)


def test_the_token_of_serve_is_kept_and_read_by_nobody_else(store: Store, tmp_path: Path) -> None:
    serve = {"http": "127.0.0.1:0", "token": "a-token-of-thirty-characters-ok"}
    kept = applied(store, write_cluster(tmp_path, ("digits", 1), serve=serve))
    assert cluster_of(store, kept).config.serve.token == serve["token"]
    assert not list(store.folder.glob("*.yaml"))


def test_pins_of_several_networks_name_the_network(store: Store, tmp_path: Path) -> None:
    pinned = write_cluster(tmp_path, ("digits", 1), ("other", 2), pins={"conv1": "n0"})
    with pytest.raises(BadInputError, match="NETWORK/LAYER"):
        applied(store, pinned)
    pinned = write_cluster(tmp_path, ("digits", 1), ("other", 2), pins={"other/*": "n0"})
    kept = applied(store, pinned)
    alone = [release_cluster(store, [kept], model.release) for model in kept.models]
    assert [dict(cluster.config.pins) for cluster in alone] == [{}, {"*": "n0"}]
