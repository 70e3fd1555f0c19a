"""A watched folder: what is a frame, in which order, and what becomes of its file."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from launcher.config.ends.source import (
    FrameRefusedError,
    ResumableSource,
    Source,
    SourceFrame,
    SourceLostError,
)
from launcher.errors import BadInputError
from launcher.sources.folder import FolderConfig


def put(path: Path, number: int = 1) -> None:
    """Move an image into a folder."""
    made = path.with_name(f".{path.name}")
    Image.fromarray(np.full((4, 5, 3), number, np.uint8)).save(made, "PNG")
    made.rename(path)


PATIENCE_S = 30.0


def opened(folder: Path, **keys: Any) -> Source:
    """Open a folder; its frames end when patience does, so that a test fails instead of waiting."""
    source = FolderConfig.model_validate({"path": str(folder), **keys}).open(folder)
    end = threading.Timer(PATIENCE_S, source.close)
    end.daemon = True
    end.start()
    return source


@contextmanager
def watching(folder: Path, **keys: Any) -> Iterator[Iterator[SourceFrame]]:
    """The frames of a folder; the watch has begun."""
    frames: Any = opened(folder, **keys).frames()
    with closing(frames):
        yield frames


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with three images."""
    found = tmp_path / "in"
    found.mkdir()
    for name in ("b.png", "c.png", "a.png"):
        put(found / name)
    return found


def test_files_that_are_there_come_first_in_order_of_name(folder: Path) -> None:
    with watching(folder) as frames:
        assert [next(frames).name for _ in range(3)] == ["a.png", "b.png", "c.png"]
        put(folder / "A.png")
        assert next(frames).name == "A.png"


def test_files_that_are_there_can_be_passed_over(folder: Path) -> None:
    source = opened(folder, existing=False)
    put(folder / "new.png", 7)
    frame = next(source.frames())
    assert frame.name == "new.png"
    assert isinstance(frame.data, np.ndarray)
    assert (frame.data == 7).all()


def test_a_file_is_a_frame_when_it_is_closed_and_not_before(folder: Path) -> None:
    with watching(folder) as frames:
        for _ in range(3):
            next(frames)
        content = (folder / "a.png").read_bytes()
        with (folder / "slow.png").open("wb") as slow:
            slow.write(content[:20])
            slow.flush()
            put(folder / "other.png")
            assert next(frames).name == "other.png"
            slow.write(content[20:])
        assert next(frames).name == "slow.png"


def test_a_file_that_is_being_written_at_the_start_is_a_frame_once_it_is_closed(
    folder: Path,
) -> None:
    content = (folder / "a.png").read_bytes()
    with (folder / "0.png").open("wb") as slow:
        slow.write(content[:20])
        slow.flush()
        source = opened(folder)
        with pytest.raises(FrameRefusedError, match=r"0\.png: cannot be read as an image"):
            next(source.frames())
        frames = source.frames()
        assert [next(frames).name for _ in range(3)] == ["a.png", "b.png", "c.png"]
        slow.write(content[20:])
    assert next(frames).name == "0.png"


def test_a_file_that_is_written_again_is_another_frame(folder: Path) -> None:
    with watching(folder, existing=False) as frames:
        for number in (1, 2, 3):
            put(folder / "a.png", number)
            frame = next(frames)
            assert isinstance(frame.data, np.ndarray)
            assert (frame.name, frame.data[0, 0, 0]) == ("a.png", number)


def test_each_file_comes_once_whatever_happens_to_its_attributes(folder: Path) -> None:
    with watching(folder) as frames:
        assert next(frames).name == "a.png"
        (folder / "a.png").chmod(0o600)
        with (folder / "a.png").open("ab"):
            pass  # closed after writing nothing
        assert [next(frames).name for _ in range(2)] == ["b.png", "c.png"]
        put(folder / "d.png")
        assert next(frames).name == "d.png"


def test_arrays_are_the_inputs_of_a_network(folder: Path) -> None:
    with watching(folder, existing=False) as frames:
        np.save(folder / "x.npy", np.arange(6, dtype=">i2").reshape(2, 3, order="F"))
        data = next(frames).data
        assert isinstance(data, dict)
        assert data[""].tolist() == [[0, 2, 4], [1, 3, 5]]
        assert data[""].dtype == np.dtype("int16")
        np.savez(folder / "y.npz", left=np.zeros(2), right=np.float32(3))
        data = next(frames).data
        assert isinstance(data, dict)
        assert {name: array.shape for name, array in data.items()} == {"left": (2,), "right": ()}


def test_hidden_files_and_other_kinds_of_file_are_no_frames(folder: Path) -> None:
    with watching(folder, existing=False) as frames:
        for name in (".hidden.png", "notes.txt", "x.png.part"):
            (folder / name).write_bytes((folder / "a.png").read_bytes())
        (folder / "folder.png").mkdir()
        put(folder / "d.PNG")
        assert next(frames).name == "d.PNG"


def test_a_broken_file_is_refused_and_the_others_come(folder: Path) -> None:
    (folder / "b.png").write_bytes(b"nothing")
    source = opened(folder, after="delete")
    frames = source.frames()
    assert next(frames).name == "a.png"
    with pytest.raises(FrameRefusedError, match=r"in/b\.png: cannot be read as an image: it is n"):
        next(frames)
    frames = source.frames()
    assert next(frames).name == "c.png"
    put(folder / "b.png")
    assert next(frames).name == "b.png"


def test_a_pipe_or_link_to_nowhere_does_not_hang(folder: Path) -> None:
    os.mkfifo(folder / "0.png")
    (folder / "1.png").symlink_to("nowhere")
    source = opened(folder)
    with pytest.raises(FrameRefusedError, match=r"0\.png"):
        next(source.frames())
    assert next(source.frames()).name == "a.png"


def test_files_can_be_deleted_when_they_are_settled(folder: Path) -> None:
    with watching(folder, after="delete") as frames:
        first, second = next(frames), next(frames)
        assert len(os.listdir(folder)) == 3, "no result has been delivered yet"
        second.settle()
        assert sorted(os.listdir(folder)) == ["a.png", "c.png"]
        first.settle()
    assert os.listdir(folder) == ["c.png"]
    with watching(folder, after="delete") as frames:
        assert next(frames).name == "c.png"


def test_a_source_that_continues_after_another_takes_what_that_did_not_settle(
    folder: Path,
) -> None:
    former = opened(folder, existing=False)
    for name in ("d.png", "e.png"):
        put(folder / name)
    frames = former.frames()
    next(frames).settle()
    assert next(frames).name == "e.png"
    former.close()
    put(folder / "f.png")
    source = opened(folder, existing=False)
    assert isinstance(source, ResumableSource)
    source.resume(former)
    frames = source.frames()
    assert [next(frames).name for _ in range(2)] == ["e.png", "f.png"]
    source.close()
    assert not list(frames)


def test_files_can_be_moved_and_none_is_lost_because_of_its_name(folder: Path) -> None:
    done = folder.parent / "done"
    done.mkdir()
    with watching(folder, after="move", move_to=str(done)) as frames:
        for _ in range(3):
            next(frames).settle()
        for name in ("a.png", "d.png", "a.png"):
            put(folder / name, 2)
            frame = next(frames)
            assert frame.name == name
            frame.settle()
    assert sorted(os.listdir(done)) == ["a-1.png", "a-2.png", "a.png", "b.png", "c.png", "d.png"]
    assert os.listdir(folder) == []


@pytest.mark.parametrize("after", ["delete", "move"])
def test_a_file_that_replaces_the_one_that_was_taken_is_a_frame_too(
    folder: Path, after: str
) -> None:
    (folder.parent / "done").mkdir()
    keys = {"after": after, "move_to": str(folder.parent / "done") if after == "move" else None}
    with watching(folder, existing=False, **keys) as frames:
        before: SourceFrame | None = None
        for number in (1, 2, 3):
            put(folder / "new.png", number)
            frame = next(frames)
            assert isinstance(frame.data, np.ndarray)
            assert frame.data[0, 0, 0] == number
            if before is not None:
                before.settle()
            assert (folder / "new.png").exists(), "the file of the former frame has gone already"
            before = frame


def test_a_folder_that_is_gone_is_lost_and_continues_when_it_is_back(folder: Path) -> None:
    source = opened(folder)
    frames = source.frames()
    assert next(frames).name == "a.png"
    folder.rename(folder.with_name("elsewhere"))
    with pytest.raises(SourceLostError, match="in: the folder was moved or deleted"):
        list(frames)  # those that it had found are gone with it
    with pytest.raises(SourceLostError, match="in: cannot be watched: No such file or directory"):
        next(source.frames())
    folder.with_name("elsewhere").rename(folder)
    frames = source.frames()
    assert [next(frames).name for _ in range(2)] == ["b.png", "c.png"]


def test_events_that_the_kernel_drops_lose_no_file(folder: Path) -> None:
    """It keeps so many for a reader; then it says that there were more."""
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    with watching(folder) as frames:
        next(frames)
        for number in range(most // 2 + 10):
            with (folder / f"{number % 2}.txt").open("wb"):
                pass
        put(folder / "late.png")
        assert [next(frames).name for _ in range(3)] == ["b.png", "c.png", "late.png"]


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"path": "nowhere"}, "there is no folder "),
        ({"after": "move", "move_to": "nowhere"}, "there is no folder "),
        ({"after": "move", "move_to": "."}, "cannot be moved from"),
    ],
)
def test_what_can_never_work_is_refused_when_it_is_opened(
    folder: Path, keys: dict[str, str], sentence: str
) -> None:
    with pytest.raises(BadInputError, match=sentence):
        FolderConfig.model_validate({"path": ".", **keys}).open(folder)


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_a_link_to_a_file_is_a_frame_when_it_is_made(
    folder: Path, link: Callable[[Path, Path], None]
) -> None:
    put(folder.parent / "elsewhere.png", 9)
    with watching(folder) as frames:
        for _ in range(3):
            next(frames)
        link(folder.parent / "elsewhere.png", folder / "linked.png")
        put(folder / "later.png")
        found = next(frames)
        assert found.name == "linked.png"
        assert isinstance(found.data, np.ndarray)
        assert (found.data == 9).all()
        assert next(frames).name == "later.png"
