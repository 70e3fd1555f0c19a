"""What `partition profile` and runs measure is kept in one place; all of it with real agents."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from launcher.config.load import load_cluster
from launcher.plan.measuring import NewMeasurements, measure
from launcher.plan.profile.file import ProfileFile, default_cache
from launcher.plan.settings import read_model
from launcher.progress import LineDisplay
from launcher.run.request import Request
from launcher.streaming.job import Outcome
from tests.launcher.launches import AGENTS
from tests.launcher.launches import launched as on_nodes
from tests.launcher.models import write_branches
from tests.launcher.test_greetings import counting_agent

LAYERS = 7
BEGINS = "begins with what was measured earlier"


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("agents")
    with ExitStack() as stack:
        yield {n: stack.enter_context(counting_agent(n, folder))[0] for n in ("a", "b")}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # A machine with other work changes its speed by more than this between two launches.
    monkeypatch.setattr("launcher.plan.profile.file.CHANGED", math.inf)
    write_branches(tmp_path / "branches.onnx")
    return tmp_path


def write(folder: Path, addresses: dict[str, str], more: dict[str, str] | None = None) -> Path:
    """Write a cluster of these agents; `more` has further keys of nodes, by default a host each."""
    more = more or {name: f", host: {name}" for name in addresses}
    nodes = "".join(
        f"  - {{name: {name}, address: '{address}'{more.get(name, '')}}}\n"
        for name, address in addresses.items()
    )
    path = folder / "cluster.yaml"
    path.write_text(
        f"model: branches.onnx\nnodes:\n{nodes}strategy: sequential\ninput: random\nframes: 2\n"
        "pins: {stem: a, head: b}\n"
    )
    return path


def profiled(path: Path, *, again: bool = False) -> tuple[ProfileFile, NewMeasurements]:
    cluster, progress = load_cluster(path), LineDisplay(io.StringIO())
    model, cache = read_model(cluster), default_cache()
    file, _, taken = measure(cluster, model, None, progress, cache, again=again, most_s=0.0)
    return file, taken


def launched(
    path: Path, profile: Path | None = None, search: str | None = None
) -> tuple[Outcome, str]:
    said = io.StringIO()
    request = Request(path, profile=profile, search=search)
    outcome = on_nodes(request, AGENTS, said)
    assert outcome.report is not None
    assert outcome.report.agrees
    return outcome, said.getvalue()


def test_a_launch_begins_with_what_was_profiled(folder: Path, addresses: dict[str, str]) -> None:
    path = write(folder, addresses)
    assert BEGINS not in launched(path)[1]
    profiled(path)
    outcome, said = launched(path)
    (line,) = [each for each in said.splitlines() if BEGINS in each]
    assert line.count(f"{LAYERS} layers") == 2
    assert line.count("a copy") == 2
    assert line.endswith("1 link")
    assert outcome.plan is not None
    assert outcome.plan.times == "measured"


def test_a_profile_that_is_named_counts_more(folder: Path, addresses: dict[str, str]) -> None:
    path = write(folder, addresses)
    file, _ = profiled(path)
    slow = file.model_dump()
    for node in slow["nodes"].values():
        for subnet in node["measured"]["subnets"]:
            subnet["seconds"] = 100.0
    named = folder / "profile.json"
    named.write_text(ProfileFile.model_validate(slow).model_dump_json())
    outcome, said = launched(path, named)
    assert BEGINS not in said
    assert outcome.plan is not None
    assert outcome.plan.period_s >= 100.0
    outcome, _ = launched(path)
    assert outcome.plan is not None
    assert outcome.plan.period_s < 1.0, "the named profile is not kept in the place of the other"


def test_what_is_measured_later_counts(folder: Path, addresses: dict[str, str]) -> None:
    """A rehearsal after a profile, and a profile after a rehearsal."""
    path = write(folder, addresses)
    launched(path)
    file, _ = profiled(path)
    cluster = load_cluster(path)
    model, who = read_model(cluster), {n: each.identity for n, each in file.nodes.items()}

    def kept(name: str) -> float:
        times = default_cache().node(model.digest, who[name], model.network.layer)
        assert times is not None
        return sum(subnet.seconds for subnet in times.subnets)

    first = {name: kept(name) for name in who}
    launched(path)
    second = {name: kept(name) for name in who}
    assert all(second[name] != first[name] for name in who)
    profiled(path, again=True)
    assert all(kept(name) != second[name] for name in who)


def test_damaged_entries_are_measured_again(folder: Path, addresses: dict[str, str]) -> None:
    path = write(folder, addresses)
    profiled(path)
    _, taken = profiled(path)
    assert not any(vars(taken).values())
    for entry in (folder / "cache" / "csdf-edge-profiles").iterdir():
        entry.write_bytes(entry.read_bytes()[:40])
    assert BEGINS not in launched(path)[1]
    _, taken = profiled(path)
    assert (taken.layers, taken.copies) == (2 * LAYERS, 2)
    assert taken.links == 0, "the launch has measured the link anew"
    assert BEGINS in launched(path)[1]


@pytest.mark.parametrize(
    ("hosts", "measured"),
    [
        ({"a": ", host: left", "b": ", host: right"}, 2),
        ({"a": ", host: board", "b": ", host: board"}, 1),
        ({}, 2),
    ],
)
def test_the_host_in_the_file_decides_which_nodes_share_their_measurements(
    folder: Path, addresses: dict[str, str], hosts: dict[str, str], measured: int
) -> None:
    """Both agents are alike, and have addresses on this machine, as ends of tunnels have."""
    path = write(folder, addresses, hosts)
    file, taken = profiled(path)
    assert taken.layers == measured * LAYERS
    assert taken.copies == measured
    one, other = (file.nodes[name] for name in "ab")
    assert (one.measured == other.measured) is (measured == 1)
    assert launched(path)[1].count(f"({LAYERS} layers") == 2


def test_another_address_of_the_same_host_is_the_same_node(
    folder: Path, addresses: dict[str, str]
) -> None:
    """A tunnel ends at another port each time; the host that the user names stays."""
    hosts = {name: f", host: {name}" for name in addresses}
    path = write(folder, addresses, hosts)
    profiled(path)
    elsewhere = {n: each.replace("127.0.0.1", "localhost") for n, each in addresses.items()}
    _, taken = profiled(write(folder, elsewhere, hosts))
    assert not any(vars(taken).values())
    assert BEGINS in launched(path)[1]


def test_a_run_shorter_than_the_search_says_so(folder: Path, addresses: dict[str, str]) -> None:
    path = write(folder, addresses)
    path.write_text(path.read_text().replace("strategy: sequential", "strategy: auto"))
    outcome, _ = launched(path)
    assert outcome.report is not None
    assert "--search again searches first" in outcome.report.explanation
    outcome, _ = launched(path, search="again")
    assert outcome.report is not None
    assert "--search again" not in outcome.report.explanation
