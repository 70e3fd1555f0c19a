"""Examines a cluster: the launching machine, the keys, and every board, all side by side."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from functools import partial
from importlib.metadata import version
from pathlib import Path

from cnn.errors import CnnError
from launcher.config.access import LAUNCHER
from launcher.config.load import Cluster, load_cluster
from launcher.doctor.boards import Board, facts_of, judge_board, read_board
from launcher.doctor.cluster_file import check_cluster_file
from launcher.doctor.cluster_keys import check_cluster_keys
from launcher.doctor.conversation import ANSWER_S
from launcher.doctor.this_machine import LIMIT_S, NAME, examine_this_machine
from launcher.errors import BadInputError, LauncherError
from launcher.files import PROFILES, SIMPLIFIED, user_cache
from launcher.plan.files import CLUSTER, is_plan, no_target, read_plan
from launcher.threads import in_thread
from nodes.doctor.disk import judge_folder, read_folder
from nodes.doctor.findings import Check, Checked, Examination, Finding, Severity
from nodes.doctor.performing import perform
from nodes.host.folders import user_folder
from nodes.net.keys import KeyFolder, KeysError
from partition.errors import PartitionError

BOARD_S = 45.0
"""How long a board may take after its greeting: more than the sum of the limits of the parts."""


def examine(target: Path) -> Examination:
    """Examine the cluster of a cluster.yaml or a saved plan.

    Raises `BadInputError` only if there is no such file. A file with mistakes is a finding, and
    this machine is examined all the same.
    """
    path, plan = _files(target)
    try:
        cluster = load_cluster(path)
    except BadInputError as error:
        return _examine_here(path, error)
    needed, checked = ({}, []) if plan is None else _plan_needs(cluster, plan)
    boards = _boards(cluster, path, needed)
    nodes = cluster.config.nodes
    here = [node for node in nodes if node.address is None]
    addresses = {node.name: node.address for node in nodes}
    own: tuple[Check[None], ...] = (
        Check("cluster file", lambda _: check_cluster_file(path)),
        Check("disk of results", lambda _: _check_results(cluster), limit_s=20.0),
        Check("disk of caches", lambda _: _check_caches(), limit_s=20.0),
        Check("keys", lambda _: check_cluster_keys(cluster.access, addresses, path)),
    )
    facts: dict[str, dict[str, str]] = {board.node.name: {} for board in boards}
    tasks: tuple[Callable[[], list[Checked]], ...] = (
        lambda: examine_this_machine(here),
        lambda: perform(NAME, own, None),
        *(partial(_examine_board, board, facts[board.node.name]) for board in boards),
    )
    side_by_side = [in_thread(task, "doctor") for task in tasks]
    limits_s = [board.greeting_s + BOARD_S for board in boards]
    wait(side_by_side, max([LIMIT_S * max(1, len(here)), *limits_s]))
    checked += [each for task in side_by_side if task.done() for each in task.result()]
    return Examination(tuple(checked), {name: each for name, each in facts.items() if each})


def _files(target: Path) -> tuple[Path, Path | None]:
    """Return the cluster.yaml of a target, and the folder of its plan if it is one."""
    if is_plan(target):
        folder = target if target.is_dir() else target.parent
        return folder / CLUSTER, folder
    path = target / CLUSTER if target.is_dir() else target
    if not path.exists():
        raise no_target(target)
    return path, None


def _examine_here(path: Path, error: BadInputError) -> Examination:
    """Examine what needs no cluster, because its file has a mistake."""
    mistake = Finding(
        Severity.ERROR,
        str(path),
        f"It cannot be used, so no board was examined: {error}.",
        f"${{EDITOR:-vi}} {path}",
    )
    checks: list[Check[None]] = [
        Check("cluster", lambda _: [mistake]),
        Check("cluster file", lambda _: check_cluster_file(path)),
    ]
    return Examination((*perform(NAME, checks, None), *examine_this_machine(())), {})


def _plan_needs(cluster: Cluster, folder: Path) -> tuple[dict[str, int], list[Checked]]:
    """Return the bytes that a saved plan needs on each node, or what is wrong with the plan."""
    from launcher.plan.planner import Planner  # noqa: PLC0415 - slow to import
    from launcher.plan.settings import read_model  # noqa: PLC0415

    found: list[Finding] = []
    needs: dict[str, int] = {}
    try:
        plan = Planner(cluster, read_model(cluster)).saved(read_plan(folder))
        needs = {name: memory.total_bytes for name, memory in plan.memory.items()}
    except (LauncherError, CnnError, PartitionError) as error:
        what = f"It cannot be used: {error}."
        remedy = f"launch {folder} --plan-only"
        found.append(Finding(Severity.ERROR, str(folder), what, remedy))
    return needs, [Checked(NAME, "plan", 0.0, tuple(found))]


def _boards(cluster: Cluster, file: Path, needed: dict[str, int]) -> list[Board]:
    access = cluster.access
    ring = None
    if not access.insecure:
        try:
            ring = KeyFolder(access.keys / LAUNCHER)
        except KeysError:  # the check of keys says so
            ring = None
    ours = version("csdf-edge")
    greeting_s = max(ANSWER_S, cluster.config.run.connect_timeout_s)
    return [
        Board(node, node.address, access, file, ours, ring, needed.get(node.name), greeting_s)
        for node in cluster.config.nodes
        if node.address is not None
    ]


def _check_results(cluster: Cluster) -> list[Finding]:
    """Check the folder of results and journals, and that of the state of services."""
    state = user_folder("XDG_STATE_HOME", ".local/state") / "csdf-edge"
    journal = cluster.config.journal
    results = cluster.folder if journal is None else cluster.path(journal.folder)
    return [
        finding
        for folder, option in ((results, "--output or --journal"), (state, "XDG_STATE_HOME"))
        for finding in judge_folder(read_folder(folder), 0, option)
    ]


def _check_caches() -> list[Finding]:
    """Check the launcher's folders in the user's cache; the agents' is checked with this machine.

    Without them, a launch works, but measures and searches again each time.
    """
    return [
        finding
        for name in (PROFILES, SIMPLIFIED)
        for finding in judge_folder(read_folder(user_cache(name)), 0, "XDG_CACHE_HOME")
    ]


def _examine_board(board: Board, facts: dict[str, str]) -> list[Checked]:
    """Examine one board, and add its facts to `facts`."""

    def run(_: None) -> list[Finding]:
        reading = read_board(board)
        facts.update(facts_of(reading))
        return judge_board(board, reading)

    return perform(board.node.name, [Check("board", run, board.greeting_s + BOARD_S)], None)
