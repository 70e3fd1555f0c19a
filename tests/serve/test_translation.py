"""Messages of the Open Inference Protocol as arrays and back, without any server."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from launcher.errors import BadInputError, FullError, RunFailedError
from launcher.serve.errors import Refusal, RequestError, as_request_error
from launcher.serve.infer_request import classified, put_together
from launcher.serve.over_grpc import form as grpc_form
from launcher.serve.over_grpc.messages import DESCRIPTORS, METHODS, field, parted
from launcher.serve.over_http import form as http_form
from launcher.serve.over_http.form import Call, route
from launcher.serve.tensors import DATATYPES, ModelRepository, ServedModel
from launcher.streaming.live_model import TensorInfo

REQUEST, RESPONSE = METHODS["ModelInfer"]

shapes = st_numpy.array_shapes(max_dims=4, max_side=4)
arrays = st.sampled_from(sorted(DATATYPES)).flatmap(
    lambda dtype: st_numpy.arrays(
        dtype,
        shapes,
        elements={"allow_nan": False, "allow_infinity": False}
        if dtype.startswith("float")
        else None,
    )
)
frames = st.dictionaries(st.text(min_size=1, max_size=8), arrays, min_size=1, max_size=3)


def model_of(frame: dict[str, np.ndarray]) -> ServedModel:
    """Whose inputs, and whose outputs, are like these arrays."""
    tensors = {n: TensorInfo(n, array.dtype.name, array.shape) for n, array in frame.items()}
    return ServedModel("net", tensors, tensors)


def described(name: str, array: np.ndarray, **more: Any) -> dict[str, Any]:
    datatype = DATATYPES[array.dtype.name]
    return {"name": name, "datatype": datatype, "shape": list(array.shape), **more}


def same(found: Any, frame: dict[str, np.ndarray]) -> None:
    assert list(found) == list(frame)
    for name, array in frame.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


@given(frame=frames, as_bytes=st.lists(st.booleans(), min_size=3, max_size=3), flat=st.booleans())
def test_a_frame_over_http_comes_as_it_was_sent(
    frame: dict[str, np.ndarray], as_bytes: list[bool], flat: bool
) -> None:
    inputs, parts = [], []
    for (name, array), is_binary in zip(frame.items(), as_bytes, strict=False):
        if is_binary:
            parts.append(array.tobytes())
            size = {"binary_data_size": array.nbytes}
            inputs.append(described(name, array, parameters=size))
        else:
            data = (array.ravel() if flat else array).tolist()
            inputs.append(described(name, array, data=data))
    header = json.dumps({"id": "x", "inputs": inputs}).encode()
    body = b"".join((header, *parts))
    found = http_form.read_infer(body, str(len(header)) if parts else None, model_of(frame))
    same(found.inputs, frame)
    assert found.id == "x"


@given(frame=frames, is_binary=st.booleans())
def test_results_over_http_come_as_they_are(frame: dict[str, np.ndarray], is_binary: bool) -> None:
    request = http_form.InferRequest("7", {}, dict.fromkeys(frame, is_binary))
    response = http_form.write_infer(request, model_of(frame), frame)
    body = b"".join(response.parts)
    assert (response.json_bytes is not None) == is_binary
    head = json.loads(body[: response.json_bytes])
    assert (head["model_name"], head["model_version"], head["id"]) == ("net", "1", "7")
    for one in head["outputs"]:
        one["parameters"] = one.get("parameters", {})
    again = json.dumps({"inputs": head["outputs"]}).encode()
    rest = body[response.json_bytes :] if is_binary else b""
    found = http_form.read_infer(again + rest, str(len(again)), model_of(frame))
    same(found.inputs, frame)


@given(frame=frames, is_raw=st.booleans(), raw_first=st.booleans())
def test_a_frame_over_grpc_comes_as_it_was_sent(
    frame: dict[str, np.ndarray], is_raw: bool, raw_first: bool
) -> None:
    message = REQUEST(model_name="net", id="x")
    is_raw = is_raw or any(array.dtype == np.float16 for array in frame.values())
    for name, array in frame.items():
        one = message.inputs.add(**described(name, array))
        if not is_raw:
            contents = getattr(one.contents, grpc_form.CONTENTS[array.dtype.name])
            contents.extend(array.ravel().tolist())
    raw = field(grpc_form.RAW_INPUTS, [a.tobytes() for a in frame.values()] if is_raw else [])
    encoded = [message.SerializeToString()]
    data = b"".join(raw + encoded if raw_first else encoded + raw)
    assert REQUEST.FromString(data).raw_input_contents == (
        [array.tobytes() for array in frame.values()] if is_raw else []
    )
    found = grpc_form.read_infer(grpc_form.parse_infer(data), model_of(frame))
    same(found.inputs, frame)
    assert found.outputs == dict.fromkeys(frame, True)


@given(frame=frames)
def test_results_over_grpc_come_as_they_are(frame: dict[str, np.ndarray]) -> None:
    request = http_form.InferRequest("7", {}, dict.fromkeys(frame, True))
    message = RESPONSE.FromString(grpc_form.write_infer(request, model_of(frame), frame))
    assert (message.model_name, message.model_version, message.id) == ("net", "1", "7")
    found = {
        one.name: np.frombuffer(raw, frame[one.name].dtype).reshape(tuple(one.shape))
        for one, raw in zip(message.outputs, message.raw_output_contents, strict=True)
    }
    same(found, frame)


@given(data=st.binary(max_size=200), number=st.integers(1, 8))
def test_what_is_taken_out_of_a_message_and_appended_is_the_same_message(
    data: bytes, number: int
) -> None:
    try:
        rest, contents = parted(data, number)
    except RequestError:
        return
    assert parted(rest, number) == (rest, {number: []})
    again = b"".join((rest, *field(number, [bytes(part) for part in contents[number]])))
    assert parted(again, number) == (rest, contents)


FRAME = {"x": np.arange(6, dtype=np.int8).reshape(2, 3), "y": np.ones(2, np.float32)}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"name": "z"}, "has no input 'z'; its inputs are x, y"),
        ({"datatype": "INT16"}, "'x' is 'INT16'; the model takes INT8"),
        ({"shape": [3, 2]}, r"'x' has the shape \[3, 2\]; the model takes \[2, 3\]"),
        ({"shape": [1] * 999}, "of 999 dimensions"),
        ({"data": [1, 2]}, r"the data of input 'x' is not of the shape \[2, 3\]"),
        ({"data": [[1, 2, 3], [4]]}, "and not 6 numbers in one list"),
        ({"data": [1, 2, 3, 4, 5, 200]}, "'x' holds numbers beyond -128 and 127"),
        ({"data": [1, 2, 3, 4, 5, 0.5]}, "'x' is not all INT8"),
        ({"data": [1, 2, 3, 4, 5, "6"]}, "'x' is not all INT8"),
        ({"data": [1, 2, 3, 4, 5, 10**30]}, "'x' holds numbers beyond -128 and 127"),
        ({"data": None}, r"the data of input 'x' is not of the shape"),
        ({"parameters": {"shared_memory_region": "r"}}, "'x' is in shared memory"),
        ({"parameters": {"binary_data_size": 6}}, "'x' has data both as JSON and as bytes"),
        (
            {"data": None, "parameters": {"binary_data_size": 7}},
            "'x' has 7 bytes of binary data, but 6 are left",
        ),
        ({"data": None, "parameters": {"binary_data_size": 5}}, "'x' has 5 bytes; INT8"),
        ({"data": None, "parameters": {"binary_data_size": -1}}, "'x' has -1 bytes"),
        ({"parameters": {"binary_data_size": "6"}}, "inputs.0.parameters.binary_data_size: "),
    ],
)
def test_an_input_that_does_not_fit_is_named(change: dict[str, Any], sentence: str) -> None:
    first = {**described("x", FRAME["x"], data=FRAME["x"].tolist()), **change}
    second = described("y", FRAME["y"], data=[1, 1])
    header = json.dumps({"inputs": [first, second]}).encode()
    with pytest.raises(RequestError, match=sentence) as raised:
        http_form.read_infer(header + bytes(6), str(len(header)), model_of(FRAME))
    assert raised.value.refusal is Refusal.INVALID


def test_a_request_without_an_input_or_with_one_twice_is_refused() -> None:
    one = described("x", FRAME["x"], data=FRAME["x"].tolist())
    for inputs, sentence in (([one], "input 'y' is missing"), ([one, one], "'x' is given twice")):
        with pytest.raises(RequestError, match=sentence):
            http_form.read_infer(json.dumps({"inputs": inputs}).encode(), None, model_of(FRAME))


def test_bytes_that_no_input_needs_are_refused() -> None:
    inputs = [described(name, array, data=array.tolist()) for name, array in FRAME.items()]
    header = json.dumps({"inputs": inputs}).encode()
    with pytest.raises(RequestError, match="3 bytes of the body belong to no input"):
        http_form.read_infer(header + b"abc", str(len(header)), model_of(FRAME))


def test_null_in_a_request_is_as_if_it_were_left_out() -> None:
    nothing = {"parameters": None, "more": None}
    inputs = [
        described(name, array, data=array.tolist(), **nothing) for name, array in FRAME.items()
    ]
    body = json.dumps({"id": None, "inputs": inputs, "outputs": None, **nothing}).encode()
    found = http_form.read_infer(body, None, model_of(FRAME))
    same(found.inputs, FRAME)
    assert (found.id, found.outputs) == ("", dict.fromkeys(FRAME, False))


FRAMES = {
    "x": np.arange(12, dtype=np.int8).reshape(2, 2, 3),
    "y": np.linspace(0, 1, 4, dtype=np.float32).reshape(2, 2),
}
ONE = {name: array[:1] for name, array in FRAMES.items()}


def test_several_frames_are_cut_apart_and_put_together() -> None:
    inputs = [described(name, array, data=array.tolist()) for name, array in FRAMES.items()]
    found = http_form.read_infer(json.dumps({"inputs": inputs}).encode(), None, model_of(ONE))
    assert found.frames == 2
    each = list(found.each_frame())
    for number, frame in enumerate(each):
        same(frame, {name: array[number : number + 1] for name, array in FRAMES.items()})
    same(put_together(each), FRAMES)


@pytest.mark.parametrize(
    ("shapes", "sentence"),
    [
        (([2, 2, 3], [1, 2]), "input 'x' has 2 frames, but input 'y' has 1"),
        (([65, 2, 3], [65, 2]), "input 'x' has 65 frames; a request has 1 to 64"),
        (([0, 2, 3], [0, 2]), "input 'x' has 0 frames; a request has 1 to 64"),
        (([2, 3, 2], [2, 2]), r"'x' has the shape \[2, 3, 2\]; the model takes \[1, 2, 3\]"),
    ],
)
def test_frames_that_do_not_fit_are_refused(shapes: tuple[list[int], ...], sentence: str) -> None:
    inputs = []
    for (name, array), shape in zip(ONE.items(), shapes, strict=True):
        data = np.zeros(shape, array.dtype).ravel().tolist()
        inputs.append({**described(name, array, data=data), "shape": shape})
    with pytest.raises(RequestError, match=sentence):
        http_form.read_infer(json.dumps({"inputs": inputs}).encode(), None, model_of(ONE))


def test_a_model_without_an_axis_of_frames_takes_one() -> None:
    two = TensorInfo("y", "float32", (2, 5))
    varying = TensorInfo("y", "float32", (1, 5), varies=True)
    for output in (two, varying):
        inputs = {"x": TensorInfo("x", "float32", (1, 3))}
        assert ServedModel("net", inputs, {"y": output}).most_frames == 1


def test_the_frames_of_a_request_are_bounded_by_their_bytes_and_number() -> None:
    for side, most in ((8, 64), (224, 34), (640, 4), (2000, 1)):
        tensors = {"x": TensorInfo("x", "float32", (1, 3, side, side))}
        assert ServedModel("net", tensors, {}).most_frames == most


def test_a_body_without_json_is_the_only_input() -> None:
    frame = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    model = model_of({"x": frame["x"][:1]})
    found = http_form.read_infer(frame["x"].tobytes(), "0", model)
    same(found.inputs, frame)
    assert (found.frames, found.outputs) == (2, {"x": True})
    with pytest.raises(RequestError, match="'x' has 13 bytes"):
        http_form.read_infer(bytes(13), "0", model)
    with pytest.raises(RequestError, match="but the model has 2: x, y"):
        http_form.read_infer(b"", "0", model_of(FRAME))


@pytest.mark.parametrize(
    ("scores", "count", "texts"),
    [
        ([0.25, 0.5, np.nan, 0.25], 9, ["0.500000:1:b", "0.250000:0:a", "0.250000:3", "nan:2"]),
        ([-1.5, 2], 1, ["2.000000:1:b"]),
    ],
)
def test_classes_come_by_score_with_their_labels(
    scores: list[float], count: int, texts: list[str]
) -> None:
    array = np.array([scores], np.float32)
    assert classified(array, 1, count, ("a", "b")) == ([len(texts)], texts)
    both = classified(np.concatenate([array, array]), 2, count, ("a", "b"))
    assert both == ([2, len(texts)], texts + texts)


def test_classes_of_whole_numbers_and_a_count_below_1() -> None:
    assert classified(np.array([[3, 7]], np.int64), 1, 1, ()) == ([1], ["7:1"])
    output = {"name": "x", "parameters": {"classification": -1}}
    inputs = [described(name, array, data=array.tolist()) for name, array in FRAME.items()]
    body = json.dumps({"inputs": inputs, "outputs": [output]}).encode()
    with pytest.raises(RequestError, match="output 'x': classification is -1"):
        http_form.read_infer(body, None, model_of(FRAME))


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/v2/logging", "log settings"),
        ("/v2/models/a/trace/setting", "trace settings"),
        ("/v2/systemsharedmemory/region/r/register", "shared memory"),
        ("/v2/cudasharedmemory/status", "shared memory"),
        ("/v2/repository/models/a/load", "do not load or unload"),
    ],
)
def test_an_extension_that_is_not_offered_is_named(path: str, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence) as raised:
        route("GET", path)
    assert raised.value.refusal is Refusal.NOT_OFFERED


@pytest.mark.parametrize("field", ["id", "name", "datatype"])
def test_text_that_is_not_unicode_is_refused(field: str) -> None:
    one = {"name": "x", "datatype": "FP32", "shape": [1], "data": [0.5]}
    body = {"id": "a", "inputs": [one]}
    (body if field == "id" else one)[field] = "\ud800"
    with pytest.raises(RequestError, match=f"{field}: the text cannot be encoded as UTF-8"):
        http_form.read_infer(
            json.dumps(body).encode(), None, model_of({"x": np.ones(1, np.float32)})
        )


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e39", "-1e999"])
def test_json_with_a_number_that_is_not_finite_is_refused(number: str) -> None:
    text = f'{{"inputs": [{{"name": "x", "datatype": "FP32", "shape": [1], "data": [{number}]}}]}}'
    with pytest.raises(RequestError, match=r"holds .*a number that is not finite") as raised:
        http_form.read_infer(text.encode(), None, model_of({"x": np.ones(1, np.float32)}))
    assert raised.value.refusal is Refusal.INVALID


def test_nan_out_of_nan_is_the_clients_mistake() -> None:
    nan = {"x": np.array([np.nan])}
    request = http_form.InferRequest("", nan, {"x": False})
    with pytest.raises(RequestError, match="input 'x' holds a number that is not fin") as raised:
        http_form.write_infer(request, model_of(nan), nan)
    assert raised.value.refusal is Refusal.INVALID


def test_nan_is_not_put_into_json() -> None:
    model = model_of({"x": np.ones(1)})
    request = http_form.InferRequest("", {}, {"x": False})
    with pytest.raises(RequestError, match="NaN or infinity, which JSON cannot"):
        http_form.write_infer(request, model, {"x": np.array([np.nan])})


@pytest.mark.parametrize(
    ("method", "path", "call"),
    [
        ("GET", "/v2", Call("server")),
        ("GET", "/v2/health/live", Call("live")),
        ("GET", "/v2/health/ready", Call("server_ready")),
        ("GET", "/v2/models/a", Call("model", "a")),
        ("GET", "/v2/models/a/versions/1/ready", Call("ready", "a", "1")),
        ("POST", "/v2/models/a/infer", Call("infer", "a")),
        ("GET", "/v2/models/stats", Call("stats")),
        ("GET", "/v2/models/a/stats", Call("stats", "a")),
        ("POST", "/v2/repository/index", Call("index")),
        ("GET", "/v2/models/a/", Call("model", "a")),
        ("POST", "/v1/predict/a", Call("predict", "a")),
        ("POST", "/v1/predict/a/versions/2/", Call("predict", "a", "2")),
    ],
)
def test_a_path_is_a_call(method: str, path: str, call: Call) -> None:
    assert route(method, path) == call
    with pytest.raises(RequestError) as raised:
        route("PUT", path)
    assert raised.value.refusal is Refusal.NOT_ALLOWED


def test_every_error_has_its_status() -> None:
    for error, problem in (
        (FullError(""), Refusal.FULL),
        (BadInputError(""), Refusal.INVALID),
        (RunFailedError(""), Refusal.UNAVAILABLE),
        (asyncio.TimeoutError(), Refusal.TOO_SLOW),
        (ZeroDivisionError("secret"), Refusal.INTERNAL),
    ):
        found = as_request_error(error)
        assert found.refusal is problem
        assert "secret" not in str(found)
    assert Refusal.FULL.http_status == 429
    assert Refusal.FULL.grpc_code == "RESOURCE_EXHAUSTED"


def test_a_dtype_that_the_protocol_lacks_cannot_be_served() -> None:
    with pytest.raises(BadInputError, match="'x' is complex64, which cannot be served"):
        ServedModel("net", {"x": TensorInfo("x", "complex64", (1,))}, {})


def test_every_method_is_answered() -> None:
    for method, (request, response) in METHODS.items():
        if method != "ModelInfer":
            fields = {"name": "net"} if "name" in request.DESCRIPTOR.fields_by_name else {}
            data = request(**fields).SerializeToString()
            models = ModelRepository((model_of(FRAME),))
            answer = grpc_form.answer(method, data, models, "0", is_ready=True)
            assert response.FromString(answer).ListFields(), method


def test_the_compiled_messages_are_those_of_the_text() -> None:
    text = DESCRIPTORS.with_suffix(".proto").read_text(encoding="utf-8")
    wanted = set(re.findall(r"^ *(?:repeated )?[\w<>, ]+ (\w+) = (\d+);", text, re.MULTILINE))
    found = set()
    for message in every_message():
        found |= {(one.name, str(one.number)) for one in message.fields}
        for kind in message.nested_types:
            found -= {("key", "1"), ("value", "2")} if kind.GetOptions().map_entry else set()
    for value in METHODS["ModelConfig"][1].DESCRIPTOR.file.enum_types_by_name["DataType"].values:
        found.add((value.name, str(value.number)))
    assert found == wanted | set(re.findall(r"^  (TYPE_\w+) = (\d+);", text, re.MULTILINE))


def test_messages_are_those_of_another_implementation() -> None:
    theirs = pytest.importorskip("tritonclient.grpc", reason="needs tritonclient[grpc]").service_pb2
    for message in every_message():
        other = theirs.DESCRIPTOR.pool.FindMessageTypeByName(message.full_name)
        for one in message.fields:
            same_field = other.fields_by_name[one.name]
            assert (one.number, one.type) == (same_field.number, same_field.type), one.full_name
            assert one.is_repeated == same_field.is_repeated, one.full_name


def every_message() -> list[Any]:
    """The descriptors of all messages that are not entries of maps."""
    waiting = list(REQUEST.DESCRIPTOR.file.message_types_by_name.values())
    found = []
    while waiting:
        message = waiting.pop()
        if not message.GetOptions().map_entry:
            found.append(message)
            waiting += message.nested_types
    return found
