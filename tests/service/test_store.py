"""What a service keeps on disk, and for how long."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from launcher.errors import BadInputError
from launcher.service import store as module
from launcher.service.events import ModelRelease
from launcher.service.store import (
    KEPT_GENERATIONS,
    Generation,
    KeptModel,
    Store,
    is_locked,
    open_state,
    read_events,
)


def folder_of(version: int) -> str:
    """The name of a folder with files, which is a digest."""
    return f"{version:064x}"


def generation(number: int, version: int) -> Generation:
    """The model `digits` in this version, whose files are in a folder of its name."""
    model = KeptModel(
        "digits", str(version), f"digest {version}", folder_of(version), folder_of(version)
    )
    return Generation(number, 0.0, "/cluster.yaml", f"text {number}", (model,), {"a": None})


def apply(store: Store, number: int, version: int) -> None:
    (store.files / folder_of(version)).mkdir(parents=True, exist_ok=True)
    store.add(generation(number, version))


def test_a_generation_is_read_as_it_was_added_by_the_next_process(tmp_path: Path) -> None:
    with open_state(tmp_path) as store:
        apply(store, 1, 1)
        apply(store, 2, 2)
        store.note_good(ModelRelease("digits", "1", "digest 1", renewal=3))
    with open_state(tmp_path) as again:
        assert again.generations() == [generation(1, 1), generation(2, 2)]
        assert again.last() == generation(2, 2)
        assert again.good() == [ModelRelease("digits", "1", "digest 1")]


def test_the_last_generations_are_kept_with_their_files_and_the_good_one_with_its(
    tmp_path: Path,
) -> None:
    with open_state(tmp_path) as store:
        apply(store, 1, 1)
        store.note_good(ModelRelease("digits", "1", "digest 1"))
        for number in range(2, 40):
            apply(store, number, number)
        kept = [each.number for each in store.generations()]
        assert kept == [1, *range(40 - KEPT_GENERATIONS, 40)]
        assert {folder.name for folder in store.files.iterdir()} == {
            folder_of(each) for each in kept
        }
        store.forget_good("digits")
        apply(store, 40, 40)
        assert store.generations()[0].number == 41 - KEPT_GENERATIONS


def test_the_history_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_EVENTS", 5)
    with open_state(tmp_path) as store:
        for number in range(12):
            store.add_event(float(number), "info", f"event {number}")
        assert [event.text for event in store.events()] == [f"event {n}" for n in range(7, 12)]
        assert [event.number for event in store.events(after=10)] == [11, 12]
    assert [event.text for event in read_events(tmp_path, 2)] == ["event 10", "event 11"]


def test_it_is_known_which_generations_have_served(tmp_path: Path) -> None:
    with open_state(tmp_path) as store:
        for number in (1, 2, 3):
            apply(store, number, number)
        store.note_served(2)
        assert [each.number for each in store.generations() if each.has_served] == [2]
    with open_state(tmp_path) as again:
        assert [each.number for each in again.generations() if each.has_served] == [2]
        for number in range(4, 40):
            apply(again, number, number)
        kept = [each.number for each in again.generations()]
        assert kept == [2, *range(40 - KEPT_GENERATIONS, 40)], "one that has served is kept"


def test_of_a_state_of_an_earlier_version_all_but_the_last_have_served(tmp_path: Path) -> None:
    with open_state(tmp_path) as store:
        for number in (1, 2, 3):
            apply(store, number, number)
    with sqlite3.connect(tmp_path / "state.sqlite3") as database:
        database.execute("DROP TABLE served")
    database.close()
    with open_state(tmp_path) as again:
        assert [each.number for each in again.generations() if each.has_served] == [1, 2]


def test_one_process_keeps_a_folder(tmp_path: Path) -> None:
    with open_state(tmp_path):
        assert is_locked(tmp_path)
        with (
            pytest.raises(BadInputError, match="the service is already running"),
            open_state(tmp_path),
        ):
            pass
    assert not is_locked(tmp_path)
    assert not is_locked(tmp_path / "elsewhere")


@pytest.mark.parametrize("content", [b"no database at all, but text", bytes(4096)])
def test_what_is_no_state_is_refused_with_a_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.sqlite3").write_bytes(content)
    with (
        pytest.raises(BadInputError, match="is damaged, or not a database") as raised,
        open_state(tmp_path),
    ):
        pass
    assert "name another folder by --state" in str(raised.value)


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with open_state(folder):
        assert folder.stat().st_mode & 0o777 == 0o700
        assert (folder / "state.sqlite3").stat().st_mode & 0o777 == 0o600


def test_what_a_killed_process_was_writing_is_removed(tmp_path: Path) -> None:
    left = (".control.json.123",)
    for name in (*left, "notes.txt"):
        (tmp_path / name).write_text("token: secret\n")
    with open_state(tmp_path):
        found = {path.name for path in tmp_path.iterdir()}
    assert found.isdisjoint(left)
    assert "notes.txt" in found
