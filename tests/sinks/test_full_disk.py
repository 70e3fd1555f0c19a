"""Every kind of sink that writes files, on a disk that is full for a while."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from csdf_edge.testing.sink_contract import SinkContract, made_result
from launcher.config.ends.sink import SinkLostError
from tests.launcher.test_full_disk import why_not
from tests.sinks import test_drawing, test_frame_files, test_json_lines, test_video_sink

ROOT = Path(__file__).parents[2]
CONTRACTS: dict[str, type[SinkContract]] = {
    "json-lines": test_json_lines.TestJsonLines,
    "npy": test_frame_files.TestNpy,
    "images": test_drawing.TestImages,
    "video": test_video_sink.TestVideo,
}
MOUNTED = 'mount -t tmpfs -o size=4m none "$1" && exec "$2" -m tests.sinks.test_full_disk "$@"'


@pytest.mark.slow
@pytest.mark.namespaces
def test_a_full_disk_loses_nothing_and_leaves_no_pieces(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    shell = ("unshare", "-m", "sh", "-c", MOUNTED, "sh", str(tmp_path), sys.executable)
    subprocess.run((*shell, *CONTRACTS), cwd=ROOT, check=True, timeout=120)


def deliver(contract: SinkContract, place: Path) -> None:
    """Deliver, and fill the disk and make room again three times meanwhile."""
    place.mkdir()
    filler = place.parent / "filler"
    rng = np.random.default_rng(1)
    sink = contract.config(place).open(place)
    failures = 0
    for index in range(16):
        if index in (2, 7, 11):
            fill(filler, room_bytes=4096 * (index % 2))  # within a file
        image = rng.integers(0, 255, (120, 160, 3), np.uint8)
        image[0, 0] = index
        result = replace(made_result(index, values=1000), name="n" * 9000, image=image)
        try:
            sink.write(result)
        except SinkLostError:
            failures += 1
            filler.unlink()
            sink.write(result)
    sink.close()
    assert failures == 3
    assert contract.delivered(place) == list(range(16))
    left = [path for path in place.rglob("*") if path.is_file()]
    assert not [path for path in left if path.name.startswith(".") or not path.stat().st_size]


def fill(filler: Path, room_bytes: int) -> None:
    """Leave so much room on the disk."""
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    os.truncate(filler, filler.stat().st_size - room_bytes)


if __name__ == "__main__":
    for kind in sys.argv[3:]:
        deliver(CONTRACTS[kind](), Path(sys.argv[1]) / kind)
