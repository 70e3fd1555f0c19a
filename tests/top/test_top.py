"""`launch top` in a terminal of 80 × 24, against the HTTP server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="needs the extra serve")
from launcher.errors import BadInputError, RunFailedError
from launcher.service.store import open_state
from launcher.top.client import ViewClient, client_for
from launcher.view.model import NodeState
from tests.top.terminal import top
from tests.view.page_server import Runs, page_server
from tests.view.views import node, run

TOKEN = "0123456789abcdef"


@pytest.fixture
def runs() -> Runs:
    return Runs(run())


@pytest.fixture
def url(runs: Runs) -> Iterator[str]:
    with page_server(runs) as url:
        yield url


def run_top(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from launcher.commands.launch import main; main()"
    command = [sys.executable, "-c", code, "top", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_it_follows_the_run_scrolls_and_gives_the_terminal_back(runs: Runs, url: str) -> None:
    with top(url) as terminal:
        text = terminal.wait_for(lambda text: "resnet50" in text and "b is the bottleneck" in text)
        assert "EVENTS" not in text.splitlines()[-1]
        terminal.press("G")
        terminal.wait_for(lambda text: "b is lost: it has not answered" in text)
        terminal.press("\x1b[H")
        terminal.wait_for(lambda text: "NODE" in text)
        lost = node("c", state=NodeState.LOST, reason="its process ended")
        runs.now = (run(nodes=(node("a"), lost)),)
        terminal.wait_for(lambda text: "!! c is lost: its process ended" in text)
        terminal.resize(60, 12)
        terminal.wait_for(lambda text: text.splitlines()[11].startswith("q quit"))
        terminal.press("q")
        assert terminal.end() == 0
        assert terminal.received.endswith(b"\x1b[?25h\x1b[?1049l")  # the cursor, the screen before


def test_it_waits_for_a_server_that_is_away(runs: Runs) -> None:
    with page_server(runs) as url:
        port = int(url.rstrip("/").rpartition(":")[2])
    with top(url) as terminal:
        terminal.wait_for(lambda text: "does not answer" in text)
        with page_server(runs, port):
            terminal.wait_for(lambda text: "resnet50" in text and "does not answer" not in text)
        terminal.wait_for(lambda text: "resnet50" in text and "does not answer" in text)
        terminal.press("q")
        assert terminal.end() == 0


def test_without_colours_and_utf_8_everything_is_ascii(url: str) -> None:
    with top(url, LC_ALL="POSIX", NO_COLOR="1", TERM="vt100") as terminal:
        text = terminal.wait_for(lambda text: "a -> b" in text)
        assert text.isascii()
        terminal.press("q")
        assert terminal.end() == 0
        assert b"\x1b[3" not in terminal.received


def test_a_wrong_token_ends_it_with_a_sentence() -> None:
    with page_server(Runs(run(), token=TOKEN)) as url:
        with top(url, "--token", "wrong") as terminal:
            assert terminal.end() == 2
            assert "the server requires a token" in terminal.errors
        with top(url, CSDF_EDGE_TOKEN=TOKEN) as terminal:
            terminal.wait_for(lambda text: "resnet50" in text)


def test_once_prints_everything(url: str) -> None:
    found = run_top(url, "--once")
    assert found.returncode == 0
    for shown in ("resnet50", "b is the bottleneck", "a/0", "streaming again with a, c"):
        assert shown in found.stdout


def test_json_is_what_the_server_answers(url: str) -> None:
    (given,) = json.loads(run_top(url, "--json").stdout)["runs"]
    assert given["models"] == ["resnet50"]
    assert given["nodes"][0]["state"] == "active"


def test_without_a_server_once_fails_with_a_sentence(runs: Runs) -> None:
    with page_server(runs) as url:
        pass
    found = run_top(url, "--once")
    assert (found.returncode, found.stdout) == (1, "")
    assert "does not answer" in found.stderr


@pytest.mark.parametrize("target", ["ftp://here", "http://", "http://a:b", "a b:x", "http://h:0"])
def test_what_is_no_address_is_refused(target: str) -> None:
    with pytest.raises(BadInputError, match="neither a URL"):
        client_for(target, None)


@pytest.fixture
def usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which this user's services have their state."""
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "csdf-edge"


@pytest.mark.usefixtures("usual")
def test_without_a_service_the_usual_port_of_this_machine_is_asked() -> None:
    assert client_for(None, None).url == "http://127.0.0.1:8000"
    assert client_for("board:9000", None).url == "http://board:9000"


@pytest.mark.usefixtures("usual")
def test_what_was_asked_unnamed_is_said() -> None:
    nobody = ViewClient("http://127.0.0.1:1", is_guess=True)
    with pytest.raises(RunFailedError, match="no service of launch up runs on this machine"):
        nobody.views()


def test_the_service_that_runs_on_this_machine_is_found(runs: Runs, url: str, usual: Path) -> None:
    control = {"url": url, "token": TOKEN, "pid": 1, "certificate": None}
    with open_state(usual / "ended"):
        pass
    with open_state(usual / "garden"):
        (usual / "garden" / "control.json").write_text(json.dumps(control))
        assert client_for(None, None).views() == runs.now
        with (
            open_state(usual / "shop"),
            pytest.raises(BadInputError, match=r"name the state folder of one: .*garden or .*shop"),
        ):
            client_for(None, None)


def test_a_token_is_not_shown() -> None:
    assert TOKEN not in repr(client_for(None, TOKEN))


def test_a_folder_is_that_of_a_service(runs: Runs, url: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no service runs here"):
        client_for(str(tmp_path), None)
    control = {"url": url, "token": TOKEN, "pid": 1, "certificate": None}
    (tmp_path / "control.json").write_text(json.dumps(control))
    found = client_for(str(tmp_path), None)
    assert found.token == TOKEN
    assert found.views() == runs.now


def test_a_service_that_starts_again_elsewhere_is_followed(
    runs: Runs, url: str, tmp_path: Path
) -> None:
    control = {"url": "http://127.0.0.1:1", "token": "of its former life", "certificate": None}
    file = tmp_path / "control.json"
    file.write_text(json.dumps(control))
    found = client_for(str(tmp_path), None)
    with pytest.raises(RunFailedError, match="does not answer"):
        found.views()
    file.unlink()
    with pytest.raises(RunFailedError, match="no service runs here"):
        found.views()
    file.write_text(json.dumps(control | {"url": url, "token": TOKEN}))
    assert found.views() == runs.now


def test_a_server_of_something_else_is_refused(tmp_path: Path) -> None:
    code = (
        "import http.server; s = http.server.HTTPServer(('127.0.0.1', 0), "
        "http.server.SimpleHTTPRequestHandler); print(s.server_port, flush=True); s.serve_forever()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path
    ) as other:
        assert other.stdout is not None
        client = client_for(f"127.0.0.1:{int(other.stdout.readline())}", None)
        with pytest.raises(BadInputError, match="has no views"):
            client.views()
        other.kill()
