"""Memory and CPU time of a process and its threads, by the kernel's count."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import nodes
from nodes.host.usage import opened_waits, resident_bytes, usage, waited_s

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
    """In its own process: other threads of this one may still be freeing what tests left."""
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


@pytest.mark.parametrize("page_bytes", [4096, 16384, 65536])
def test_resident_memory_is_counted_in_the_pages_of_this_machine(
    page_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_bytes = os.sysconf("SC_PAGE_SIZE")
    before_bytes = resident_bytes()
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": page_bytes}.__getitem__)
    scaled = before_bytes * page_bytes / own_bytes
    assert resident_bytes() == pytest.approx(scaled, rel=0.2)


@pytest.mark.alone
def test_a_wait_for_the_cpu_is_told_apart_from_work(rival: None) -> None:
    file = opened_waits()
    began, before, worked = time.monotonic(), waited_s(file), time.thread_time()
    assert before is not None
    waited = 0.0
    while waited < 0.05:
        assert time.monotonic() - began < 8, "the other process never got in the way"
        waited = (waited_s(file) or 0.0) - before
    passed, worked = time.monotonic() - began, time.thread_time() - worked
    assert passed - waited == pytest.approx(worked, abs=0.2 * passed)


# ---------------------------------------------------------------- the peak of a deployment

PEAKS = """
import json, mmap, sys
from nodes.host.usage import PeakMemory

MB = 1 << 20

class Held:
    def __init__(self, megabytes):
        self.pages = mmap.mmap(-1, megabytes * MB)
        for at in range(0, megabytes * MB, mmap.PAGESIZE):
            self.pages[at] = 1
    def free(self):
        self.pages.close()

peak = PeakMemory(sys.argv[1])
seen = []

def look():
    used = peak.usage()
    seen.append([round(used.rss_bytes / MB), round(used.rss_peak_bytes / MB)])

peak.begin()
look()                               # 0: idle
Held(100).free()                     # unseen while it was there
look()                               # 1: the first deployment
peak.begin()
second = Held(30)
look()                               # 2: the second one
peak.begin_ahead()
ahead = Held(60)
look()                               # 3: both
second.free()
peak.begin(is_loaded=True)
look()                               # 4: the one that was loaded ahead
ahead.free()
peak.begin()
look()                               # 5: idle again
print(json.dumps([seen, peak.refusal, round(peak.life_bytes / MB)]))
"""


def peaks(file: str) -> tuple[list[list[int]], str, int]:
    """What its own process sees in turn: resident and peak megabytes; why it was refused."""
    product = {**os.environ, "PYTHONPATH": str(Path(nodes.__file__).parents[1])}
    script = [sys.executable, "-c", PEAKS, file]
    done = subprocess.run(script, env=product, capture_output=True, check=True)
    seen, refusal, life = json.loads(done.stdout)
    return seen, refusal, life


def test_the_peak_is_that_of_the_deployment_and_not_of_the_process() -> None:
    seen, refusal, life = peaks("/proc/self/clear_refs")
    if refusal:
        pytest.skip(f"the kernel does not reset the peak here: {refusal}")
    base = seen[0][0]
    peak = [megabytes - base for _, megabytes in seen]
    assert peak[1] == pytest.approx(100, abs=3)
    assert peak[2] == pytest.approx(30, abs=3)
    assert peak[3] == peak[4] == pytest.approx(90, abs=3)
    assert peak[5] == pytest.approx(0, abs=3)
    assert life - base == pytest.approx(100, abs=3)


def test_without_permission_it_is_what_was_seen_and_never_an_earlier_deployments() -> None:
    seen, refusal, life = peaks("/proc/self/no such file")
    assert refusal
    base = seen[0][0]
    peak = [megabytes - base for _, megabytes in seen]
    assert peak[1] == pytest.approx(100, abs=3), "the kernel's own peak has grown since"
    assert peak[2] == pytest.approx(30, abs=3)
    assert peak[3] == peak[4] == pytest.approx(90, abs=3)
    assert peak[5] == pytest.approx(0, abs=3)
    assert life - base == pytest.approx(100, abs=3)
