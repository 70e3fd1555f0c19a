"""Configurations, plans and their folders by somebody who wants harm: a sentence, nothing lost."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from launcher.config.load import load_cluster
from launcher.config.source import parse_source
from launcher.errors import BadInputError
from launcher.files import MOST_BYTES, read_json
from launcher.plan.files import PLAN, SUBNETS, read_plan
from launcher.tasks.classes import read_truth
from tests.fuzz.good import PLANS
from tests.launcher.models import write_branches
from tests.launcher.test_cli import launch

CLUSTER = "model: branches.onnx\nnodes: [{name: a}, {name: b}]\nstrategy: sequential\nframes: 2\n"
DIGITS = "9" * 5000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model, and what names it."""
    write_branches(tmp_path / "branches.onnx")
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return tmp_path


@pytest.fixture
def plan(folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A saved plan."""
    launch(capsys, folder / "cluster.yaml", "--plan-only", "--save", folder / "plan")
    return folder / "plan"


# ---------------------------------------------------------------- numbers

NUMBERS = ("9" * 400, DIGITS, "-" + DIGITS, "0." + DIGITS, "1e999", "-1e999", "NaN", "Infinity")


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("key", ["gap", "format", "model"])
def test_a_number_beyond_all_measure_in_a_plan_is_named_with_its_line(
    tmp_path: Path, key: str, number: str
) -> None:
    data = json.loads(PLANS[0])
    data[key] = "HERE"
    text = json.dumps(data, indent=1).replace('"HERE"', number)
    (tmp_path / PLAN).write_text(text)
    line = 1 + text[: text.index(number)].count("\n")
    with pytest.raises(BadInputError, match=f"plan.json, line {line}: ") as caught:
        read_plan(tmp_path)
    assert len(str(caught.value)) < 300


LONG_NUMBERS = {
    "decimal": DIGITS,
    "hexadecimal": "0x" + "f" * 5000,
    "binary": "0b" + "1" * 20_000,
    "octal": "0" + "7" * 6000,
    "fraction": "0." + DIGITS,
    "tagged": f"!!int '0x{'f' * 5000}'",
}


@pytest.mark.parametrize("kind", LONG_NUMBERS)
@pytest.mark.parametrize("line", ["frames: {}", "nodes: [{{name: a, memory: {}}}]", "seed: [{}]"])
def test_a_number_beyond_all_measure_in_a_cluster_is_named(kind: str, line: str) -> None:
    with pytest.raises(BadInputError, match=r"line 1, .*: a number of \d+ characters") as caught:
        parse_source(line.format(LONG_NUMBERS[kind]), "cluster.yaml")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("number", ["9" * 99, "0x" + "f" * 98, "1:" * 49 + "0", "1e308", ".inf"])
@pytest.mark.parametrize(
    "key",
    [
        "frames: {}", "seed: {}", "rate: {}", "queue_frames: {}", "link: {}",
        "nodes: [{{name: b, memory: {}}}]", "nodes: [{{name: b, threads: {}}}]",
        "nodes: [{{name: b, cpus: [{}]}}]", "nodes: [{{name: b, macs_per_s: {}}}]",
        "nodes: [{{name: b, busy_w: {}}}]", "run: {{lease_s: {}}}", "input: {{files: x, mean: {}}}",
        "model: {{path: branches.onnx, input_shape: [{}]}}",
    ],
)  # fmt: skip
def test_large_numbers_never_end_in_a_traceback(
    folder: Path, capsys: pytest.CaptureFixture[str], key: str, number: str
) -> None:
    """What is short enough to be read may be out of every range."""
    name = key.partition(":")[0]
    kept = [line for line in CLUSTER.splitlines() if not line.startswith(f"{name}:")]
    (folder / "cluster.yaml").write_text("\n".join([*kept, key.format(number), ""]))
    code, _, err = launch(capsys, folder / "cluster.yaml", "--plan-only")
    assert code in (0, 2)
    assert len(err.splitlines()[-1]) < 500


@pytest.mark.parametrize("text", ["!!bool maybe", "!!int ''", "!!timestamp x", "!!float ''"])
def test_a_tag_that_does_not_suit_its_text_is_a_sentence(text: str) -> None:
    with pytest.raises(BadInputError, match=r"line 1, seed: "):
        parse_source(f"seed: {text}", "cluster.yaml")


def test_a_class_is_a_number_that_can_be_counted_to(tmp_path: Path) -> None:
    (tmp_path / "truth.txt").write_text(f"1\n{DIGITS}\n")
    with pytest.raises(BadInputError, match=r"truth.txt, line 2: .{1,110} is not a class"):
        read_truth(tmp_path / "truth.txt", 2)


def test_a_wrong_value_is_shown_in_brief() -> None:
    with pytest.raises(BadInputError) as caught:
        load_text("model: a.onnx\nnodes: [{name: a, memory: " + "x" * 100_000 + "}]\n")
    assert "must be a size such as 4GB" in str(caught.value)
    assert len(str(caught.value)) < 300


def load_text(text: str) -> None:
    from launcher.config.load import validated  # noqa: PLC0415

    validated(parse_source(text, "cluster.yaml"))


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("name", [PLAN, f"{SUBNETS}/index.json"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "link to a device", "huge"])
def test_a_file_that_is_not_regular_or_too_large_is_refused_in_a_sentence(
    tmp_path: Path, name: str, kind: str
) -> None:
    """Opening a pipe would wait for ever, reading a device never ends."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "huge":
            path.touch()
            os.truncate(path, MOST_BYTES + 1)
        case _:
            path.symlink_to("/dev/zero")
    with pytest.raises(BadInputError, match=f"{path}: cannot be read: "):
        read_json(path)


def test_a_cluster_may_come_through_a_pipe(folder: Path) -> None:
    out, into = os.pipe()
    os.write(into, CLUSTER.replace("branches.onnx", str(folder / "branches.onnx")).encode())
    os.close(into)
    try:
        assert load_cluster(Path(f"/dev/fd/{out}")).config.frames == 2
    finally:
        os.close(out)


def test_a_file_of_millions_of_values_is_refused_early() -> None:
    with pytest.raises(BadInputError, match="holds more than 100000 values"):
        parse_source("[" + "1," * 3_000_000 + "]", "cluster.yaml")


@pytest.mark.parametrize("name", ["..", ".", "", "../keep", "/etc/passwd", "a\0b", "x" * 300, "ü"])
def test_an_index_names_files_in_its_own_folder_only(
    plan: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Files that an earlier plan needed are removed."""
    keep = plan / "keep"
    keep.touch()
    index = plan / SUBNETS / "index.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), "0": [name]}))
    code, _, err = launch(capsys, plan, "--plan-only", "--save", plan)
    assert code == 0, err
    assert keep.exists()
    assert "0" not in json.loads(index.read_text())
