"""Laboratories that exist on paper only, and control groups that are plain files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from hypothesis import strategies as st

from benchmarks.lab import LabConfig
from benchmarks.lab.actions import Action, MakeFolder, Write
from benchmarks.lab.cgroups import USED_V1, Hierarchies
from benchmarks.lab.layout import Layout
from benchmarks.lab.shell import perform


def tree(root: Path, version: Literal[1, 2]) -> Hierarchies:
    """Where control groups could be mounted: in version 1 a folder for each controller."""
    if version == 2:
        return Hierarchies(2, dict.fromkeys(("cpu", "memory"), root))
    return Hierarchies(1, {name: root / name for name in USED_V1})


def layout(config: LabConfig, root: Path, version: Literal[1, 2] = 1) -> Layout:
    return Layout(config, root / "files", "10.78.9.0/24", tree(root / "cgroup", version))


def perform_files(actions: tuple[Action, ...]) -> None:
    """Only what is done to files and folders."""
    perform(action for action in actions if isinstance(action, MakeFolder | Write))


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", fullmatch=True)
lines = st.fixed_dictionaries(
    {},
    optional={
        "name": names,
        "count": st.integers(1, 3),
        "board": st.sampled_from(("accelerator", "cpu")),
        "cpu": st.floats(0.001, 4.0),
        "memory": st.integers(1 << 20, 1 << 40),
        "link": st.floats(1e3, 1e10),
        "disk": st.integers(1 << 20, 1 << 40),
    },
)


@st.composite
def configs(draw: st.DrawFn) -> LabConfig:
    """Any laboratory whose boards have their own names."""
    drawn = draw(st.lists(lines, min_size=1, max_size=5))
    for number, line in enumerate(drawn):
        if "name" in line:
            line["name"] = f"{line['name'][:20]}_{number}x"
    return LabConfig.model_validate(
        {
            "name": draw(st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True)),
            "devices": tuple(drawn),
            "undisturbed": draw(st.booleans()),
        }
    )
