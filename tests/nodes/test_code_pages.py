"""Code that only starting up needed leaves resident memory, and all that is needed still runs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import json
from pathlib import Path
import numpy
from nodes.code_pages import PIECE_BYTES, forget_code_pages, map_in_pieces

import onnxruntime

def resident_kb(kind):
    return int(Path("/proc/self/status").read_text().partition(kind + ":")[2].split()[0])

def sizes(library, permissions):
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.split()[1] == permissions and library in line.rpartition("/")[2]:
            start, end = (int(address, 16) for address in line.split()[0].split("-"))
            yield end - start

def kernels():
    return onnxruntime.capi.onnxruntime_pybind11_state.get_all_operator_schema()

told = {"piece": PIECE_BYTES, "file": [resident_kb("RssFile")], "own": [resident_kb("RssAnon")]}
schemas = len(kernels())
for _ in range(2):
    forget_code_pages()
    told["file"].append(resident_kb("RssFile"))
    told["own"].append(resident_kb("RssAnon"))
    map_in_pieces(("onnxruntime",))
assert len(kernels()) == schemas
assert (numpy.ones((50, 50)) @ numpy.ones((50, 50)) == 50).all()
told["engine"] = list(sizes("onnxruntime_pybind11_state", "r-xp"))
told["constants"] = list(sizes("onnxruntime_pybind11_state", "r--p"))
told["other"] = list(sizes("_multiarray_umath", "r-xp"))
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_code_and_constants_of_imports_are_let_go_of(told: dict[str, Any]) -> None:
    before_kb, after_kb, in_pieces_kb = told["file"]
    assert after_kb < 0.4 * before_kb
    assert in_pieces_kb < 0.4 * before_kb  # mappings of many pieces are found as well


def test_what_the_loader_wrote_is_kept(told: dict[str, Any]) -> None:
    before_kb, *after_kb = told["own"]
    assert min(after_kb) >= before_kb


def test_only_the_engine_is_mapped_in_pieces(told: dict[str, Any]) -> None:
    assert max(told["engine"]) <= told["piece"] < max(told["other"])
    *pieces, relocated = sorted(told["constants"])  # that part was filled in by the loader
    assert max(pieces) <= told["piece"] < relocated
