"""The key `sinks`: kinds, plugins, paths, secrets, and the sentence for each mistake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from launcher.config.load import Cluster, load_cluster
from launcher.errors import BadInputError
from launcher.sinks.kinds import SINKS
from launcher.sinks.opening import open_sinks

CLUSTER = """\
model: builtin:yolov2
nodes: [{name: a}]
sinks:
"""

PLUGIN = """
from typing import ClassVar
from launcher.sinks.base import SinkConfig

class Loud(SinkConfig):
    kind: ClassVar[str] = "loud"
    volume: int = 3
    def open(self, folder):
        raise NotImplementedError

not_a_sink = 7
"""


def cluster(folder: Path, sinks: str) -> Cluster:
    (folder / "cluster.yaml").write_text(CLUSTER + sinks)
    return load_cluster(folder / "cluster.yaml", "cluster.yaml")


def mistake(folder: Path, sinks: str) -> str:
    with pytest.raises(BadInputError) as caught:
        open_sinks(cluster(folder, sinks))
    return str(caught.value)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with entry points, as pip would install it."""
    (tmp_path / "loud_sink.py").write_text(PLUGIN)
    info = tmp_path / "csdf_loud-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: csdf-loud\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[csdf_edge.sinks]\nloud = loud_sink:Loud\nalias = loud_sink:Loud\n"
        "seven = loud_sink:not_a_sink\ngone = loud_sink:Gone\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


def test_sinks_are_opened_in_order_and_their_paths_begin_at_the_files_folder(
    tmp_path: Path,
) -> None:
    sinks = "  - {kind: json-lines, path: out/a.jsonl, queue_results: 3}\n  - {kind: stdout}\n"
    (first, lines), (second, out) = open_sinks(cluster(tmp_path, sinks))
    assert (first.queue_results, second.on_overload) == (3, "block")
    assert lines.description == f"json-lines {tmp_path}/out/a.jsonl"
    assert out.description == "standard output"


@pytest.mark.parametrize(
    ("sinks", "sentence"),
    [
        ("  - {path: x}", "line 4, sinks[0]: the key 'kind' is missing"),
        ("  - {kind: 3}", "line 4, sinks[0].kind: must be text, not 3"),
        (
            "  - stdout",
            "sinks[0]: must be a mapping with the key kind, such as {kind: ",
        ),
        ("  {kind: stdout}", "line 3, sinks: must be a list, not a mapping"),
        ("  - {kind: stdout}\n  - {kind: json-lines}", "sinks[1]: the key 'path' is missing"),
        ("  - {kind: json-lines, path: }", "sinks[0].path: must be text, not nothing"),
        ("  - {kind: json-lines, pat: x}", "sinks[0].pat: unknown key; did you mean 'path'?"),
        (
            "  - {kind: stdout, zebra: x}",
            "sinks[0].zebra: unknown key; the keys known here are kind, on_overload, queue_results",
        ),
        (
            "  - {kind: json-lines, path: x, keep_files: 3}",
            "line 4, sinks[0]: keep_files has no effect without rotate_bytes or rotate_s; add one",
        ),
        (
            "  - {kind: json-lines, path: x}\n  - {kind: json-lines, path: ./x}",
            "line 5, sinks[1].path: the sink on line 4 writes there; name another",
        ),
    ],
)
def test_a_mistake_is_named_with_file_line_and_key(
    tmp_path: Path, sinks: str, sentence: str
) -> None:
    assert sentence in mistake(tmp_path, sinks)


def test_an_unknown_kind_lists_those_there_are(tmp_path: Path, plugin: None) -> None:
    said = mistake(tmp_path, "  - {kind: kafka}")
    assert "line 4, sinks[0].kind: there is no kind of sink 'kafka'; there are " in said
    assert "json-lines" in said
    assert "loud" in said


def test_a_plugin_is_a_kind_like_others(tmp_path: Path, plugin: None) -> None:
    (config,) = cluster(tmp_path, "  - {kind: loud, volume: 11}").config.sinks
    assert SINKS.as_written(config) == {"kind": "loud", "volume": 11}
    assert "volume: must be a whole number" in mistake(tmp_path, "  - {kind: loud, volume: x}")
    assert "did you mean 'volume'" in mistake(tmp_path, "  - {kind: loud, volum: 1}")


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("gone", "the kind 'gone' of the package 'csdf-loud' cannot be imported: "),
        ("seven", "the kind 'seven' of the package 'csdf-loud' is no SinkConfig"),
        ("alias", "the kind 'alias' of the package 'csdf-loud' calls itself 'loud'"),
    ],
)
def test_a_broken_plugin_is_named_with_its_package(
    tmp_path: Path, plugin: None, kind: str, sentence: str
) -> None:
    assert f"sinks[0].kind: {sentence}" in mistake(tmp_path, f"  - {{kind: {kind}}}")


def test_reading_a_cluster_imports_no_library_of_a_sink(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER + "  - {kind: stdout}")
    code = (
        "import sys; from pathlib import Path; from launcher.config.load import load_cluster;"
        "from launcher.sinks.kinds import SINKS; [SINKS.find(kind) for kind in SINKS.built_in];"
        f"load_cluster(Path({str(tmp_path / 'cluster.yaml')!r}));"
        "assert not {'av', 'cv2', 'paho', 'urllib3'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
