"""The key `sinks`: kinds, plugins, paths, secrets, and the sentence for each mistake."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from launcher.config.ends.kinds import SINKS
from launcher.config.load import Cluster, load_cluster
from launcher.errors import BadInputError
from launcher.run.request import Request
from launcher.sinks.opening import open_sinks
from tests.launcher.launches import launched
from tests.launcher.models import write_branches

CLUSTER = """\
model: builtin:yolov2
input: {source: "-"}
nodes: [{name: a}]
sinks:
"""


def cluster(folder: Path, sinks: str) -> Cluster:
    (folder / "cluster.yaml").write_text(CLUSTER + sinks)
    return load_cluster(folder / "cluster.yaml", "cluster.yaml")


def mistake(folder: Path, sinks: str) -> str:
    with pytest.raises(BadInputError) as caught:
        open_sinks(cluster(folder, sinks))
    return str(caught.value)


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
        ("  - stdout", "sinks[0]: must be a mapping with the key kind, such as {kind: npy, …}"),
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
            "line 6, sinks[1].path: the sink on line 5 writes to it; name another",
        ),
    ],
)
def test_a_mistake_is_named_with_file_line_and_key(
    tmp_path: Path, sinks: str, sentence: str
) -> None:
    assert sentence in mistake(tmp_path, sinks)


MISTAKES = {
    "mqtt": [
        ("host: a", "the key 'topic' is missing"),
        ("host: a, topic: 'a/#'", "topic: a topic that is published to has no +, no # and no con"),
        (
            'host: a, topic: "a/\\x01"',
            "topic: a topic that is published to has no +, no # and no co",
        ),
        *(
            (
                f"host: '{host}', topic: t",
                "host: must be the name or the address of the broker, such as",
            )
            for host in ("u@a", "a/b", "a b", "u:secret@a:1883")
        ),
        ("host: 'http://u:secret@a', topic: t", "host: http:// is not mqtt:// or mqtts://"),
        ("host: 'mqtt://u:secret@a/t', topic: t", "the topic is the key topic"),
        ("host: 'mqtt://u:secret@a:x', topic: t", "host is not an address such as mqtt://broker"),
        ("host: 'mqtts://a', topic: t, tls: false", "host and tls contradict each other"),
        ("host: 'a:1884', port: 1883, topic: t", "host and port contradict each other"),
        ("host: 'a:99999', topic: t", "sinks[0].port: must be at most 65535, not 99999"),
        ("host: a, topic: 't/{index}', home_assistant: Gate", "home_assistant reads one topic"),
        ("host: a, topic: t, home_assistant: Gate, empty: false", "remove empty: false"),
        ("host: a, topic: t, birth_topic: 'a/#'", "birth_topic: a topic that is published to has"),
        ("host: a, topic: t, username: u, password_file: nowhere", "nowhere: cannot be read"),
        ("host: a, topic: 'a/{frame}'", "topic: there is no {frame}; a topic may have {index}"),
        ("host: a, topic: t, qos: 2", "qos: must be 0 or 1, not 2"),
        ("host: a, topic: t, password: secret", "a password needs a username; add it"),
        ("host: a, topic: t, username: u, password: 31415", "must be text, not the value given"),
        ("host: a, topic: t, username: u, password: [secret]", "must be text, not the value given"),
        (
            "host: a, topic: t, username: u, password: secret, password_env: X",
            "more than one password",
        ),
        ("host: a, topic: t, username: u, password_env: NOT_SET", "variable 'NOT_SET' is not set"),
        ("host: a, topic: t, tls_ca: x.pem", "tls_ca has no effect without tls: true"),
        ("host: a, topic: t, tls: true, tls_ca: x.pem", "not a certificate: "),
    ],
    "webhook": [
        ("url: ftp://a/", "url: must be a URL that begins with http:// or https://"),
        ("url: http://", "url: must be a URL"),
        ("url: 'http://a:99999/'", "url: is not a URL"),
        ("url: 'http://u:secret@a/'", "url: must not have a user and a password"),
        ("url: 'http://a/ b'", "url: must be ASCII without blanks"),
        ("url: http://a/, headers: {Authorization: secret}", "give it by headers_env"),
        ("url: http://a/, headers: {'a\\nb': secret}", "is not a header that can be given"),
        ('url: http://a/, headers: {a: "secret\\r\\nX: y"}', "must be printable ASCII"),
        ("url: http://a/, headers: {host: secret}", "is not a header that can be given"),
        ("url: http://a/, headers: {A: x, a: secret}", "is given twice"),
        ("url: http://a/, headers: {A: {secret: 3}}", "headers.A: must be text"),
        ("url: http://a/, token_env: NOT_SET", "the environment variable 'NOT_SET' is not set"),
        ("url: https://a/, tls_ca: nothing.pem", "not a certificate: "),
    ],
}
"""Kinds whose keys may be secret."""


@pytest.mark.parametrize(
    ("kind", "keys", "sentence"),
    [(kind, *mistake) for kind, mistakes in MISTAKES.items() for mistake in mistakes],
)
def test_a_mistake_is_a_sentence_without_secrets(
    tmp_path: Path, kind: str, keys: str, sentence: str
) -> None:
    said = mistake(tmp_path, f"  - {{kind: {kind}, {keys}}}")
    assert said.startswith("cluster.yaml, line 5, sinks[0]")
    assert sentence in said
    assert "secret" not in said.replace("is a secret", "")
    assert "31415" not in said


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
    launched(request)
    assert "secret" not in (tmp_path / "plan" / "cluster.yaml").read_text()
    lines, npy, mqtt = load_cluster(tmp_path / "plan" / "cluster.yaml").config.sinks
    assert SINKS.as_written(lines) == {"kind": "json-lines", "path": f"{tmp_path}/out/a.jsonl"}
    assert SINKS.as_written(npy) == {
        "kind": "npy", "path": f"{tmp_path}/out/npy", "keep_bytes": 10**9,
        "on_overload": "drop-oldest",
    }  # fmt: skip
    assert SINKS.as_written(mqtt) == {"kind": "mqtt", "host": "a", "topic": "t", "username": "u"}


@pytest.mark.parametrize(
    ("host", "keys"),
    [
        ("a", {}),
        ("a:1884", {"port": 1884}),
        ("[::1]:1884", {"host": "::1", "port": 1884}),
        ("::1", {"host": "::1"}),
        ("mqtt://a", {"tls": False}),
        ("mqtts://a", {"tls": True}),
        ("mqtts://u%40x:the-secret@a:8884/", {"tls": True, "port": 8884, "username": "u@x"}),
    ],
)
def test_a_broker_may_be_written_as_an_address(
    tmp_path: Path, host: str, keys: dict[str, object]
) -> None:
    ((config, sink),) = open_sinks(
        cluster(tmp_path, f"  - {{kind: mqtt, topic: t, host: '{host}'}}\n")
    )
    for key, value in {"host": "a", "port": None, **keys}.items():
        assert getattr(config, key) == value
    assert "secret" not in repr(config) + sink.description


def test_several_sinks_may_read_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    line = "  - {kind: mqtt, host: a, topic: t, username: u, password_file: password}\n"
    assert len(open_sinks(cluster(tmp_path, 2 * line))) == 2


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
