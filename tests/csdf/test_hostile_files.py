"""Untrusted files: a sentence and an exit code, in bounded time and memory."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csdf.analysis import analyze
from csdf.cli.report import analysis_text
from csdf.errors import CsdfError
from csdf.formats import files, sdf3
from tests.csdf.graphs import graph
from tests.csdf.test_sdf3 import SMALL
from tests.effort import examples

REFERENCE = Path(__file__).parents[1] / "fixtures" / "csdf_reference"
SECONDS, BYTES = 20, 2 << 30
"""Of a processor and of memory, for each file."""

WATCHED = """
import contextlib, io, json, resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
from csdf.cli.command import main
for path in sys.argv[2:]:
    begin, message = time.process_time(), io.StringIO()
    with contextlib.redirect_stderr(message), contextlib.redirect_stdout(io.StringIO()):
        code = main(["analyze", "--json", path])
    print(json.dumps([path, code, message.getvalue(), time.process_time() - begin]), flush=True)
"""


def written(times: Mapping[str, Sequence[int | Fraction]], *channels: tuple[object, ...]) -> bytes:
    return sdf3.write(graph(times, *channels, concurrency=None)).encode()


def hostile() -> Iterator[tuple[str, bytes, int, str]]:
    """(file name, contents, exit code, what the sentence says)."""
    yield "empty.xml", b"", 2, "no element found"
    yield "empty.json", b"", 2, "is not JSON"
    half = json.dumps({"actors": [{"name": "\ud800", "execution_times": [1]}], "channels": []})
    yield "half.json", half.encode(), 2, "actors[0].name holds half a character"
    yield "binary.xml", bytes(range(256)) * 4096, 2, "is not"
    yield "half.xml", SMALL[: len(SMALL) // 2].encode(), 2, "not well-formed XML: line"
    yield "utf16.xml", SMALL.encode("utf-16"), 0, ""
    yield "latin.xml", SMALL.replace("small", "sm\xe5ll").encode("latin-1"), 2, "not well-formed"
    yield "large.xml", b"<sdf3>" + b" " * (100 << 20), 2, "is larger than 32 MiB"
    yield "large.json", b"[" + b"0," * (50 << 20), 2, "is larger than 32 MiB"
    yield "numbers.json", b"[" + b"0," * (8 << 20) + b"0]", 2, "more than 2000000 values"
    yield "deep.xml", b"<sdf3>" * 1_000_000, 2, "nested deeper than 64"
    yield "deep.json", b"[" * 1_000_000, 2, "is not JSON"
    yield "elements.xml", b"<sdf3>" + b"<a/>" * 1_000_001, 2, "more than 1000000 elements"
    attributes = b" ".join(b'a%d=""' % i for i in range(300_000))
    yield "attributes.xml", b"<sdf3 " + attributes + b"/>", 2, "of type '' cannot be read"
    bomb = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 30))
    entities = f'<!DOCTYPE sdf3 [<!ENTITY a0 "ha">{bomb}]><sdf3>&a29;</sdf3>'
    yield "entities.xml", entities.encode(), 2, "declares the entity 'a0'"
    runs = SMALL.replace("1,2,1", "18*1000000000")
    yield "run.xml", runs.replace("1,1,1", "1").encode(), 0, ""
    yield "long_run.xml", SMALL.replace("1,2,1", "1000000000*18").encode(), 2, "2000000 entries"
    yield "runs.xml", SMALL.replace("1,2,1", "400000*1").encode(), 0, ""
    for high in (10**9, 4 * 10**17):
        times = {"A": (1, 1), "B": (2,)}
        there = ("A", "B", (high, 1), (high,))
        back = ("B", "A", (high,), (1, high), 2 * high)
        yield f"chain{high}.xml", written(times, there), 0, ""
        yield (
            f"dead{high}.xml",
            written(times, there, (*back[:4], high - 1)),
            3,
            "to decide whether",
        )
        yield f"cycle{high}.xml", written(times, there, back), 3, "at most 6000000 are allowed"
        clash = ("A", "B", (high - 1, 1), (high - 1,))
        yield f"clash{high}.xml", written(times, there, clash), 1, ""
    pool = ("A", "B", (1, 1), (1,)), ("B", "A", (1,), (1, 1), 5000)
    yield "pool.xml", written({"A": (1, 10**6), "B": (1,)}, *pool), 3, "of the self-timed execution"
    apart = {"A": [Fraction(1, 10**17 + 2 * i + 1) for i in range(3000)]}
    yield "denominators.xml", written(apart), 3, "no common multiple below 2^2048; round"
    names = [f"a{i}" for i in range(100)]
    steps = [(a, b, (10**9 + 7,), (1,)) for a, b in pairwise(names)]
    yield "beyond_floats.xml", written(dict.fromkeys(names, (Fraction(1, 3),)), *steps), 0, ""
    commas = SMALL.replace("1,2,1", "1," * (15 << 20)).encode()
    yield "commas.xml", commas, 2, "more than 2000000 entries"
    yield "rate.xml", SMALL.replace("1,2,1", "9" * 19).encode(), 2, "is not a list of numbers"
    for i, bad in enumerate(("nan", "inf", "-1", "1e999", "1/0", "0x10", "1_0", "\u0663")):
        yield f"time{i}.xml", SMALL.replace("0.25", bad).encode(), 2, f"{bad!r} is not a number"
    none = "<sdf3 type='sdf'><applicationGraph><sdf name='x'/></applicationGraph></sdf3>"
    yield "none.xml", none.encode(), 0, ""


@pytest.mark.slow
def test_each_ends_in_a_sentence_in_bounded_time_and_memory(tmp_path: Path) -> None:
    expected = {}
    for name, contents, code, sentence in hostile():
        (tmp_path / name).write_bytes(contents)
        expected[str(tmp_path / name)] = code, sentence
    (tmp_path / "folder.xml").mkdir()
    expected[str(tmp_path / "folder.xml")] = 2, "cannot be read: Is a directory"
    expected["/dev/zero"] = 2, "is larger than 32 MiB"
    expected[str(tmp_path / "missing.xml")] = 2, "cannot be read: No such file"
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(BYTES), *expected],
        capture_output=True,
        text=True,
        timeout=50 * SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = {path: rest for path, *rest in map(json.loads, done.stdout.splitlines())}
    assert results.keys() == expected.keys()
    for path, (code, message, seconds) in results.items():
        assert code == expected[path][0], (path, message)
        assert expected[path][1] in message
        assert message.count("\n") == (code > 1), message
        assert len(message) < 400, message
        assert seconds < SECONDS, path


VALUE = re.compile(r"(?<=[\"'])[^\"'<>]*(?=[\"'])")
VALUES = (
    "0",
    "7",
    "1,2",
    "2,1,0",
    "3*1",
    "1000003",
    "9" * 18,
    "200*1",
    "-1",
    "1e5",
    "1/3",
    "",
    "x",
)


def damaged(text: str, draw: random.Random) -> str:
    """`text` with one to three attributes changed, tags doubled or lost, or the end cut off."""
    for _ in range(draw.choice((1, 1, 2, 3))):
        if draw.random() < 0.8:
            place = draw.choice([m.span() for m in VALUE.finditer(text)] or [(0, 0)])
            value = draw.choice((*VALUES, *VALUES, text[slice(*place)] * 2))
        elif draw.random() < 0.8:
            place = draw.choice([m.span() for m in re.finditer("<[^>]*>", text)] or [(0, 0)])
            value = text[slice(*place)] * draw.choice((0, 2))
        else:
            place, value = (draw.randint(0, len(text)), len(text)), ""
        text = text[: place[0]] + value + text[place[1] :]
    return text


def analysed_or_refused(text: str) -> str:
    try:
        graph = sdf3.parse(text.encode())
        result = analyze(graph, effort=100_000)
    except CsdfError as error:
        return str(error).replace("\n", "Traceback")  # a sentence is one line
    return json.dumps(result.as_json(), default=str) + analysis_text(graph, result)


TEXTS = [path.read_text() for path in sorted(REFERENCE.glob("*.xml"))]


@examples(90)
@given(st.sampled_from(TEXTS), st.integers(0, 2**32))
def test_any_damaged_file_is_analysed_or_refused_with_an_error(text: str, seed: int) -> None:
    message = analysed_or_refused(damaged(text, random.Random(seed)))
    assert message
    assert "Traceback" not in message


def test_a_name_stands_on_one_line(tmp_path: Path) -> None:
    """Otherwise what is printed of it would look like lines of ours."""
    ring = {"source": "a", "target": "a", "production": [1], "consumption": [1]}
    actor = {"name": "a\nlive", "execution_times": [1]}
    data = {"actors": [actor], "channels": [{"name": "c", **ring, "initial_tokens": 1}]}
    (tmp_path / "graph.json").write_text(json.dumps(data))
    with pytest.raises(CsdfError, match=r"name has several lines"):
        files.read(tmp_path / "graph.json")
    (tmp_path / "graph.xml").write_text(SMALL.replace('name="', 'name="&#10;live', 1))
    with pytest.raises(CsdfError, match=r"an attribute of '.*' has several lines"):
        files.read(tmp_path / "graph.xml")
