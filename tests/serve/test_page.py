"""The page of the server, in Chromium."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest

pytest.importorskip("aiohttp", reason="needs the extra serve")
from launcher.top.client import client_for
from launcher.view.model import EventView, NodeState
from launcher.view.sampling import CLOSEST_S, MOST_RECENT
from tests.serve.server import Serving
from tests.view.browser import CHROMIUM, Browser, browser
from tests.view.page_server import Runs, page_server
from tests.view.views import STARTED_S, channel, node, run

TOKEN = "0123456789abcdef"
SHOWS_A_RUN = "document.querySelector('main h1')"

in_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium"
)


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    with browser() as tab:
        yield tab


@pytest.fixture
def runs() -> Runs:
    return Runs(run())


def get(url: str, token: str | None = None) -> tuple[int, str, str]:
    """The status, the policy and the body of an answer."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            policy = answer.headers.get("Content-Security-Policy", "")
            return answer.status, policy, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, "", error.read().decode()


@pytest.mark.parametrize("path", ["", "csdf-edge", "csdf-edge/"])
def test_the_page_needs_no_token_and_tells_nothing_of_the_cluster(path: str) -> None:
    with page_server(Runs(run(), token=TOKEN)) as url:
        status, _, body = get(url + path)
        assert status == 200
        assert "resnet50" not in body
        assert get(url + "csdf-edge/v1/shown")[0] == 401
        assert "resnet50" in get(url + "csdf-edge/v1/shown", TOKEN)[2]


def test_the_page_is_one_file_that_may_load_and_run_nothing_else() -> None:
    with page_server(Runs(run())) as url:
        _, policy, body = get(url)
    assert re.findall(r"(?:src|href)=\"([^\"]*)", body) == ["data:,", "/predict"]
    allowed = dict(part.split(" ", 1) for part in policy.split("; "))
    assert allowed["default-src"] == "'none'"
    assert allowed["connect-src"] == "'self'"
    assert "unsafe" not in policy


@in_chromium
def test_the_page_shows_nodes_their_load_fifos_and_events(tab: Browser, runs: Runs) -> None:
    with page_server(runs) as url:
        tab.open(url)
        tab.wait_for(SHOWS_A_RUN)
        text = tab.text()
    for shown in ("resnet50", "11.9", "b is the bottleneck", "streaming again with a, c", "97%"):
        assert shown in text
    assert tab.problems == []
    assert {each.removeprefix(url) for each in tab.fetched} <= {"", "csdf-edge/v1/shown", "data:,"}


@in_chromium
def test_the_bottleneck_and_full_fifos_are_marked_in_the_plan(tab: Browser, runs: Runs) -> None:
    with page_server(runs) as url:
        tab.open(url)
        tab.wait_for(SHOWS_A_RUN)
        limit = tab.value("document.querySelector('.plan .limit').parentNode.textContent")
        full = tab.value("document.querySelector('.plan .full').parentNode.textContent")
    assert limit.startswith("b")
    assert full.startswith("a-b: 4/4")


@in_chromium
def test_the_page_follows_the_run(tab: Browser, runs: Runs) -> None:
    with page_server(runs) as url:
        tab.open(url)
        tab.wait_for(SHOWS_A_RUN)
        heading = tab.value("window.heading = document.querySelector('h1'); 1")
        lost = node("b", state=NodeState.LOST, reason="its process ended")
        runs.now = (run(nodes=(node("a"), lost, node("c"))),)
        tab.wait_for("document.body.innerText.includes('b is lost: its process ended')")
        assert tab.value("document.querySelector('.plan .mark-error') !== null")
        assert heading == 1
        assert tab.value("window.heading.isConnected")


@in_chromium
def test_without_a_run_the_page_says_so(tab: Browser, runs: Runs) -> None:
    runs.now = ()
    with page_server(runs) as url:
        tab.open(url)
        tab.wait_for("document.body.innerText.includes('No run streams now.')")


@in_chromium
def test_the_page_asks_for_the_token_and_keeps_it_for_the_session(tab: Browser) -> None:
    with page_server(Runs(run(), token=TOKEN)) as url:
        tab.open(url)
        tab.wait_for("!document.getElementById('ask').hidden")
        give = "document.getElementById('token').value = {!r}; ask.requestSubmit(); 1"
        tab.value(give.format("wrong"))
        tab.wait_for("document.body.innerText.includes('does not take this token')")
        tab.value(give.format(TOKEN))
        tab.wait_for(SHOWS_A_RUN)
        tab.open(url)
        tab.wait_for(SHOWS_A_RUN)
        tab.value("sessionStorage.clear()")
        assert tab.value("localStorage.length") == 0


@in_chromium
def test_the_page_says_when_the_server_is_away_and_continues_when_it_is_back(
    tab: Browser, runs: Runs
) -> None:
    with page_server(runs) as url:
        tab.open(url)
        tab.wait_for(SHOWS_A_RUN)
    tab.wait_for("document.body.innerText.includes('The server does not answer')")
    with page_server(runs, port=int(url.rstrip("/").rpartition(":")[2])):
        tab.wait_for("document.getElementById('status').textContent === 'live'")


@in_chromium
def test_names_from_outside_are_text_and_never_markup(tab: Browser, runs: Runs) -> None:
    evil = "<img src=x onerror=alert(1)>\"'><script>alert(2)</script>"
    runs.now = (
        run(
            models=(evil,),
            strategy=evil,
            nodes=(node(evil, reason=evil, engine=evil),),
            channels=(channel("@host", evil), channel(evil, "@host")),
            events=(EventView(STARTED_S, "error", evil),),
        ),
    )
    with page_server(runs) as url:
        tab.open(url)
        tab.wait_for(SHOWS_A_RUN)
        assert tab.value("document.querySelector('h1').textContent").startswith(evil)
        assert tab.value("document.querySelectorAll('img, main script').length") == 0
    assert tab.problems == []


@in_chromium
def test_the_page_fits_a_phone(tab: Browser, runs: Runs) -> None:
    with page_server(runs) as url:
        tab.open(url, width=360, height=640)
        tab.wait_for(SHOWS_A_RUN)
        assert tab.value("document.documentElement.scrollWidth") <= 360


def test_the_answer_stays_small_after_many_minutes(runs: Runs) -> None:
    for number in range(2 * MOST_RECENT):
        at_s = STARTED_S + CLOSEST_S * number
        runs.service.recent.keep(run(taken_s=at_s, frames_total=23 * number))
    with page_server(runs) as url:
        assert len(get(url + "csdf-edge/v1/shown")[2]) < 64_000


@pytest.mark.slow
def test_a_server_shows_its_run_and_reports_on_it_at_its_end(tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    serving = Serving("--report", str(page))
    try:
        frame = {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": [0.0] * 64}
        body = json.dumps({"inputs": [frame]}).encode()
        url = f"http://{serving.http}/"
        with urllib.request.urlopen(f"{url}v2/models/digits/infer", body) as answer:
            assert answer.status == 200
        (view,) = client_for(url, None).views()
        assert (view.models, view.frames_total, view.state) == (("digits",), 1, "streaming")
        assert "frames from the launcher" in get(f"{url}csdf-edge/v1/shown")[2]
        assert "<script>" in get(url)[2]
    finally:
        assert serving.end() == 0
    text = page.read_text()
    for each in view.nodes:
        assert each.name in text
    assert "over all the time" in text


def test_the_samples_of_a_run_that_lasts_are_bounded(runs: Runs) -> None:
    for number in range(MOST_RECENT + 50):
        runs.service.recent.keep(run(taken_s=STARTED_S + CLOSEST_S * number))
    assert len(runs.service.recent.of("d1")) == MOST_RECENT
    for number in range(100):
        runs.service.recent.keep(run(run=f"later {number}"))
    assert runs.service.recent.of("d1") == ()
