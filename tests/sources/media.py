"""Videos and streams that a real ffmpeg makes; the pixels of each frame show its number."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import imageio_ffmpeg
import numpy as np
from numpy.typing import NDArray

FFMPEG = imageio_ffmpeg.get_ffmpeg_exe()
WIDTH, HEIGHT, RATE = 128, 32, 25

MPEGTS = (
    *("-c:v", "libx264", "-tune", "zerolatency", "-g", "5", "-pix_fmt", "yuv420p"),
    *("-f", "mpegts"),
)
"""Options for a stream that can be entered at any time."""

BARS = (
    "nullsrc=size={width}x{height}:rate={rate},"
    "geq=lum='if(bitand(N,pow(2,floor(X/16))),235,16)':cb=128:cr=128"
)
"""Eight bars of black or white: the bits of the frame's number, the lowest on the left."""


def ffmpeg(*arguments: str | Path) -> None:
    """Run ffmpeg to its end."""
    command = [FFMPEG, "-loglevel", "error", "-y", *map(str, arguments)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def bars() -> list[str]:
    """Return ffmpeg's options for an endless input of numbered frames."""
    return ["-f", "lavfi", "-i", BARS.format(width=WIDTH, height=HEIGHT, rate=RATE)]


def write_video(path: Path, frames: int, *options: str) -> Path:
    """Write a video of numbered frames in the format that the name says."""
    ffmpeg(*bars(), "-frames:v", str(frames), "-pix_fmt", "yuv420p", *options, path)
    return path


def number_in(image: NDArray[np.uint8]) -> int:
    """Return the number that the image's bars show."""
    row = image[HEIGHT // 2, 8::16].mean(axis=1)
    return sum(1 << bit for bit, value in enumerate(row[:8]) if value > 128)


def free_port() -> int:
    """Return a port of this machine that nothing listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def streaming(*output: str) -> Iterator[subprocess.Popen[bytes]]:
    """Within the context, ffmpeg streams numbered frames in real time to `output`."""
    command = [FFMPEG, "-loglevel", "error", "-re", *bars(), *output]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@contextmanager
def serving(port: int) -> Iterator[None]:
    """Within the context, ffmpeg streams numbered frames to every program that connects."""
    command = [FFMPEG, "-loglevel", "error", "-re", *bars(), *MPEGTS, "-"]
    processes: list[subprocess.Popen[bytes]] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    process = subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=connection,
                        stderr=subprocess.DEVNULL,
                    )
                processes.append(process)

    with socket.create_server(("127.0.0.1", port)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for process in processes:
                process.kill()
                process.wait()
