"""What the documents tell a user to write and to type is what the programs take."""

import importlib
import re
import subprocess
import sys
from functools import cache

import pytest
import typer
from pydantic import BaseModel

from benchmarks import results
from ga.strategies import STRATEGIES
from launcher.commands.launch import SUBCOMMANDS
from launcher.config.cluster import ClusterConfig, RecoveryConfig
from launcher.config.ends.kinds import SINKS
from launcher.config.load import validated
from launcher.config.network import InputConfig, ModelConfig
from launcher.config.node import NodeConfig
from launcher.config.run import ReconnectConfig, RunConfig
from launcher.config.serve import ServeConfig
from launcher.config.source import parse_source
from launcher.config.task import TaskConfig
from launcher.config.tuning import HybridTuning, PaperTuning, RunsTuning, VerticalTuning
from tests.architecture.source import PACKAGES, sources
from tests.docs import markdown

README = markdown.ROOT / "README.md"
DOCS = markdown.ROOT / "docs"
BENCHMARKS = DOCS / "benchmarks.md"
PAGES_FOR_USERS = (
    "cluster-yaml.md",
    "measuring.md",
    "models.md",
    "running.md",
    "strategies.md",
)
PROGRAMS = {"launch": "launcher.commands.launch", "node-agent": "nodes.cli"}
GROUPS = {"csdf-edge partition": "launcher.commands.partition", "ga": "launcher.commands.ga"}
OUTLIVED = {"CHANGELOG.md"}
"""Documents that may name what was removed later."""
UNIT = markdown.ROOT / "deploy" / "node-agent.service"

SNIPPETS = [
    pytest.param(text, id=f"{markdown.name(path)}-{number}")
    for path in markdown.files()
    for number, text in enumerate(markdown.blocks(path, "yaml"))
]


@pytest.mark.parametrize("text", SNIPPETS)
def test_every_cluster_in_a_document_is_valid(text: str) -> None:
    cluster = validated(parse_source(text, "README.md"))
    names = {node.name for node in cluster.nodes}
    assert set(cluster.pins.values()) <= names


def test_the_documents_show_clusters() -> None:
    assert markdown.blocks(README, "yaml")
    assert len(markdown.blocks(DOCS / "models.md", "yaml")) >= 3
    assert len(SNIPPETS) >= 6


@cache
def options(program: str, *subcommand: str) -> frozenset[str]:
    """The options that `program SUBCOMMAND --help` tells of."""
    told = subprocess.run(
        [sys.executable, "-m", PROGRAMS[program], *subcommand, "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"},
    ).stdout
    return frozenset(re.findall(r"--[a-z][a-z-]*", told))


def commands(program: str) -> list[tuple[str, str]]:
    """(document, command line) wherever a document starts `program` with an option."""
    found = []
    for path in markdown.files():
        text = path.read_text(encoding="utf-8")
        shell = "\n".join([*markdown.blocks(path, "bash"), *re.findall(r"`([^`\n]+)`", text)])
        for line in shell.splitlines():
            command = line.partition("#")[0].strip()
            words = command.split()
            own = program.split()
            if words and [words[0].rpartition("/")[2], *words[1 : len(own)]] == own:
                found.append((markdown.name(path), command))
    return found


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_option_in_a_document_exists(program: str) -> None:
    lines = commands(program)
    assert lines, f"no document tells how to start {program}"
    for document, command in lines:
        first = command.split()[len(program.split()) :][:1]
        given = [word for word in first if program == "launch" and word in SUBCOMMANDS]
        unknown = set(re.findall(r"--[a-z][a-z-]*", command)) - options(program, *given)
        assert not unknown, f"{document}: {command}"


@cache
def subcommands(program: str) -> dict[str, frozenset[str]]:
    """Subcommand → its options, of a program that has any."""
    group = typer.main.get_group(importlib.import_module(GROUPS[program]).app)
    return {
        name: frozenset(option for parameter in found.params for option in parameter.opts)
        | {"--help"}
        for name, found in group.commands.items()
    }


@pytest.mark.parametrize("program", GROUPS)
def test_every_subcommand_and_its_options_in_a_document_exist(program: str) -> None:
    lines = commands(program)
    assert lines, f"no document tells how to start {program}"
    for document, command in lines:
        words = command.split()[len(program.split()) :]
        if not words or words[0].startswith("-"):
            continue
        assert words[0] in subcommands(program), f"{document}: {command}"
        unknown = set(re.findall(r"--[a-z][a-z-]*", command)) - subcommands(program)[words[0]]
        assert not unknown, f"{document}: {command}"


def test_every_option_that_a_page_for_users_names_alone_exists() -> None:
    known = options("launch") | options("node-agent")
    for program in GROUPS:
        known = known.union(*subcommands(program).values())
    alone = {
        (page.name, option)
        for page in (README, *(DOCS / name for name in PAGES_FOR_USERS))
        for option in re.findall(r"`(--[a-z][a-z-]*)[^`\n]*`", page.read_text(encoding="utf-8"))
    }
    assert alone
    assert [(page, option) for page, option in alone if option not in known] == []


REFERENCE = {
    ClusterConfig: "cluster-yaml.md",
    NodeConfig: "cluster-yaml.md",
    ModelConfig: "cluster-yaml.md",
    InputConfig: "cluster-yaml.md",
    RunConfig: "cluster-yaml.md",
    RecoveryConfig: "cluster-yaml.md",
    ReconnectConfig: "streaming.md",
    ServeConfig: "cluster-yaml.md",
    **{SINKS.find(kind): "sinks.md" for kind in SINKS.built_in},
    TaskConfig: "tasks.md",
    VerticalTuning: "measuring.md",
    PaperTuning: "measuring.md",
    RunsTuning: "measuring.md",
    HybridTuning: "measuring.md",
}


@pytest.mark.parametrize("model", REFERENCE, ids=lambda model: model.__name__)
def test_the_reference_has_a_row_for_every_key(model: type[BaseModel]) -> None:
    text = (DOCS / REFERENCE[model]).read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`[a-z_]+`(?:, )?)+) \|", text, re.MULTILINE)
    described = {key for row in rows for key in re.findall(r"`([a-z_]+)`", row)}
    assert set(model.model_fields) <= described


def test_the_reference_describes_every_strategy_and_no_other() -> None:
    text = (DOCS / "strategies.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE)) == set(STRATEGIES)


def test_every_make_target_in_a_document_exists() -> None:
    makefile = (markdown.ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", makefile, re.MULTILINE))
    for path in (path for path in markdown.files() if path.name not in OUTLIVED):
        shell = "\n".join(markdown.blocks(path, "bash"))
        shell += "\n".join(re.findall(r"`(make [^`\n]+)`", path.read_text(encoding="utf-8")))
        for target in re.findall(r"\bmake ([a-z][a-z0-9-]*)", shell):
            assert target in targets, f"{markdown.name(path)}: make {target}"


def test_the_systemd_unit_starts_the_agent_with_options_that_it_has() -> None:
    (command,) = re.findall(r"^ExecStart=(.+)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)
    program, *_ = command.split()
    assert program.rpartition("/")[2] == "node-agent"
    assert set(re.findall(r"--[a-z][a-z-]*", command)) <= options("node-agent")


def test_the_benchmarks_page_has_no_figures_of_saved_results() -> None:
    """They would soon differ from those on the results' page."""
    rows = {
        found[1]: line.rstrip(" |").rpartition(" | ")[2]
        for line in BENCHMARKS.read_text(encoding="utf-8").splitlines()
        if (found := re.match(r"\| `python -m benchmarks\.(\w+)", line))
    }
    for result in results.read_all().values():
        found = re.search(r"-m benchmarks\.(\w+)", result["command"])
        if found:
            assert rows[found[1]] == "[results](results.md)", found[1]


def test_the_benchmarks_page_describes_every_benchmark_and_no_other() -> None:
    told = set(re.findall(r"python -m benchmarks\.(\w+)", BENCHMARKS.read_text(encoding="utf-8")))
    modules = {path.stem for path in (markdown.ROOT / "benchmarks").glob("*.py")}
    programs = {
        name
        for name in modules
        if "__main__" in (markdown.ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")
    }
    packages = {path.parent.name for path in (markdown.ROOT / "benchmarks").glob("*/__main__.py")}
    assert programs <= told <= programs | packages


def test_every_benchmark_that_is_cited_exists() -> None:
    """In documents and in the programs' comments."""
    present = [path for path in markdown.files() if path.name not in OUTLIVED]
    texts = {markdown.name(path): path.read_text(encoding="utf-8") for path in present}
    texts |= {source.name: source.text for source in sources(*PACKAGES, "benchmarks")}
    cited = {
        (name, found)
        for name, text in texts.items()
        for found in re.findall(r"\bbenchmarks[./](?!md\b)(\w+)", text)
    }
    here = {path.stem for path in (markdown.ROOT / "benchmarks").iterdir()}
    assert len(cited) > 50
    assert {(name, found) for name, found in cited if found not in here} == set()
