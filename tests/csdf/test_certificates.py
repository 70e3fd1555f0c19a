"""Certificates: what the analyser finds, the checker accepts; what is not so, it refuses."""

from __future__ import annotations

import ast
import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from csdf.analysis import analyze
from csdf.certificates import check as checker
from csdf.certificates.certify import certify
from csdf.certificates.check import RefusedError, check
from csdf.cli.command import main
from csdf.formats import json_format, sdf3
from csdf.model.graph import Graph
from csdf.model.lowered import lower
from csdf.timing.throughput import overtaking, throughput
from tests.csdf.certified import deadlocks, one_less
from tests.csdf.graphs import graph, inconsistent_graph, may_overtake, random_graph

CHECKER = Path(checker.__file__)
REFERENCE = Path(__file__).parent.parent / "fixtures" / "csdf_reference"

Content = dict[str, Any]


def certified(found: Graph) -> tuple[Content, bytes]:
    file = json_format.write(found).encode()
    content = json.loads(json.dumps(certify(found, file).content))
    return content, file


def checked(content: Content, file: bytes) -> Content:
    return check(json.dumps(content).encode(), file)


def test_what_is_certified_is_accepted_and_all_that_there_is() -> None:
    graphs = 300
    seen: Counter[str] = Counter()
    for seed in range(graphs):
        found = random_graph(random.Random(seed), bounded=seed % 2 == 0)
        claims = checked(*certified(found))
        result = analyze(found)
        seen["live" if result.live else "dead"] += 1
        assert claims["consistent"], seed
        assert claims["live"] == result.live, seed
        if not result.live:
            continue
        assert ("period" in claims) == (not overtakes(found)), seed
        assert claims.get("period", result.period) == result.period, seed
        tight = [
            c.name
            for c in found.channels
            if c.capacity is not None and c.capacity > c.initial_tokens
            if (less := one_less(found, c.name))
            if deadlocks(less) or ("period" in claims and throughput(less).period > result.period)
        ]
        assert claims.get("capacities", []) == tight, seed
        seen["capacities"] += len(tight)
    assert min(seen[kind] for kind in ("live", "dead", "capacities")) > graphs // 20


def overtakes(found: Graph) -> bool:
    """Whether an actor has different times and no bound that orders its firings."""
    return may_overtake(found) and bool(overtaking(lower(found)))


def test_that_a_graph_is_inconsistent_is_certified() -> None:
    for seed in range(300):
        found = inconsistent_graph(random.Random(seed), bounded=False)
        assert checked(*certified(found)) == {"consistent": False}, seed


def example() -> Graph:
    """A → B with times 2 and (1, 3), two places: period 6."""
    return graph({"A": (2,), "B": (1, 3)}, ("A", "B", (2,), (1, 1), 0, 2))


BY_HAND: Content = {
    "repetitions": {"A": 1, "B": 1},
    "live": [["A", 1], ["B", 2]],
    "period": {
        "value": "6",
        "unit": 1,
        "starts": {"A": [0], "B": [2, 3]},
        "cycle": {
            "iterations": 1,
            "steps": [
                ["A", 0, "c1", "tokens"],
                ["B", 0, None, "concurrency"],
                ["B", 1, "c1", "space"],
            ],
        },
    },
    "capacities": {
        "c1": {"deadlock": {"fired": [], "waits": [["A", "c1", "space"], ["B", "c1", "tokens"]]}}
    },
}


def by_hand(file: bytes) -> Content:
    head = {"format": "csdf-certificate 1", "graph": sha256(file).hexdigest()}
    return {**head, **json.loads(json.dumps(BY_HAND))}


def test_a_certificate_written_by_hand_is_accepted() -> None:
    file = json_format.write(example()).encode()
    assert checked(by_hand(file), file) == {
        "consistent": True,
        "live": True,
        "period": 6,
        "capacities": ["c1"],
    }


def _set(*path: Any) -> Callable[[Content], None]:
    *way, last, value = path

    def change(content: Content) -> None:
        for key in way:
            content = content[key]
        content[last] = value

    return change


ONE = "concurrency"

LIES: dict[str, tuple[Callable[[Content], None], str]] = {
    "another graph": (_set("graph", "0" * 64), "made for another graph"),
    "twice an iteration": (_set("repetitions", {"A": 2, "B": 2}), "common divisor"),
    "rates that do not fit": (
        _set("repetitions", {"A": 1, "B": 2}),
        "'c1' ends with other tokens",
    ),
    "an actor left out": (_set("repetitions", {"A": 1}), "expected exactly"),
    "firing without tokens": (
        _set("live", [["B", 2], ["A", 1]]),
        "'B' fires without its tokens: .'c1', 'tokens'",
    ),
    "firing without room": (
        _set("live", [["A", 2], ["B", 4]]),
        "'A' fires without its tokens: .'c1', 'space'",
    ),
    "half an iteration": (_set("live", [["A", 1], ["B", 1]]), "not one iteration"),
    "a shorter period": (_set("period", "value", "5"), "starts too early"),
    "a longer period": (_set("period", "value", "7"), "the cycle takes 6 an iteration, not 7"),
    "an early start": (_set("period", "starts", "B", [1, 3]), "starts too early"),
    "phases out of order": (_set("period", "starts", "B", [3, 2]), "not in order"),
    "a lazy cycle": (
        _set("period", "cycle", "iterations", 2),
        "the cycle takes 3 an iteration, not 6",
    ),
    "a cycle that waits for nothing": (
        _set("period", "cycle", "steps", 0, ["A", 1, "c1", "tokens"]),
        "firing 0 of 'B' does not wait for firing 1 of 'A'",
    ),
    "no cycle": (_set("period", "cycle", None), "the cycle takes 0 an iteration"),
    "a wait that is none": (
        _set("capacities", "c1", "deadlock", "waits", [["A", "c1", "space"]]),
        "'B' does not wait",
    ),
    "a claim of nothing": (_set("capacities", "c1", {"because": 1}), "expected exactly"),
    "more than there is to claim": (_set("fast", True), "expected exactly"),
    "negative firings": (
        _set("live", [["A", 1], ["B", -1]]),
        "-1 is not a whole number ≥ 1",
    ),
    "an order backwards": (
        _set("period", "cycle", "steps", [["B", 1, None, "order"], ["B", 0, None, "concurrency"]]),
        "malformed: KeyError.*'order'",
    ),
    "starts of more than an iteration": (
        _set("period", "starts", "B", [2, 3, 8, 9]),
        "1/2 is not a whole number",
    ),
    "times between units": (_set("period", "value", "13/2"), "13/2 is not a whole number"),
    "a period that is no number": (_set("period", "value", "-6"), "is not a number of at least 0"),
    "a slower cycle that is not slower": (
        _set("capacities", "c1", {"cycle": {"iterations": 1, "steps": [["A", 0, None, ONE]]}}),
        "'c1': as fast with less",
    ),
    "true for one": (_set("repetitions", {"A": True, "B": 1}), "True is not a whole number"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_and_the_sentence_says_where(lie: str) -> None:
    file = json_format.write(example()).encode()
    content = by_hand(file)
    change, sentence = LIES[lie]
    change(content)
    with pytest.raises(RefusedError, match=sentence):
        checked(content, file)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_set("channels", 0, "production", [0]), "ends with other tokens"),
        (_set("channels", 0, "production", [2, 0]), "differ in their numbers of phases"),
        (_set("channels", 0, "initial_tokens", -1), "-1 is not a whole number"),
        (_set("channels", 0, "initial_tokens", 3), "-1 is not a whole number"),
        (_set("channels", 0, "target", "C"), "malformed: KeyError"),
        (_set("actors", 0, "name", "B"), "two actors have the same name"),
        (_set("actors", 0, "execution_times", []), "differ in their numbers of phases"),
        (_set("actors", 0, "concurrency", 0), "0 is not a whole number"),
    ],
)
def test_a_malformed_graph_is_refused(change: Callable[[Content], None], sentence: str) -> None:
    found = json.loads(json_format.write(example()))
    change(found)
    file = json.dumps(found).encode()
    with pytest.raises(RefusedError, match=sentence):
        checked(by_hand(file), file)


def test_firings_that_may_overtake_hold_no_period() -> None:
    """The same certificate with the times of an actor whose firings overlap."""
    found = graph({"A": (2,), "B": (1, 3)}, ("A", "B", (2,), (1, 1), 0, 2), concurrency=2)
    file = json_format.write(found).encode()
    content = by_hand(file)
    content["period"]["cycle"]["steps"][1:] = [["B", 1, "c1", "space"]]
    content["period"]["cycle"]["steps"][0] = ["A", 0, "c1", "tokens"]
    content["period"]["value"] = "5"
    content["period"]["starts"] = {"A": [0], "B": [2, 2]}
    with pytest.raises(RefusedError, match="firings of 'B' might overtake"):
        checked(content, file)
    left = certify(found, file).left_out
    assert left == ("the period, because firings of 'B' may overtake each other",)


def test_ends_out_of_order_hold_no_period() -> None:
    """Starts of half the phases fit a schedule, but firing 1 ends after firing 2."""
    found = graph({"A": (1, 5), "B": (0,)}, ("A", "B", (1, 1), (1,)), concurrency=None)
    file = json_format.write(found).encode()
    content = by_hand(file) | {"repetitions": {"A": 1, "B": 2}, "live": [["A", 2], ["B", 2]]}
    del content["capacities"]
    content["period"] = {"value": "2", "unit": 1, "starts": {"A": [0], "B": [6]}, "cycle": None}
    with pytest.raises(RefusedError, match="firings 1 and 2 of 'A' are not in order"):
        checked(content, file)
    content["period"] |= {"value": "8", "starts": {"A": [0], "B": [6]}}
    with pytest.raises(RefusedError, match="the cycle takes 0 an iteration, not 8"):
        checked(content, file)  # the schedule is one, and nothing shows that it is needed


def test_the_checker_is_one_file_of_300_lines_that_needs_the_standard_library_only(
    tmp_path: Path,
) -> None:
    text = CHECKER.read_text("utf-8")
    assert len(text.splitlines()) <= 300
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or "."] if isinstance(node, ast.ImportFrom) else
                     [alias.name for alias in node.names])
    }  # fmt: skip
    assert imported <= sys.stdlib_module_names | {"__future__"}
    assert "float" not in {
        node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)
    }
    alone = shutil.copy(CHECKER, tmp_path / "check.py")
    file = json_format.write(example()).encode()
    (tmp_path / "graph.json").write_bytes(file)
    (tmp_path / "good.json").write_text(json.dumps(by_hand(file)))
    (tmp_path / "bad.json").write_text(json.dumps({**by_hand(file), "live": []}))
    for names, code, printed in (
        (("good.json", "graph.json"), 0, "proved: period 6"),
        (("bad.json", "graph.json"), 1, "not proved: the schedule is not one iteration"),
        (("graph.json", "good.json"), 1, "not proved: made for another graph"),
        (("no.json", "graph.json"), 2, "No such file"),
        ((), 2, "`python check.py CERTIFICATE GRAPH|PLAN`"),
    ):
        command = [sys.executable, "-I", str(alone), *names]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == code
        assert printed in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "code", "sentence"),
    [
        ("twodev_2_3", 0, "Proved: one place less means a deadlock or a longer period in a_bp, b"),
        ("residual_skip3", 1, "Proved: the graph is consistent, and deadlocks."),
        ("inconsistent_par", 1, "Proved: the graph is inconsistent."),
    ],
)
def test_the_commands(
    name: str, code: int, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, certificate = str(REFERENCE / f"{name}.xml"), tmp_path / "certificate.json"
    assert main(["certify", file, "--output", str(certificate)]) == code
    assert main(["check", str(certificate), file]) == 0
    assert sentence in capsys.readouterr().out
    converted = tmp_path / "graph.json"
    assert main(["convert", file, str(converted)]) == 0
    assert main(["check", "--json", str(certificate), str(converted)]) == 0
    assert json.loads(capsys.readouterr().out)["consistent"] is (name != "inconsistent_par")
    other = str(REFERENCE / "twodev_4_4.xml")
    assert main(["check", "--json", str(certificate), other]) == 1
    printed = capsys.readouterr()
    assert "twodev_4_4.xml: made for another graph" in printed.err
    assert json.loads(printed.out)["refused"].startswith("made for another graph")
    assert main(["check", str(tmp_path / "none"), file]) == 2


def test_what_is_left_out_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "graph.json"
    file.write_text(json_format.write(graph({"A": (1, 2)}, concurrency=None)))
    assert main(["certify", str(file)]) == 0
    printed = capsys.readouterr()
    assert printed.err == (
        "csdf: not certified: the period, because firings of 'A' may overtake each other\n"
    )
    assert "period" not in json.loads(printed.out)
    assert main(["certify", "--effort", "1", str(REFERENCE / "twodev_2_3.xml")]) == 0
    assert "at most 1 are examined (--effort)" in capsys.readouterr().err


def test_graphs_of_any_size_of_numbers() -> None:
    scale = 10**17
    found = graph(
        {"A": (Fraction(1, 3),), "B": (Fraction(2, 7),)},
        ("A", "B", (2 * scale,), (3 * scale,), scale, 6 * scale),
    )
    claims = checked(*certified(found))
    assert claims["period"] == throughput(found).period
    assert sdf3.write(found)


@pytest.mark.parametrize("times", ["[1e40]", "[1e-40, 0.5]", f"[{'9' * 30}, {'9' * 30}]"])
def test_a_period_of_any_number_of_digits_is_checked(times: str) -> None:
    actor = f'{{"name": "A", "execution_times": {times}, "concurrency": 1}}'
    file = f'{{"actors": [{actor}], "channels": []}}'.encode()
    found = json_format.parse(file)
    content = json.loads(json.dumps(certify(found, file).content))
    assert checked(content, file)["period"] == throughput(found).period


DEEP, DIGITS = "[" * 100_000, '{"format": "csdf-certificate 1", "live": ' + "1" * 5000 + "}"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{}", "is not a certificate; csdf certify makes certificates"),
        ("null", "is not a certificate; csdf certify makes certificates"),
        ('"x"', "is not a certificate; csdf certify makes certificates"),
        ("", "is not JSON: Expecting value"),
        (DEEP, "is not JSON that can be read: it is nested too deep"),
        (DIGITS, "has a number with too many digits"),
    ],
)
def test_what_is_not_a_certificate_is_named(
    content: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "e.json"
    given.write_text(content)
    assert main(["check", str(given), str(REFERENCE / "twodev_2_3.xml")]) == 2
    assert f"{given} {sentence}" in capsys.readouterr().err


@pytest.mark.parametrize("content", [DEEP, DIGITS])
def test_a_plan_that_cannot_be_parsed(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, certificate = tmp_path / "plan.json", tmp_path / "c.json"
    plan.write_text(content)
    certificate.write_text('{"format": "csdf-certificate 1"}')
    for command in (["certify", str(plan)], ["check", str(certificate), str(plan)]):
        assert main(command) == 2
        said = capsys.readouterr().err
        assert "nested too deep" in said or "too many digits" in said
        assert "Error" not in said


def test_the_order_of_the_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, certificate = str(REFERENCE / "twodev_2_3.xml"), str(tmp_path / "c.json")
    assert main(["certify", file, "--output", certificate]) == 0
    for swapped in (file, str(tmp_path)):  # a graph, and the folder of a plan
        assert main(["check", swapped, certificate]) == 2
        said = capsys.readouterr().err
        assert f"{certificate} is one: the order is CERTIFICATE FILE" in said


def test_an_empty_graph_is_certified(tmp_path: Path) -> None:
    file, certificate = tmp_path / "g.json", tmp_path / "c.json"
    file.write_text('{"actors": [], "channels": []}')
    assert main(["certify", str(file), "--output", str(certificate)]) == 0
    assert main(["check", str(certificate), str(file)]) == 0
