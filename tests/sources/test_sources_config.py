"""The key `source` of `input:`: kinds, short forms, plugins, and the sentence for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from launcher.config.ends.kinds import SOURCES
from launcher.config.load import Cluster, load_cluster
from launcher.config.network import InputConfig
from launcher.config.redaction import without_password
from launcher.errors import BadInputError
from launcher.plan.files import cluster_text
from launcher.run.request import Request
from launcher.sources.opening import open_source
from launcher.streaming.target import load_target

CLUSTER = "model: builtin:yolov2\nnodes: [{name: a}]\n"


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
        *(
            (f"{{source: {{kind: video, {keys}}}}}", f"line 3, input.source: {sentence}")
            for keys, sentence in (
                ("url: a.mp4, username: me", "username and password are those of an address"),
                ("url: 'rtsp://c/a', password_env: X", "name the user once"),
                ("url: 'rtsp://me@c/a', username: me", "name the user once"),
                ("url: 'rtsp://me:secret@c/a', password_env: X", "url has a password already"),
                (
                    "url: 'rtsp://me@c/a', password_env: X, password_file: x",
                    "password_env and password_file contradict each",
                ),
                ("url: 'rtsp://me@c/a', password_env: NOT_SET", "password_env: the environment"),
                ("url: 'rtsp://me@c/a', password_file: nowhere", "password_file: "),
            )
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
    (tmp_path / "password").write_text("secret\n")
    keys = "{source: {kind: video, url: 'rtsp://camera/a', username: me, password_file: password}}"
    assert opened(cluster(tmp_path, keys)) == "rtsp://camera/a"
