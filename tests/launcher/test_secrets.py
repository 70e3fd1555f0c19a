"""No output has a secret: every place where one may stand is filled, and every output searched."""

from __future__ import annotations

import copy
import json
import os
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.service.server import Up, write_cluster, write_version
from launcher.config.load import load_cluster, validated
from launcher.config.redaction import without_secrets
from launcher.config.source import parse_source
from launcher.errors import BadInputError
from launcher.plan.files import CLUSTER, shown_cluster_text
from tests.launcher.test_end_to_end import Launcher
from tests.streaming.test_launch import change, launcher

__all__ = ["launcher"]

SECRET = "hunter2"

CONFIG = f"""\
model: builtin:yolov2
nodes: [{{name: a}}]
input:
  source:
    kind: video
    url: "rtsp://me-{SECRET}:{SECRET}@camera.local:554/live?key={SECRET}"
    options: {{user_agent: "{SECRET}"}}
sinks:
  - kind: webhook
    url: "https://hooks.local/services/{SECRET}?a={SECRET}"
    headers: {{X-Api-Key: "{SECRET}"}}
  - {{kind: mqtt, host: a, topic: t, username: u, password: "{SECRET}"}}
serve: {{http: "127.0.0.1:0", token: "{SECRET}-0123456789", traces: "http://u:{SECRET}@otel.local/{SECRET}"}}
"""

ANYTHING: list[Any] = [
    [SECRET], {SECRET: SECRET}, {"kind": SECRET}, [[SECRET]], 7, None, True, f"x://u:{SECRET}@h/?{SECRET}",
]  # fmt: skip


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every key and index of the data."""
    pairs = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in pairs:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


SECRET_PLACES = [
    place
    for place in places(yaml.safe_load(CONFIG))
    if {"url", "options", "headers", "password", "token", "traces"} & set(place)
]


@pytest.mark.parametrize(
    "text", [CONFIG, CONFIG.replace("camera.local:554/live?key=", "camera/user=a&password=")]
)
def test_the_configuration_that_is_shown_has_no_secret_and_what_else_is_said(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / CLUSTER).write_text(text)
    shown = shown_cluster_text(load_cluster(tmp_path / CLUSTER))
    assert SECRET not in shown
    for said in ("rtsp://camera", "https://hooks.local", "http://otel.local", "X-Api-Key"):
        assert said in shown


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(SECRET_PLACES), st.sampled_from(ANYTHING), st.booleans())
def test_no_message_about_a_mistake_next_to_a_secret_contains_it(
    place: tuple[Any, ...], value: Any, adds: bool
) -> None:
    data = copy.deepcopy(yaml.safe_load(CONFIG))
    holder = data
    for key in place[:-1]:
        holder = holder[key]
    if adds and isinstance(holder, dict):
        holder[f"{place[-1]}x"] = holder[place[-1]]
    else:
        holder[place[-1]] = value
    try:
        validated(parse_source(yaml.safe_dump(data), CLUSTER))
    except BadInputError as error:
        assert SECRET not in str(error)  # noqa: PT017 - most values are mistakes, not all


names = st.sampled_from(["url", "token", "password", "headers", "x", "sinks", "traces", "API_key"])
trees = st.recursive(
    st.sampled_from([SECRET, 1, None, f"rtsp://a:{SECRET}@b/c?{SECRET}#{SECRET}", "plain"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
)


@given(trees)
def test_what_is_redacted_keeps_its_shape_and_is_so_once_and_for_all(tree: Any) -> None:
    shown = without_secrets(tree)
    assert without_secrets(shown) == shown
    assert f":{SECRET}@" not in json.dumps(shown)


# ---------------------------------------------------------------- whole commands


def files_below(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow
def test_no_output_of_a_stream_has_a_secret_and_what_is_saved_is_its_user_s_alone(
    launcher: Launcher,
) -> None:
    """The camera and the web server refuse, so that their errors are shown, too."""
    folder = launcher.folder
    nobody = "127.0.0.1:9"
    camera = f"http://me:{SECRET}@{nobody}/live?key={SECRET}"
    change(launcher, "source: video.mkv", f'source: {{kind: video, url: "{camera}", timeout_s: 2}}')
    with (folder / CLUSTER).open("a") as file:
        file.write(
            f"  - kind: webhook\n    url: 'http://{nobody}/hook/{SECRET}'\n"
            f"    headers: {{X-Key: {SECRET}}}\n"
            f"serve: {{traces: 'http://u:{SECRET}@{nobody}/{SECRET}', token: {SECRET}-012345678}}\n"
            "reconnect: {first_s: 0.1, tries: 2}\n"
        )
    (folder / "out").mkdir()
    code, out, err = launcher.run(
        CLUSTER, "--report", "out/camera.html", "--save", "saved", "--log-format", "json"
    )
    assert (code, SECRET in out + err) == (2, False), err
    change(launcher, camera, str(folder / "video.mkv"))
    code, out, err = launcher.run(CLUSTER, "--report", "out/sink.html", "--json")
    assert (code, SECRET in out + err) == (1, False), err
    for path in files_below(folder / "out"):
        assert SECRET not in path.read_text(), path
    assert len(list(files_below(folder / "out"))) == 2
    for path in files_below(folder / "saved"):
        if SECRET.encode() in path.read_bytes():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def asked(url: str, token: str | None = None) -> str:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, None, headers), timeout=20) as got:
            return str(got.read().decode())
    except urllib.error.HTTPError as error:
        return str(error.read().decode())


def traced(url: str, token: str) -> str:
    """The answer to a request whose trace is sent to the receiver, which is not there."""
    image = {"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [0.0] * 64}
    headers = {
        "Authorization": f"Bearer {token}",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }
    request = urllib.request.Request(url, json.dumps({"inputs": [image]}).encode(), headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return str(answer.read().decode())


@pytest.mark.slow
def test_no_output_of_a_service_has_a_secret_and_its_state_is_its_user_s_alone(
    tmp_path: Path,
) -> None:
    write_version(tmp_path, 1)
    token = f"{SECRET}-0123456789"
    cluster = write_cluster(
        tmp_path,
        ("digits", 1),
        count=1,
        serve={
            "http": "127.0.0.1:0",
            "grpc": "127.0.0.1:0",
            "token": token,
            "traces": f"http://u:{SECRET}@127.0.0.1:9/{SECRET}",
        },
    )
    up = Up(tmp_path, cluster)
    try:
        up.read_until("version 1 of digits serves")
        seen = [json.dumps(up.command(name)) for name in ("status", "history")]
        base = f"http://{up.http}"
        seen.append(traced(f"{base}/v2/models/digits/infer", token))
        for path in ("/", "/metrics", "/v2", "/csdf-edge/v1/shown", "/csdf-edge/v1/views", "/v2/x"):
            seen += [asked(base + path), asked(base + path, token)]
        command = [sys.executable, "-m", "launcher.commands.launch", "top", "--once"]
        for more in ([], ["--json"]):
            top = subprocess.run(
                [*command, *more, str(tmp_path / "state")],
                capture_output=True,
                text=True,
                check=True,
                env={**os.environ, "COLUMNS": "200"},
            )
            seen.append(top.stdout + top.stderr)
        state = list(files_below(tmp_path / "state"))
        assert any(SECRET.encode() in path.read_bytes() for path in state), "nothing is tested"
        for path in state:
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 or (
                SECRET.encode() not in path.read_bytes()
            ), path
    finally:
        assert up.end() == 0
    seen += ["".join(up.lines), (tmp_path / "up.log").read_text()]
    for text in seen:
        assert SECRET not in text
