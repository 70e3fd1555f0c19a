"""Arrays and images one after the other in a pipe, whole, cut off and broken."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from PIL import Image

from launcher.config.ends.source import FrameRefusedError, SourceFrame
from launcher.errors import BadInputError, LauncherError
from launcher.sources.stdin import PipeSource
from tests.sources.media import FFMPEG, bars, number_in


@contextmanager
def pipe_of(content: bytes, chunk: int = 1 << 20) -> Iterator[PipeSource]:
    """A source that another thread writes to, `chunk` bytes at a time."""
    reading, writing = os.pipe()

    def write() -> None:
        with open(writing, "wb", buffering=0) as file:
            for begin in range(0, len(content), chunk):
                file.write(content[begin : begin + chunk])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield PipeSource(reading, "standard input")
    finally:
        while os.read(reading, 1 << 20):
            pass
        thread.join()
        os.close(reading)


def read(content: bytes, chunk: int = 1 << 20) -> tuple[list[SourceFrame], LauncherError | None]:
    """All frames before an error that ends the source, and the error."""
    found: list[SourceFrame] = []
    with pipe_of(content, chunk) as source:
        try:
            for frame in source.frames():
                found.append(frame)  # noqa: PERF402 - those before the error count
        except LauncherError as error:
            return found, error
    return found, None


def array(*shape: int, dtype: str = "float32", fortran: bool = False) -> bytes:
    file = io.BytesIO()
    values = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    np.save(file, np.asfortranarray(values) if fortran else values)
    return file.getvalue()


def jpeg(number: int, **settings: Any) -> bytes:
    file = io.BytesIO()
    noise = np.random.default_rng(number).integers(0, 255, (40, 60, 3), np.uint8)
    Image.fromarray(noise).save(file, "JPEG", **settings)
    return file.getvalue()


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_arrays_and_images_come_in_order_however_the_bytes_arrive(chunk: int) -> None:
    content = b"".join(
        (
            array(2, 3), jpeg(1), array(3, dtype=">f8"), jpeg(2, progressive=True),
            jpeg(3, restart_marker_blocks=1), array(2, 2, fortran=True), array(),
            jpeg(4, comment=b"\xff\xd9\xff\xda"),
        )
    )  # fmt: skip
    found, error = read(content, chunk)
    assert error is None
    shapes = [
        (*frame.data.keys(), *frame.data[""].shape)
        if isinstance(frame.data, dict)
        else np.shape(frame.data)  # type: ignore[arg-type]
        for frame in found
    ]
    image = (40, 60, 3)
    assert shapes == [("", 2, 3), image, ("", 3), image, image, ("", 2, 2), ("",), image]
    assert {frame.name for frame in found} == {""}


def test_an_image_is_the_one_that_pillow_decodes() -> None:
    (frame,), _ = read(jpeg(1))
    wanted = np.asarray(Image.open(io.BytesIO(jpeg(1))).convert("RGB"))
    assert np.array_equal(frame.data, wanted)  # type: ignore[arg-type]


def test_ffmpeg_can_pipe_its_frames_in() -> None:
    command = [FFMPEG, "-loglevel", "error", *bars(), "-frames:v", "20", "-f", "mjpeg", "-"]
    found, error = read(subprocess.check_output(command, stdin=subprocess.DEVNULL))
    assert error is None
    numbers = [number_in(frame.data) for frame in found]  # type: ignore[arg-type]
    assert numbers == list(range(20))


@pytest.mark.parametrize("last", [array(20, 30), jpeg(2), jpeg(2, progressive=True)])
def test_an_input_that_ends_within_a_frame_is_an_error_that_says_so(last: bytes) -> None:
    for cut in (1, 2, 5, len(last) // 2, len(last) - 12, len(last) - 1):
        found, error = read(jpeg(1) + last[:cut])
        assert len(found) == 1
        assert isinstance(error, BadInputError)
        assert str(error).startswith("standard input, frame 1: ")
        assert "ends in the middle of it" in str(error)


def test_nothing_at_all_is_no_frame() -> None:
    assert read(b"") == ([], None)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"GIF89a..", "frame 0: it begins neither as an .npy array nor as a JPEG image"),
        (jpeg(1) + b"\n" + jpeg(2), "frame 1: it begins neither as an .npy array nor as a JPEG"),
        (b"\xff\xd8\xff\xe0\x00\x02zz", "frame 0: it is not a valid JPEG image"),
        (array(3)[:6] + b"\x09\x00" + array(3)[8:], "frame 0: its format 9.0 is not for plain"),
        (array(3, dtype="complex64"), "frame 0: it holds complex64 instead of numbers"),
        (array(3, dtype="O"), "frame 0: it holds Python objects"),
        (
            array(3).replace(b"(3,), ", b"(99999999999,), ", 1)[:400],
            "frame 0: it declares 399999999996 bytes of data, but has or may have only 536870912",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_a_frame_ends_the_source_with_a_sentence(
    content: bytes, sentence: str
) -> None:
    _, error = read(content)
    assert isinstance(error, BadInputError)
    assert sentence in str(error)


def test_a_source_that_cannot_continue_says_so_again() -> None:
    with pipe_of(b"nothing") as source:
        for _ in range(2):
            with pytest.raises(BadInputError, match="it begins neither"):
                list(source.frames())


def test_a_broken_image_between_others_is_refused_alone() -> None:
    broken = jpeg(2).replace(b"\xff\xc0\x00\x11\x08\x00\x28", b"\xff\xc0\x00\x11\x08\xff\xff", 1)
    with pipe_of(jpeg(1) + broken + jpeg(3)) as source:
        frames = source.frames()
        next(frames)
        with pytest.raises(FrameRefusedError, match="frame 1: cannot be read as an image"):
            next(frames)
        assert len(list(source.frames())) == 1


def test_memory_is_used_for_what_has_come_and_not_for_what_is_stated() -> None:
    code = (
        "import resource, os; from launcher.sources.stdin import PipeSource;"
        "from launcher.errors import BadInputError\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak()\n"
        "try: list(PipeSource(0, 'in').frames())\n"
        "except BadInputError as error: print(error, '|', peak() - before)\n"
    )
    stated = array(3).replace(b"(3,), ", b"(99999999,), ", 1)
    result = subprocess.run(
        [sys.executable, "-c", code], input=stated, stdout=subprocess.PIPE, check=True
    )
    said, _, grown_kib = result.stdout.decode().rpartition("|")
    assert "ends in the middle of it" in said
    assert int(grown_kib) < 30 << 10


@pytest.mark.parametrize("redirection", ["<&-", "</dev/tty"])
def test_a_terminal_and_nothing_are_refused(redirection: str) -> None:
    if redirection == "</dev/tty":
        pty, terminal = os.openpty()
    else:
        pty, terminal = os.pipe()
    code = (
        "import os, sys; from pathlib import Path; from launcher.errors import BadInputError;"
        "from launcher.sources.stdin import StdinConfig\n"
        f"{'os.close(0)' if redirection == '<&-' else ''}\n"
        "try: StdinConfig().open(Path())\n"
        "except BadInputError as error: print(error)\n"
    )
    said = subprocess.check_output([sys.executable, "-c", code], stdin=terminal, text=True)
    os.close(pty)
    os.close(terminal)
    assert "standard input is " in said
    assert "pipe frames into the command" in said
