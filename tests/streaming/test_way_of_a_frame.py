"""The modules that handle a frame, from its file or camera to the first byte on the wire.

A frame enters a module if one of its functions is given the frame's arrays, or receives them from a
call. What only decides about it by its number, or moves a credit, is not on its way.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from launcher.config.ends.source import SourceFrame
from launcher.progress import LineDisplay
from launcher.run import connections, tensors
from launcher.run.connections import Connections
from launcher.run.request import Request
from launcher.streaming.job import launch
from launcher.streaming.reading import NumberedFrame
from tests.streaming.test_launch import SIZE, write_brightness

MOST = 12

THROUGH_THE_STREAM = (
    "streaming.reading",
    "streaming.overload",
    "streaming.source_stream",
    "tasks.opening",
    "inputs.fitting",
    "run.streamed_results",
    "run.feed",
    "run.tensors",
    "run.host",
    "run.connections",
)


def carries(value: object) -> bool:
    """Whether a value is a frame, or its arrays."""
    if isinstance(value, NumberedFrame | SourceFrame):
        return True
    if isinstance(value, Mapping):
        return any(isinstance(each, np.ndarray) for each in value.values())
    return isinstance(value, np.ndarray)


class Way:
    """Notes the modules that a frame enters, in order, in every thread of a stream or a run that
    begins meanwhile."""

    def __init__(self) -> None:
        self.modules: list[str] = []
        self.is_on_the_wire = False

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        code = frame.f_code
        is_stream = threading.current_thread().name.startswith("csdf-edge ")
        if self.is_on_the_wire or not is_stream or code.co_filename == "<string>":
            return  # "<string>" is a value's constructor
        if event == "call":
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            if any(carries(frame.f_locals.get(name)) for name in names if name != "self"):
                self._entered(frame)
        elif event == "return" and carries(value):
            self._entered(frame)
            if frame.f_back is not None:
                self._entered(frame.f_back)

    def _entered(self, frame: FrameType) -> None:
        package, _, module = str(frame.f_globals.get("__name__")).partition(".")
        if package == "launcher" and module not in self.modules:
            self.modules.append(module)


@contextmanager
def followed(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Way, list[str]]]:
    """The way of the first frame, and the inputs whose shape and dtype were checked."""
    way, checked = Way(), list[str]()
    send, check = Connections.send_tensor, tensors.as_tensor

    def sent(*given: Any) -> None:
        way.modules.append(connections.__name__.removeprefix("launcher."))
        way.is_on_the_wire = True
        send(*given)

    def noted(value: Any, name: str, *rest: Any, **options: Any) -> Any:
        checked.append(name)
        return check(value, name, *rest, **options)

    monkeypatch.setattr(Connections, "send_tensor", sent)
    monkeypatch.setattr(tensors, "as_tensor", noted)
    threading.setprofile(way)
    try:
        yield way, checked
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]


def write_image(folder: Path) -> str:
    Image.fromarray(np.full((SIZE, SIZE, 3), 99, np.uint8)).save(folder / "one.png")
    return "{files: one.png, scale: 1, mean: 0, std: 1}"


def write_array(folder: Path) -> str:
    np.save(folder / "one.npy", np.zeros((1, 3, SIZE, SIZE), np.float32))
    return "{files: one.npy}"


def write_video(folder: Path) -> str:
    with av.open(folder / "one.mkv", "w") as container:
        stream = container.add_stream("ffv1", rate=12)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        picture = np.full((48, 64, 3), 99, np.uint8)
        container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24")))
        container.mux(stream.encode(None))
    return "{source: one.mkv, scale: 1, mean: 0, std: 1}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "first", "left_out"),
    [
        (write_image, ("inputs.images", "sources.files"), ()),
        (write_array, ("inputs.frames", "sources.files"), ("tasks.opening", "inputs.fitting")),
        (write_video, ("sources.decoding",), ()),
    ],
)
def test_a_frame_enters_few_modules_and_is_checked_once(
    write: Callable[[Path], str],
    first: tuple[str, ...],
    left_out: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_brightness(tmp_path / "brightness.onnx")
    path = tmp_path / "cluster.yaml"
    path.write_text(
        f"model: brightness.onnx\ntask: none\nnodes: [{{name: a}}]\ninput: {write(tmp_path)}\n"
        "strategy: sequential\nverify: false\nframes: 1\n"
        "sinks: [{kind: json-lines, path: results.jsonl}]\n"
    )
    with followed(monkeypatch) as (way, checked):
        launch(Request(path), LineDisplay(sys.stderr), started_s=time.monotonic())
    wanted = [*first, *(name for name in THROUGH_THE_STREAM if name not in left_out)]
    assert way.modules == wanted
    assert len(way.modules) <= MOST
    assert checked == ["image"]
