"""The key `source` of `input:`: kinds, short forms, plugins, and the sentence for each mistake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from launcher.config.cluster import InputConfig
from launcher.config.ends.source_kinds import SOURCES
from launcher.config.load import Cluster, load_cluster
from launcher.config.redaction import without_password
from launcher.errors import BadInputError
from launcher.plan.files import cluster_text
from launcher.run.request import Request
from launcher.sources.opening import open_source
from launcher.streaming.job import load_target

CLUSTER = "model: builtin:yolov2\nnodes: [{name: a}]\n"

PLUGIN = """
from typing import ClassVar
from launcher.config.ends.source import SourceConfig

class Sky(SourceConfig):
    kind: ClassVar[str] = "sky"
    colour: str = "blue"
    def open(self, folder):
        raise NotImplementedError

broken = 1 / 0 if False else None
"""


def cluster(folder: Path, given: str) -> Cluster:
    (folder / "cluster.yaml").write_text(f"{CLUSTER}input: {given}\n")
    return load_cluster(folder / "cluster.yaml", "cluster.yaml")


def mistake(folder: Path, given: str) -> str:
    with pytest.raises(BadInputError) as caught:
        opened(cluster(folder, given))
    return str(caught.value)


def opened(given: Cluster) -> str:
    """Open the source of a cluster and return its description."""
    where = given.source.where(("input", "source"))
    return open_source(given.config.input, given.folder, where).description


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with entry points, as pip would install it."""
    (tmp_path / "sky_source.py").write_text(PLUGIN)
    info = tmp_path / "csdf_sky-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: csdf-sky\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[csdf_edge.sources]\nsky = sky_source:Sky\ngone = sky_source:Gone\n"
        "nothing = sky_source:broken\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(
    ("text", "mapping"),
    [
        ("rtsp://camera/stream", {"kind": "video", "url": "rtsp://camera/stream"}),
        ("udp://0.0.0.0:5000", {"kind": "video", "url": "udp://0.0.0.0:5000"}),
        ("/dev/video2", {"kind": "video", "url": "/dev/video2"}),
        ("clips/Clip.MP4", {"kind": "video", "url": "clips/Clip.MP4"}),
        ("/dev/shm/clip.mp4", {"kind": "video", "url": "/dev/shm/clip.mp4"}),
        ("cam[1]/clip [a1].mp4", {"kind": "video", "url": "cam[1]/clip [a1].mp4"}),
        ("{source: /dev/shm/incoming}", {"kind": "folder", "path": "/dev/shm/incoming"}),
        ('"-"', {"kind": "stdin"}),
        ("{source: incoming}", {"kind": "folder", "path": "incoming"}),
        ("{source: clip.mkv, scale: 1.0}", {"kind": "video", "url": "clip.mkv"}),
        ("{source: {kind: stdin}}", {"kind": "stdin"}),
    ],
)
def test_the_look_of_a_text_decides_which_source_it_is(
    tmp_path: Path, text: str, mapping: dict[str, str]
) -> None:
    found = cluster(tmp_path, text).config.input
    assert found.files == ()
    assert found.source is not None
    assert SOURCES.as_written(found.source) == mapping


@pytest.mark.parametrize("text", ["random", "a.png", "[a.png]"])
def test_files_and_random_are_no_sources(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.png").touch()
    assert cluster(tmp_path, text).config.input.source is None


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            "{source: x, files: y}",
            "line 3, input: must have either the key 'files' or the key 'source'",
        ),
        ("{scale: 1.0}", "line 3, input: must have either the key 'files' or the key 'source'"),
        ("{source: {url: x}}", "line 3, input.source: the key 'kind' is missing"),
        ("{source: 7}", "line 3, input.source: must be a mapping with the key kind, such as {kind"),
        ("{source: {kind: video, ur: x}}", "input.source.ur: unknown key; did you mean 'url'?"),
        (
            "{source: {kind: stdin, zebra: x}}",
            "input.source.zebra: unknown key; the keys known here are kind",
        ),
        (
            "{source: {kind: video, url: x, timeout_s: -1}}",
            "line 3, input.source.timeout_s: must be above 0, not -1",
        ),
        (
            "{source: {kind: video, url: x, options: {framerate: 30}}}",
            "input.source.options.framerate: must be text, not the value given",
        ),
        (
            "{source: {kind: video, url: [rtsp://me:secret@x]}}",
            "input.source.url: must be text, not a list",
        ),
        (
            "{source: {kind: folder, path: x, after: move}}",
            "input.source: after: move and move_to belong together; give both or none",
        ),
        ("none.mp4", "line 3, input.source: there is no file '"),
        ("{source: nowhere}", "line 3, input.source: there is no folder '"),
        ("{source: {kind: video, url: .}}", "is not a regular file; name another"),
        (".", "is a folder; name its files, such as ./*.png, or write input: {source: .} to watch"),
    ],
)
def test_a_mistake_is_named_with_file_line_and_key(
    tmp_path: Path, given: str, sentence: str
) -> None:
    said = mistake(tmp_path, given)
    assert sentence in said
    assert "secret" not in said


def test_an_unknown_kind_lists_those_there_are(tmp_path: Path, plugin: None) -> None:
    said = mistake(tmp_path, "{source: {kind: webcam}}")
    assert (
        "line 3, input.source.kind: there is no kind of source 'webcam'; there are video, folder, "
        "stdin, gone, nothing, sky" in said
    )


def test_a_plugin_is_a_kind_like_others(tmp_path: Path, plugin: None) -> None:
    found = cluster(tmp_path, "{source: {kind: sky, colour: grey}}").config.input.source
    assert found is not None
    assert SOURCES.as_written(found) == {"kind": "sky", "colour": "grey"}
    assert "did you mean 'colour'" in mistake(tmp_path, "{source: {kind: sky, color: grey}}")


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("gone", "the kind 'gone' of the package 'csdf-sky' cannot be imported: "),
        ("nothing", "the kind 'nothing' of the package 'csdf-sky' is no SourceConfig"),
    ],
)
def test_a_broken_plugin_is_named_with_its_package(
    tmp_path: Path, plugin: None, kind: str, sentence: str
) -> None:
    assert f"input.source.kind: {sentence}" in mistake(tmp_path, f"{{source: {{kind: {kind}}}}}")


def test_other_keys_of_the_input_apply_to_a_source(tmp_path: Path) -> None:
    found = cluster(tmp_path, "{source: rtsp://x/y, scale: 2.0, colors: bgr}").config.input
    assert (found.scale, found.colors) == (2.0, "bgr")


@pytest.mark.parametrize(
    ("given", "files", "source"),
    [
        (["rtsp://x/y"], 0, {"kind": "video", "url": "rtsp://x/y"}),
        (["-"], 0, {"kind": "stdin"}),
        (["a.mp4"], 0, {"kind": "video", "url": str(Path("a.mp4").absolute())}),
        (["a.png"], 1, None),
        (["random"], 1, None),
    ],
)
def test_the_option_has_the_same_short_forms_from_the_current_folder(
    tmp_path: Path, given: list[str], files: int, source: dict[str, str] | None
) -> None:
    cluster(tmp_path, "{source: rtsp://from/file, scale: 2.0}")
    loaded = load_target(Request(tmp_path / "cluster.yaml", inputs=given))
    found = loaded.cluster.config.input
    assert len(found.files) == files
    assert (None if found.source is None else SOURCES.as_written(found.source)) == source
    assert found.scale == 2.0


def test_a_saved_plan_has_the_source_with_absolute_paths(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "clip.mp4").touch()
    for given, kept in (
        ("{source: in, scale: 2.0}", {"kind": "folder", "path": str(tmp_path / "in")}),
        ("clip.mp4", {"kind": "video", "url": str(tmp_path / "clip.mp4")}),
        ("rtsp://camera/a", {"kind": "video", "url": "rtsp://camera/a"}),
    ):
        saved = yaml.safe_load(cluster_text(cluster(tmp_path, given)))
        assert saved["input"]["source"] == kept
        InputConfig.model_validate(saved["input"])


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("rtsp://me:secret@camera:554/a", "rtsp://camera:554/a"),
        ("rtsp://me:s/ecr@e?t@camera/a", "rtsp://camera/a"),
        ("http://camera/a?user=me&password=secret", "http://camera/a"),
        ("http://camera/a#secret", "http://camera/a"),
        ("rtsp://camera/a", "rtsp://camera/a"),
        ("clip@home.mp4", "clip@home.mp4"),
    ],
)
def test_an_address_is_shown_without_what_may_be_secret(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_no_text_of_a_source_has_the_password(tmp_path: Path) -> None:
    given = cluster(tmp_path, "rtsp://me:secret@camera/a?token=secret")
    assert opened(given) == "rtsp://camera/a"
    assert "secret" not in repr(given.config.input)


def test_reading_a_cluster_imports_no_library_of_a_source(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(f"{CLUSTER}input: rtsp://camera/a\n")
    code = (
        "import sys; from pathlib import Path; from launcher.config.load import load_cluster;"
        "from launcher.config.ends.source_kinds import SOURCES;"
        "[SOURCES.find(kind) for kind in SOURCES.built_in];"
        f"load_cluster(Path({str(tmp_path / 'cluster.yaml')!r}));"
        "assert not {'av', 'cv2'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
