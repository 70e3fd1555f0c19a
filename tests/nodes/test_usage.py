"""Memory and CPU time of a process and its threads, by the kernel's count."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import nodes
from nodes.host.usage import usage, waited_s

pytestmark = pytest.mark.alone

SPIN = "import time\nend = time.monotonic() + 10\nwhile time.monotonic() < end: pass"


@pytest.fixture
def rival() -> Iterator[None]:
    """Another process that wants the one CPU that this one is confined to."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(mine)})
    process = subprocess.Popen([sys.executable, "-c", SPIN])
    yield
    process.kill()
    process.wait()
    os.sched_setaffinity(0, mine)


MAP_BOTH = """
import mmap, sys
from pathlib import Path
from nodes.host.usage import usage

def mapped(path):
    path.write_bytes(bytes(8 << 20))
    with path.open("rb") as file:
        pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    assert sum(pages[:: mmap.PAGESIZE]) == 0
    return pages

before = usage().rss_bytes
with mapped(Path("libengine.so.1")):
    print(usage().rss_bytes - before)
    with mapped(Path("model.weights")):
        print(usage().rss_bytes - before)
"""


def test_weights_mapped_from_a_file_count_and_pages_of_libraries_do_not(tmp_path: Path) -> None:
    """In a process of its own: other threads of this one may still be freeing what tests left."""
    product = {**os.environ, "PYTHONPATH": str(Path(nodes.__file__).parents[1])}
    script = [sys.executable, "-c", MAP_BOTH]
    grown = subprocess.run(script, cwd=tmp_path, env=product, capture_output=True, check=True)
    library_bytes, both_bytes = map(int, grown.stdout.split())
    assert library_bytes < 4 << 20
    assert both_bytes > 7 << 20


def test_memory_and_time_are_those_of_this_process() -> None:
    now = usage()
    assert 0 < now.anonymous_bytes < now.rss_bytes <= now.rss_peak_bytes
    assert now.cpu_s > 0


def test_a_wait_for_the_cpu_is_told_apart_from_work(rival: None) -> None:
    began, before, worked = time.monotonic(), waited_s(), time.thread_time()
    assert before is not None
    waited = 0.0
    while waited < 0.05:
        assert time.monotonic() - began < 8, "the other process never got in the way"
        waited = (waited_s() or 0.0) - before
    passed, worked = time.monotonic() - began, time.thread_time() - worked
    assert passed - waited == pytest.approx(worked, abs=0.2 * passed)
