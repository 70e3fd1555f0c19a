"""`POST /v1/predict/MODEL`: pictures in, predictions and annotated pictures out; and its page."""

from __future__ import annotations

import base64
import json
import re
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from urllib.error import HTTPError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.launcher.models import write_branches
from tests.launcher.tasks.test_open_task import ULTRALYTICS, bright_at, write_detector
from tests.serve.server import DIGITS, Serving, expected, images
from tests.serve.test_connections import good
from tests.view.browser import CHROMIUM, browser

pytest.importorskip("aiohttp", reason="needs the extra serve")
pytest.importorskip("cv2", reason="needs the extra stream")
from launcher.serve.errors import Refusal, RequestError
from launcher.serve.over_http.form import route
from launcher.serve.over_http.multipart import only_file
from launcher.serve.over_http.openapi import document
from launcher.serve.over_http.own_routes import OWN_ROUTES
from launcher.serve.over_http.predicting import MOST_BYTES, Wanted, wanted_form

slow = pytest.mark.slow
in_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium"
)

DOG = {"class": 1, "name": "dog", "score": 1.0, "box": [32.0, 16.0, 48.0, 32.0]}
"""What the detector finds in `bright_at(32, 16)`."""


def file(image: np.ndarray, kind: str = "PNG") -> bytes:
    buffer = BytesIO()
    Image.fromarray(image).save(buffer, kind)
    return buffer.getvalue()


PICTURE = file(bright_at(32, 16))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results") / "results.jsonl"


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory, results: Path) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("detector")
    write_detector(folder, ULTRALYTICS)
    (folder / "cluster.yaml").write_text(
        "model: detector.onnx\nnodes: [{name: a}]\ntask: detect\n"
        f"sinks: [{{kind: json-lines, path: {results}}}]\n"
    )
    serving = Serving(target=folder / "cluster.yaml")
    yield serving
    assert serving.end() == 0


def ask(
    serving: Serving, path: str, body: bytes | None, headers: Mapping[str, str] = {}
) -> tuple[int, str, bytes]:
    """The status, the content's type and the content of an answer; without a body it is a GET."""
    request = urllib.request.Request(f"http://{serving.http}{path}", body, dict(headers))
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read()


def predicted(serving: Serving, path: str, body: bytes, headers: Mapping[str, str] = {}) -> dict:
    status, kind, content = ask(serving, path, body, headers)
    assert (status, kind) == (200, "application/json"), content
    return json.loads(content)


def form(*parts: tuple[str, bytes]) -> tuple[bytes, dict[str, str]]:
    """A form of parts, each its headers and its content."""
    body = b"".join(
        b"--limit\r\n" + head.encode() + b"\r\n\r\n" + content + b"\r\n" for head, content in parts
    )
    return body + b"--limit--\r\n", {"Content-Type": "multipart/form-data; boundary=limit"}


AS_FILE = 'Content-Disposition: form-data; name="image"; filename="gate.png"'


@slow
def test_a_picture_as_it_is_becomes_boxes_in_its_pixels(serving: Serving) -> None:
    found = predicted(serving, "/v1/predict/detector", PICTURE)
    assert (found["model"], found["version"]) == ("detector", "1")
    assert found["predictions"] == {"kind": "detect", "width": 64, "height": 32, "objects": [DOG]}
    same = predicted(serving, "/v1/predict/detector/versions/1/", PICTURE)
    assert same["predictions"] == found["predictions"]


@slow
def test_a_form_with_a_file_is_the_same_and_sinks_get_its_name(
    serving: Serving, results: Path
) -> None:
    field = ('Content-Disposition: form-data; name="note"', b"of the gate")
    body, headers = form(field, (AS_FILE, PICTURE))
    found = predicted(serving, "/v1/predict/detector", body, headers)
    assert (found["name"], found["predictions"]["objects"]) == ("gate.png", [DOG])
    predicted(serving, "/v1/predict/detector", PICTURE)  # its line follows
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    (line,) = (line for line in lines if line.get("name") == "gate.png")
    assert line["predictions"]["objects"] == [DOG]


@slow
@pytest.mark.parametrize(
    ("path", "accept", "kind"),
    [
        ("", "image/jpeg", "jpeg"),
        ("", "image/png, */*", "png"),
        ("?as=jpeg", "*/*", "jpeg"),
        ("?as=png", "application/json", "png"),
    ],
)
def test_an_annotated_picture_comes_back_where_one_is_wanted(
    serving: Serving, path: str, accept: str, kind: str
) -> None:
    status, content_type, content = ask(
        serving, f"/v1/predict/detector{path}", PICTURE, {"Accept": accept}
    )
    assert (status, content_type) == (200, f"image/{kind}"), content
    with Image.open(BytesIO(content)) as drawn:
        assert (drawn.format, drawn.size) == (kind.upper(), (64, 32))
        assert np.abs(np.asarray(drawn.convert("RGB")).astype(int) - bright_at(32, 16)).max() > 99


@slow
def test_json_with_the_picture_is_what_the_page_shows(serving: Serving) -> None:
    found = predicted(serving, "/v1/predict/detector?as=both", PICTURE)
    assert found["predictions"]["objects"] == [DOG]
    kind, _, text = found["picture"].partition(",")
    assert kind == "data:image/jpeg;base64"
    with Image.open(BytesIO(base64.b64decode(text))) as drawn:
        assert drawn.size == (64, 32)


@slow
@pytest.mark.parametrize(
    ("body", "headers", "status", "sentence"),
    [
        (b"GIF89a", {}, 400, "the image cannot be read: it is neither a PNG nor a JPEG file"),
        (PICTURE[:60], {}, 400, "the image cannot be read: "),
        (b"", {}, 400, "the image cannot be read: "),
        (*form(), 400, "the form has 0 files"),
        (*form((AS_FILE, PICTURE), (AS_FILE, PICTURE)), 400, "the form has 2 files"),
        (*form((AS_FILE, PICTURE[:60])), 400, "the image cannot be read: "),
        (
            PICTURE,
            {"Content-Type": "multipart/form-data"},
            400,
            "no boundary of 1 to 70 characters",
        ),
        (PICTURE, form()[1], 400, "the form does not begin with the boundary"),
        (form((AS_FILE, PICTURE))[0][:80], form()[1], 400, "the form is cut off"),
        (bytes(MOST_BYTES + 1), {}, 413, "the limit for a picture"),
        (PICTURE, {"Content-Encoding": "br"}, 415, "gzip"),
        (PICTURE, {**form()[1], "Content-Encoding": "gzip"}, 400, "not compressed"),
        (PICTURE, {"Origin": "http://elsewhere.example"}, 403, "cors_origins"),
    ],
)
def test_what_is_no_picture_is_refused_with_a_sentence(
    serving: Serving, body: bytes, headers: dict[str, str], status: int, sentence: str
) -> None:
    found, _, content = ask(serving, "/v1/predict/detector", body, headers)
    assert (found, sentence in json.loads(content)["error"]) == (status, True), content


def read(body: bytes, headers: Mapping[str, str]) -> tuple[str, bytes]:
    return only_file(body, headers["Content-Type"])


def as_field(text: str) -> tuple[str, bytes]:
    return f'Content-Disposition: form-data; name="{text}"', b"of the gate"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"\n" * (4 << 20), "the form does not begin with the boundary"),
        (b"\r\n" * (2 << 20) + form()[0], "the form does not begin with the boundary"),
        (form((AS_FILE, PICTURE))[0][:-20], "the form is cut off"),
        (b"--limitless\r\n\r\n", "a boundary of the form is not followed by the end of its line"),
        (form(("Content-Disposition", b""))[0], "a header of part 1 of the form has no name and"),
        (form((": x", b""))[0], "a header of part 1 of the form has no name and colon"),
        (form(("X: " + "x" * 8191, b""))[0], "no end of its headers within 4096 bytes"),
        (form((AS_FILE.replace("gate", "ga\0te"), b""))[0], "holds control characters"),
        (form((AS_FILE.replace("gate", "ga\nte"), b""))[0], "holds control characters"),
        (
            form(("Content-Disposition: x; filename*=utf-8''ga%0Ate", b""))[0],
            "holds control characters",
        ),
        (form((AS_FILE, b""))[0].replace(b"gate", b"\xff"), "is not UTF-8"),
        (form(("Content-Disposition: x; filename*=utf-7''%2B2AA-", b""))[0], "cannot be decoded"),
        (form(("Content-Disposition: x; filename*=utf%00''x", b""))[0], "cannot be decoded"),
        (form(*[as_field("note")] * 16, (AS_FILE, PICTURE))[0], "may have at most 16 parts"),
    ],
)
def test_a_malformed_form_is_refused_with_a_sentence(body: bytes, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence) as refused:
        read(body, form()[1])
    assert refused.value.refusal is Refusal.INVALID


@pytest.mark.parametrize(
    "parts",
    [
        [(AS_FILE, PICTURE)],
        [as_field("_charset_"), (AS_FILE, PICTURE)],
        [("", b"without headers"), ("X: y", b""), (AS_FILE, PICTURE)],
        [*[as_field("note")] * 15, (AS_FILE, PICTURE)],
    ],
)
def test_the_file_of_a_form_is_found_among_its_fields(parts: list[tuple[str, bytes]]) -> None:
    body, headers = form(*parts)
    assert read(body, headers) == ("gate.png", PICTURE)
    assert read(b"\r\n" + body + b"epilogue", headers) == ("gate.png", PICTURE)


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ('content-disposition: form-data; filename="gate 3\u202fPM.png"', "gate 3\u202fPM.png"),
        (AS_FILE.replace("filename=", "filename*=utf-8''%C3%A9.png; x="), "é.png"),
        ('Content-Disposition: form-data; name="image"; filename=""', ""),
        ("Content-Type: image/png", ""),
    ],
)
def test_the_name_of_a_file_is_decoded(head: str, name: str) -> None:
    for content in (PICTURE, b""):
        assert read(*form((head, content))) == (name, content)


FRAGMENTS = [
    *(b"--limit", b"\r\n", b"--", b"\n", b":", b"\xff", b"x", b'"', b"%ff"),
    *(
        b"Content-Disposition: form-data",
        b"; filename=",
        b"; filename*=",
        b"; filename*0*=",
        b"idna''",
    ),
]


@given(
    st.lists(
        st.sampled_from(FRAGMENTS),
        max_size=24,
    )
)
def test_any_bytes_are_a_form_or_refused(pieces: list[bytes]) -> None:
    for body in (b"".join(pieces), b"--limit\r\n" + b"".join(pieces) + b"\r\n--limit--"):
        with suppress(RequestError):
            read(body, form()[1])


@slow
def test_a_picture_of_too_many_pixels_is_not_decoded(serving: Serving) -> None:
    large = file(np.zeros((6000, 6000), np.uint8))
    status, _, content = ask(serving, "/v1/predict/detector", large)
    assert status == 400
    assert "36000000" not in str(content)
    assert "it has 6000×6000 pixels, but at most 32 million" in json.loads(content)["error"]


@slow
def test_the_page_of_the_server_itself_may_ask(serving: Serving) -> None:
    own = {"Origin": f"http://{serving.http}"}
    assert predicted(serving, "/v1/predict/detector", PICTURE, own)["predictions"]
    status, kind, page = ask(serving, "/predict", None)
    assert (status, kind) == (200, "text/html; charset=utf-8")
    assert b"detector" not in page
    assert re.findall(rb"(?:src|href)=\"([^\"]*)", page) == [b"data:,", b"/", b"/openapi.json"]
    _, _, content = ask(serving, "/openapi.json", None)
    assert json.loads(content)["openapi"] == "3.1.0"


@slow
@in_chromium
@pytest.mark.parametrize("width", [390, 1280])
def test_a_picture_that_is_dropped_on_the_page_comes_back_with_what_is_found(
    serving: Serving, width: int
) -> None:
    drop = (
        f"const bytes = Uint8Array.from(atob({base64.b64encode(PICTURE).decode()!r}), "
        "(one) => one.charCodeAt(0)); const dataTransfer = new DataTransfer(); "
        "dataTransfer.items.add(new File([bytes], 'gate.png', { type: 'image/png' })); "
        "document.dispatchEvent(new DragEvent('drop', { dataTransfer, cancelable: true }));"
    )
    with browser() as tab:
        tab.open(f"http://{serving.http}/predict", width=width, height=800)
        tab.wait_for("document.getElementById('status').textContent === 'ready'")
        tab.value(f"(() => {{ {drop} return 1; }})()")
        tab.wait_for("document.getElementById('status').textContent.startsWith('answered in')")
        tab.wait_for("document.getElementById('picture').naturalWidth === 64")
        text = tab.text()
        for shown in ("dog", "1.000", "32, 16, 48, 32"):
            assert shown in text
        assert tab.value("document.documentElement.scrollWidth") <= width
        assert tab.problems == []


@slow
@in_chromium
def test_the_page_asks_for_the_token_and_says_what_is_no_picture(tmp_path: Path) -> None:
    write_detector(tmp_path, ULTRALYTICS)
    (tmp_path / "cluster.yaml").write_text(
        "model: detector.onnx\nnodes: [{name: a}]\ntask: detect\n"
    )
    token = "a-token-of-thirty-characters-ok"
    serving = Serving("--token", token, target=tmp_path / "cluster.yaml")
    with browser() as tab:
        tab.open(f"http://{serving.http}/predict")
        tab.wait_for("!document.getElementById('ask').hidden")
        tab.value(f"document.getElementById('token').value = {token!r}; ask.requestSubmit(); 1")
        tab.wait_for("document.getElementById('status').textContent === 'ready'")
        tab.value("send(new Blob(['GIF89a'])); 1")
        tab.wait_for("document.body.innerText.includes('it is neither a PNG nor a JPEG file')")
    assert serving.end() == 0


@slow
def test_a_classifier_gives_classes_and_another_network_says_what_it_takes(tmp_path: Path) -> None:
    write_branches(tmp_path / "branches.onnx")
    (tmp_path / "cluster.yaml").write_text(
        f"model: [{{path: {DIGITS / 'digits.onnx'}}}, branches.onnx]\n"
        "nodes: [{name: a}, {name: b}]\nstrategy: sequential\n"
    )
    serving = Serving(target=tmp_path / "cluster.yaml")
    digit = np.round(images()[0][0, 0] * 255).astype(np.uint8)
    found = predicted(serving, "/v1/predict/digits", file(digit))
    assert found["predictions"]["kind"] == "classify"
    assert found["predictions"]["classes"][0]["class"] == int(np.argmax(expected()[0]))
    status, _, content = ask(serving, "/v1/predict/branches", PICTURE)
    assert status == 400
    assert "takes no pictures; send tensors to /v2/models/branches/infer" in str(content)
    assert ask(serving, "/v1/predict/cats", PICTURE)[0] == 404
    assert ask(serving, "/v1/predict/digits", None)[0] == 405
    assert ask(serving, "/v2/models/digits/infer", good())[0] == 200
    assert serving.end() == 0


@slow
def test_outputs_without_a_known_meaning_are_given_as_numbers(tmp_path: Path) -> None:
    write_detector(tmp_path)
    (tmp_path / "cluster.yaml").write_text("model: detector.onnx\nnodes: [{name: a}]\ntask: none\n")
    serving = Serving(target=tmp_path / "cluster.yaml")
    found = predicted(serving, "/v1/predict/detector", PICTURE)
    assert found["outputs"]["o"]["shape"] == [1, 6, 16]
    status, _, content = ask(serving, "/v1/predict/detector?as=png", PICTURE)
    assert (status, "write task" in str(content)) == (400, True)
    assert serving.end() == 0


@pytest.mark.parametrize(
    ("given", "accept", "wanted"),
    [
        (None, "", Wanted.JSON),
        (None, "text/html", Wanted.JSON),
        (None, "text/html, image/jpeg;q=0.9, */*;q=0.8", Wanted.JPEG),
        (None, "*/*, image/png", Wanted.JSON),
        (None, "image/*", Wanted.JPEG),
        ("both", "image/png", Wanted.BOTH),
    ],
)
def test_the_form_of_the_answer(given: str | None, accept: str, wanted: Wanted) -> None:
    assert wanted_form(given, accept) is wanted


def test_another_form_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(RequestError, match="write one of json, jpeg, png, both"):
        wanted_form("gif", "")


def test_what_the_description_names_is_served() -> None:
    described = document("0")
    for path, about in described["paths"].items():
        real = path.replace("{model}", "m").replace("{version}", "1")
        for method in about.keys() - {"parameters"}:
            if (method.upper(), path) not in OWN_ROUTES:
                route(method.upper(), real)
    text = json.dumps(described)
    for name in re.findall(r'"#/components/schemas/(\w+)"', text):
        assert name in described["components"]["schemas"]
