"""The committed JSON schema is that of the models, and the files of the repository use it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from launcher.config.cluster import ClusterConfig, InputConfig, ModelConfig, NodeConfig, RunConfig
from launcher.config.load import load_cluster
from launcher.config.schema import cluster_schema, schema_text
from launcher.config.serve import ServeConfig
from launcher.config.task import TaskConfig

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


def test_short_forms_are_in_the_schema() -> None:
    properties = cluster_schema()["properties"]
    assert {"type": "string"} in properties["model"]["anyOf"]
    assert {"type": "string"} in properties["input"]["anyOf"]
    assert {"$ref": "#/$defs/TaskConfig/properties/kind"} in properties["task"]["anyOf"]


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_cluster_of_the_repository_is_valid_and_names_the_schema(path: Path) -> None:
    first = path.read_text("utf-8").splitlines()[0]
    match = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert match, "the first line tells editors the schema"
    assert (path.parent / match[1]).resolve() == ROOT / "launcher" / "cluster.schema.json"
    assert load_cluster(path).config.nodes
