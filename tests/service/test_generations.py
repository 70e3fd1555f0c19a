"""What of a cluster.yaml makes another release, and what is refused before anything changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.service.server import write_cluster, write_version
from launcher.commands.service.commands import _unsettled
from launcher.errors import BadInputError
from launcher.service.generations import (
    cluster_of,
    ends_key,
    ends_of,
    read_generation,
    release_cluster,
    rollback_target,
)
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
        ({"sinks": [{"kind": "images", "path": "out"}]}, "needs images"),
        ({"sinks": [{"kind": "stdout", "network": "digit"}]}, "did you mean 'digits'?"),
        ({"input": {"source": {"kind": "folder", "path": "cluster.yaml"}}}, "there is no folder"),
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
    with pytest.raises(BadInputError, match="differs from its version 1") as raised:
        applied(store, path)
    assert "write version: 2" in str(raised.value)


def test_what_is_the_same_continues_and_what_differs_is_deployed_again(
    store: Store, tmp_path: Path
) -> None:
    first = applied(store, write_cluster(tmp_path, ("digits", 1)))
    second = applied(store, write_cluster(tmp_path, ("digits", 1), ("other", 2)))
    assert digests(second)["digits"] == digests(first)["digits"]
    third = applied(store, write_cluster(tmp_path, ("digits", 1), ("other", 2), count=3))
    assert set(digests(third).values()).isdisjoint(digests(second).values())
    fourth = applied(store, write_cluster(tmp_path, ("digits", 1), ("other", 2), input="random"))
    assert digests(fourth) == digests(second)


def test_a_source_and_sinks_are_those_of_one_model_and_deploy_nothing_anew(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "gate").mkdir()
    first = applied(store, write_cluster(tmp_path, ("digits", 1), ("other", 2)))
    ends = {
        "inputs": {"other": {"source": {"kind": "folder", "path": "gate"}}},
        "sinks": [
            {"kind": "json-lines", "path": "digits.jsonl", "network": "digits"},
            {"kind": "json-lines", "path": "other.jsonl", "network": "other"},
        ],
        "on_overload": "drop-oldest",
    }
    second = applied(store, write_cluster(tmp_path, ("digits", 1), ("other", 2), **ends))
    assert digests(second) == digests(first)
    cluster = cluster_of(store, second)
    digits, other = (ends_of(cluster, model) for model in cluster.models)
    assert digits is not None
    assert other is not None
    assert digits.config.input.source is None
    assert [len(own.config.sinks) for own in (digits, other)] == [1, 1]
    assert getattr(other.config.sinks[0], "path") == str(tmp_path / "other.jsonl")  # noqa: B009
    assert getattr(other.config.input.source, "path") == str(tmp_path / "gate")  # noqa: B009
    assert ends_key(digits) != ends_key(other)
    unnamed = digits.changed(sinks=(digits.config.sinks[0].model_copy(update={"network": None}),))
    assert ends_key(unnamed) == ends_key(digits), "the sinks are this model's in either case"
    alone = cluster_of(store, first)
    assert [ends_of(alone, model) for model in alone.models] == [None, None]


def test_a_rollback_takes_back_a_change_of_sinks_alone(store: Store, tmp_path: Path) -> None:
    for name in ("one", "other"):
        sinks = [{"kind": "json-lines", "path": f"{name}.jsonl"}]
        generation = applied(store, write_cluster(tmp_path, ("digits", 1), sinks=sinks))
        store.note_served(generation.number)
    first, _second = known = store.generations()
    assert rollback_target(known, None).number == first.number


def test_keys_are_the_same_whatever_the_path_of_the_file(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_cluster(tmp_path, ("digits", 1), keys="keys")
    first = applied(store, path)
    monkeypatch.chdir(tmp_path)
    assert digests(applied(store, Path(path.name))) == digests(first)


def test_a_service_that_has_not_begun_with_a_generation_is_waited_for() -> None:
    status = {"generation": 4, "origin": "applied", "models": []}
    assert _unsettled(status, 5) == (True, [])
    assert _unsettled(status, 4) == (False, [])
    waiting, (sentence,) = _unsettled(status, 3)
    assert not waiting
    assert "before another command replaced it by generation 4" in sentence


def test_of_several_models_a_sink_names_its_own(store: Store, tmp_path: Path) -> None:
    sinks = [{"kind": "stdout"}]
    path = write_cluster(tmp_path, ("digits", 1), ("other", 2), sinks=sinks)
    with pytest.raises(BadInputError, match=r"several networks are served.*network: digits"):
        applied(store, path)


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
