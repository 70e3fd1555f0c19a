"""The committed JSON schema is that of the models, and the files of the repository use it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from launcher.config.cluster import ClusterConfig
from launcher.config.load import load_cluster
from launcher.config.network import InputConfig, ModelConfig
from launcher.config.node import NodeConfig
from launcher.config.run import RunConfig
from launcher.config.schema import cluster_schema, schema_text
from launcher.config.serve import ServeConfig
from launcher.config.task import TaskConfig, TaskKind

ROOT = Path(__file__).parents[2]
CLUSTERS = [ROOT / "cluster.yaml", *sorted(ROOT.glob("examples/**/cluster*.yaml"))]


def test_the_committed_schema_is_the_models_schema() -> None:
    committed = (ROOT / "launcher" / "cluster.schema.json").read_text("utf-8")
    assert committed == schema_text(), "run `make schema`"


def test_every_key_is_described() -> None:
    schema = cluster_schema()
    models = (ClusterConfig, ModelConfig, NodeConfig, InputConfig, RunConfig, ServeConfig)
    for model in (*models, TaskConfig):
        part = schema if model is ClusterConfig else schema["$defs"][model.__name__]
        assert set(part["properties"]) == set(model.model_fields)
        assert part["additionalProperties"] is False
        for key, described in part["properties"].items():
            assert described.get("description"), f"{model.__name__}.{key}"


@pytest.mark.parametrize(
    ("key", "form"),
    [
        ("model", {"type": "string"}),
        ("model", {"$ref": "#/$defs/ModelConfig"}),
        ("input", {"type": "string"}),
        ("input", {"items": {"type": "string"}, "minItems": 1, "type": "array"}),
        ("journal", {"type": "string"}),
        ("recovery", {"type": "boolean"}),
        ("task", {"enum": list(get_args(TaskKind)), "type": "string"}),
    ],
)
def test_short_forms_are_in_the_schema(key: str, form: dict[str, object]) -> None:
    described = cluster_schema()["properties"][key]
    forms = [*described.get("anyOf", ()), *described.get("oneOf", ())]
    assert form in [each for one in forms for each in (one, *one.get("anyOf", ()))]


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_cluster_of_the_repository_is_valid_and_names_the_schema(path: Path) -> None:
    first = path.read_text("utf-8").splitlines()[0]
    match = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert match, "the first line tells editors the schema"
    assert (path.parent / match[1]).resolve() == ROOT / "launcher" / "cluster.schema.json"
    assert load_cluster(path).config.nodes
