"""Code that only starting up needed leaves resident memory, and all that is needed still runs."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import numpy, onnxruntime
from pathlib import Path
from nodes.code_pages import forget_code_pages

def file_backed():
    return int(Path("/proc/self/status").read_text().partition("RssFile:")[2].split()[0])

before = file_backed()
forget_code_pages()
after = file_backed()
assert (numpy.ones((50, 50)) @ numpy.ones((50, 50)) == 50).all()
print(before, after)
"""


def test_the_code_of_imports_is_let_go_of() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    before_kb, after_kb = map(int, done.stdout.split())
    assert after_kb < 0.8 * before_kb
