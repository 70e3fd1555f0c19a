"""The key `sinks`: kinds, plugins, paths, secrets, and the sentence for each mistake."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launcher.config.ends.sink_kinds import SINKS
from launcher.config.load import Cluster, load_cluster
from launcher.errors import BadInputError
from launcher.progress import LineProgress
from launcher.run.request import Request
from launcher.sinks.opening import open_sinks
from launcher.streaming.job import launch
from tests.launcher.in_process import InProcess
from tests.launcher.models import write_branches

CLUSTER = """\
model: builtin:yolov2
input: {source: "-"}
nodes: [{name: a}]
sinks:
"""

PLUGIN = """
from typing import ClassVar
from launcher.config.ends.sink import SinkConfig

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
        ("  - {path: x}", "line 5, sinks[0]: the key 'kind' is missing"),
        ("  - {kind: 3}", "line 5, sinks[0].kind: must be text, not 3"),
        (
            "  - stdout",
            "sinks[0]: must be a mapping with the key kind, such as {kind: npy, …}",
        ),
        ("  {kind: stdout}", "line 4, sinks: must be a list, not a mapping"),
        ("  - {kind: stdout}\n  - {kind: json-lines}", "sinks[1]: the key 'path' is missing"),
        ("  - {kind: json-lines, path: }", "sinks[0].path: must be text, not nothing"),
        ("  - {kind: json-lines, pat: x}", "sinks[0].pat: unknown key; did you mean 'path'?"),
        (
            "  - {kind: stdout, zebra: x}",
            "sinks[0].zebra: unknown key; the keys known here are kind, on_overload, queue_results",
        ),
        (
            "  - {kind: json-lines, path: x, keep_files: 3}",
            "line 5, sinks[0]: keep_files has no effect without rotate_bytes or rotate_s; add one",
        ),
        (
            "  - {kind: npy, path: x}\n  - {kind: images, path: ./x}",
            "line 6, sinks[1].path: the sink on line 5 writes there; name another",
        ),
    ],
)
def test_a_mistake_is_named_with_file_line_and_key(
    tmp_path: Path, sinks: str, sentence: str
) -> None:
    assert sentence in mistake(tmp_path, sinks)


def test_an_unknown_kind_lists_those_there_are(tmp_path: Path, plugin: None) -> None:
    said = mistake(tmp_path, "  - {kind: kafka}")
    assert "line 5, sinks[0].kind: there is no kind of sink 'kafka'; there are " in said
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
        "from launcher.config.ends.sink_kinds import SINKS;"
        "[SINKS.find(kind) for kind in SINKS.built_in];"
        f"load_cluster(Path({str(tmp_path / 'cluster.yaml')!r}));"
        "assert not {'av', 'cv2', 'paho', 'urllib3'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


SECRETS = """\
  - {kind: json-lines, path: out/a.jsonl}
  - {kind: npy, path: out/npy, keep_bytes: 1GB, on_overload: drop-oldest}
  - {kind: mqtt, host: a, topic: t, username: u, password: the-secret-password}
"""


def test_a_saved_plan_has_the_sinks_with_whole_paths_and_without_passwords(tmp_path: Path) -> None:
    write_branches(tmp_path / "branches.onnx")
    (tmp_path / "cluster.yaml").write_text(
        "model: branches.onnx\nstrategy: sequential\nnodes: [{name: a}, {name: b}]\n"
        "input: {source: '-'}\nsinks:\n" + SECRETS
    )
    request = Request(tmp_path / "cluster.yaml", plan_only=True, save=tmp_path / "plan")
    with LineProgress(io.StringIO()) as progress:
        launch(request, progress, started_s=time.monotonic(), runtime=InProcess().runtime)
    assert "secret" not in (tmp_path / "plan" / "cluster.yaml").read_text()
    lines, npy, mqtt = load_cluster(tmp_path / "plan" / "cluster.yaml").config.sinks
    assert SINKS.as_written(lines) == {"kind": "json-lines", "path": f"{tmp_path}/out/a.jsonl"}
    assert SINKS.as_written(npy) == {
        "kind": "npy", "path": f"{tmp_path}/out/npy", "keep_bytes": 10**9,
        "on_overload": "drop-oldest",
    }  # fmt: skip
    assert SINKS.as_written(mqtt) == {"kind": "mqtt", "host": "a", "topic": "t", "username": "u"}


@pytest.mark.parametrize(
    ("keys", "module"),
    [
        ("kind: images, path: x", "cv2"),
        ("kind: video, path: x", "av"),
        ("kind: mqtt, host: a, topic: t", "paho"),
        ("kind: webhook, url: 'http://a/'", "urllib3"),
    ],
)
def test_a_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: str, module: str
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, module, None)
    said = mistake(tmp_path, f"  - {{{keys}}}")
    assert said.startswith("cluster.yaml, line 5, sinks[0]: the sink ")
    assert f"needs {module}, which is not installed: install csdf-edge with its extra" in said
