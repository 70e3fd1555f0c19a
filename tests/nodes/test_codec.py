"""The codec: every message arrives as it was sent; any other bytes are a RemoteProtocolError."""

import contextlib
import dataclasses
import tracemalloc
import types
import typing

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes.protocol import codec, fields, schema
from nodes.protocol import messages as words
from nodes.protocol.codec import decode, encode
from nodes.protocol.encodings import ENCODINGS
from nodes.protocol.errors import LocalProtocolError, RemoteProtocolError

ALL_WORDS = typing.get_args(words.Message)

counts = st.integers(0, fields.MAX_COUNT)
indices = st.integers(0, (1 << 31) - 1)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
said = names.map(lambda text: fields.printable(text, lines=True))
short = names.map(lambda text: fields.printable(text)[: fields.MAX_WORD])
digests = st.text("0123456789abcdef", min_size=64, max_size=64)
seconds = st.floats(0, 1e12)
dtypes = st.sampled_from(sorted(fields.DTYPE_BYTES))
shapes = st.lists(st.integers(0, fields.MAX_DIMENSION), max_size=fields.MAX_RANK).map(tuple)
encodings = st.sampled_from(ENCODINGS)


def tuples(items: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(items, max_size=4).map(tuple)


blobs = st.builds(words.BlobInfo, digests, counts)
phases = st.builds(words.PhaseSpec, names, blobs, st.none() | blobs, tuples(names), tuples(names))
channels = st.builds(
    words.ChannelSpec,
    indices, names, dtypes, shapes, names, st.none() | indices, names, tuples(indices),
    st.integers(1, 1 << 20), st.booleans(), names, encodings,
)  # fmt: skip
deployments = st.builds(
    words.Deployment,
    counts, names, st.sampled_from(["pipelined", "strict"]), tuples(phases), tuples(channels),
    tuples(st.builds(words.PeerSpec, names, names)), st.integers(1, 8), st.booleans(),
    st.builds(
        words.EngineChoice, short, short, short, tuples(st.builds(words.EngineOption, short, names))
    ),
)  # fmt: skip
stats = st.builds(
    words.Stats,
    counts, tuples(counts), tuples(seconds), seconds, seconds, *[counts] * 7,
)  # fmt: skip

SENDABLE = {
    words.Hello: (counts, names, st.floats(0.01, 1e6)),
    words.Query: (tuples(digests),),
    words.Put: (blobs, counts, st.binary(max_size=100)),
    words.Deploy: (deployments,),
    words.Prepare: (deployments,),
    words.Prepared: (counts, said),
    words.Start: (counts,),
    words.Stop: (counts,),
    words.Welcome: (
        counts,
        names,
        said,
        said,
        said,
        said,
        indices,
        counts,
        tuples(encodings),
        st.none() | counts,
        tuples(
            st.builds(
                words.EngineOffer,
                short,
                said,
                tuples(st.builds(words.DeviceOffer, short, tuples(short))),
                tuples(
                    st.builds(
                        words.OptionOffer,
                        short,
                        tuples(short),
                        st.none() | seconds,
                        st.none() | seconds,
                        st.booleans(),
                    )
                ),
                st.just(words.EngineMemory()),
                st.integers(0, 100),
            )
        ),
        said,
        said,
        st.integers(0, 1024),
        st.floats(0, 1024),
    ),
    words.Refused: (said, counts),
    words.Missing: (tuples(digests),),
    words.Stored: (digests, counts, st.booleans()),
    words.Progress: (counts, counts, counts, said),
    words.Deployed: (counts, tuples(seconds), counts),
    words.Failed: (counts, said),
    words.Stopped: (counts, stats),
    words.GetTrace: (counts,),
    words.GetFigures: (st.integers(0, 1024), st.booleans()),
    words.Figures: (
        st.none()
        | st.builds(
            words.BoardFigures,
            st.integers(1, 1024),
            *[st.floats(1e-18, 1e3)] * 6,
            *[st.floats(0, 1e3)] * 5,
        ),
        said,
    ),
    words.Traced: (counts, seconds, st.binary(max_size=100), counts),
    words.Attach: (counts, names),
    words.Credit: (counts, indices, st.integers(1, 1000)),
    words.TensorHeader: (counts, indices, counts, dtypes, shapes),
}
messages = st.one_of(
    stats,
    *(st.builds(cls, *SENDABLE.get(cls, ())) for cls in ALL_WORDS if cls is not words.Stats),
)


@given(messages)
def test_what_is_sent_arrives(message):
    assert decode(encode(message)) == message
    assert decode(memoryview(encode(message))) == message


def test_the_schema_has_every_word_and_every_field():
    known = {cls: record.names for cls, record in schema.BY_CLASS[words.PROTOCOL].items()}
    declared = {cls: {field.name for field in dataclasses.fields(cls)} for cls in ALL_WORDS}
    assert known == declared


@given(st.binary(max_size=200))
def test_garbage_is_refused(data):
    with pytest.raises(RemoteProtocolError):
        decode(data)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | names
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(messages, st.data())
def test_any_well_formed_msgpack_is_read_or_refused(message, data):
    """One value somewhere in a good message replaced: never anything but RemoteProtocolError."""
    plain = msgpack.unpackb(encode(message))
    place = plain
    while True:
        key = data.draw(st.sampled_from(sorted(place)))
        if not isinstance(place[key], dict) or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(values)
    try:
        decoded = decode(msgpack.packb(plain))
    except RemoteProtocolError:
        return
    assert isinstance(decoded, words.Message)


@given(messages, st.data())
def test_a_message_cut_short_or_with_flipped_bits_is_read_or_refused(message, data):
    raw = bytearray(encode(message))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(RemoteProtocolError):
        decode(bytes(raw[: data.draw(st.integers(0, len(raw) - 1))]))
    with contextlib.suppress(RemoteProtocolError):
        decode(bytes(raw))


def changed(message, **replaced) -> bytes:
    """The message's bytes with some fields of its map replaced."""
    return msgpack.packb({**msgpack.unpackb(encode(message)), **replaced})


HEADER = words.TensorHeader(1, 2, 3, "float32", (4, 5))


@pytest.mark.parametrize(
    ("replaced", "told"),
    [
        ({"frame": -1}, "frame"),
        ({"frame": 1 << 63}, "frame"),
        ({"frame": True}, "frame"),
        ({"frame": 1.0}, "frame"),
        ({"dtype": "object"}, "dtype"),
        ({"dtype": "complex64"}, "dtype"),
        ({"shape": [-1]}, "shape"),
        ({"shape": [1 << 31]}, "shape"),
        ({"shape": [1] * 17}, "shape"),
        ({"shape": "44"}, "shape"),
        ({"more": 1}, "not a map of"),
        ({"t": "Tensor"}, "unknown message"),
        ({"t": ["Credit"]}, "unknown message"),
        ({"v": words.PROTOCOL + 1}, "version"),
        ({"v": True}, "version"),
        ({"v": None}, "version"),
    ],
)
def test_a_wrong_field_is_named(replaced, told):
    with pytest.raises(RemoteProtocolError, match=told):
        decode(changed(HEADER, **replaced))


@pytest.mark.parametrize("lease", [0, -1, float("nan"), float("inf"), "1", None, 1 << 62], ids=repr)
def test_a_lease_is_a_positive_finite_time(lease):
    with pytest.raises(RemoteProtocolError, match="lease_s"):
        decode(changed(words.Hello(words.PROTOCOL, "s", 5.0), lease_s=lease))


@pytest.mark.parametrize("digest", ["", "A" * 64, "a" * 63, "../../etc/passwd", "a" * 64 + "\n"])
def test_a_digest_is_64_hex_digits(digest):
    with pytest.raises(RemoteProtocolError, match=r"digests: \[1\]"):
        decode(changed(words.Query(()), digests=["a" * 64, digest]))


def test_what_is_remembered_of_a_header_covers_nothing_but_its_frame():
    frames = [3, 0, fields.MAX_COUNT]
    assert [decode(encode(dataclasses.replace(HEADER, frame=f))).frame for f in frames] == frames
    raw = encode(HEADER)
    for too_much in (b"\xff" * 8, b"\x80" + bytes(7)):
        with pytest.raises(RemoteProtocolError, match="frame"):
            decode(raw[:-8] + too_much)
    for other in (HEADER, dataclasses.replace(HEADER, channel=3, shape=())):
        assert decode(encode(other)) == other
    for wrong in (-1, fields.MAX_COUNT + 1, 1.0, True, None):
        with pytest.raises(LocalProtocolError, match="frame"):
            encode(dataclasses.replace(HEADER, frame=wrong))


def test_a_header_written_in_another_way_is_the_same_header():
    for _ in range(2):
        assert decode(msgpack.packb(msgpack.unpackb(encode(HEADER)))) == HEADER
    backwards = dict(reversed(msgpack.unpackb(encode(HEADER)).items()))
    assert decode(msgpack.packb(backwards)) == HEADER


def test_the_caches_are_bounded():
    for number in range(3 * codec.MAX_CACHED):
        header = dataclasses.replace(HEADER, channel=number)
        assert decode(encode(header)) == header
        credit = words.Credit(1, number, 1)
        assert decode(encode(credit)) == credit
    caches = (codec._headers, codec._header_starts, codec._credits, codec._credit_bytes)
    assert all(0 < len(cache) <= codec.MAX_CACHED for cache in caches)


@pytest.mark.parametrize("version", [words.PROTOCOL + 1, words.OLDEST_PROTOCOL - 1])
def test_hello_of_a_version_that_is_not_understood_is_read_as_such(version):
    other = changed(
        words.Hello(words.PROTOCOL, "s", 5.0), v=version, protocol=version, invented_later=[1]
    )
    assert decode(other) == words.Hello(version, "s", 5.0)


NEWER = {words.GetFigures, words.Figures}
"""The kinds of messages that the older version does not have."""


@given(messages.filter(lambda message: type(message) not in NEWER))
def test_in_the_older_version_only_changed_messages_lose_what_it_lacks(message):
    older = encode(message, words.OLDEST_PROTOCOL)
    assert msgpack.unpackb(older)["v"] == words.OLDEST_PROTOCOL
    arrived = decode(older)
    assert arrived == message or type(message) in schema.CHANGED
    assert encode(arrived, words.OLDEST_PROTOCOL) == older


@pytest.mark.parametrize("message", [words.GetFigures(), words.Figures(None, "why")], ids=str)
def test_a_message_that_the_older_version_lacks_cannot_be_sent_to_it(message):
    with pytest.raises(LocalProtocolError, match="not a message of the protocol"):
        encode(message, words.OLDEST_PROTOCOL)


@given(messages.filter(lambda message: type(message) not in NEWER))
def test_only_changed_messages_and_greetings_depend_on_the_version(message):
    older, newer = (encode(message, version) for version in schema.VERSIONS)
    assert (older == newer) == (type(message) not in {words.Hello, words.Refused, *schema.CHANGED})


def test_a_few_bytes_cannot_make_us_allocate_much():
    """Nested lists that each claim as many items as are allowed, and never bring them."""
    for head in (b"\xdc\xff\xff", b"\xdc\x10\x00", b"\xde\xff\xff", b"\xdd\xff\xff\xff\xff"):
        tracemalloc.start()
        with pytest.raises(RemoteProtocolError):
            decode(head * 5000)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 64 << 20


def test_a_deeply_nested_value_is_refused():
    nested = b"\x91" * 400 + b"\x01"
    with pytest.raises(RemoteProtocolError):
        decode(b"\x83\xa1v\x01\xa1t\xa5Start\xa5epoch" + nested)


def test_too_long_a_message_is_refused_both_ways():
    with pytest.raises(RemoteProtocolError, match=r"bytes, at most \d+ are allowed"):
        decode(b"\xc0" * (codec.MAX_MESSAGE_BYTES + 1))
    crowded = words.Query(("a" * 64,) * (fields.MAX_ITEMS + 1))
    with pytest.raises(LocalProtocolError, match="digests"):
        encode(crowded)


def test_a_bug_of_ours_is_not_sent():
    with pytest.raises(LocalProtocolError, match="frame"):
        encode(dataclasses.replace(HEADER, frame=-1))
    with pytest.raises(LocalProtocolError, match="not a message"):
        encode(types.SimpleNamespace())
    phase = words.PhaseSpec("p", words.BlobInfo("x", 1), None, (), ())
    with pytest.raises(LocalProtocolError, match=r"deployment: phases: \[0\]: graph: digest"):
        encode(words.Deploy(words.Deployment(1, "n", "strict", (phase,), (), ())))


def test_what_a_peer_says_to_people_steers_no_terminal():
    said = "one\n\ttwo \x1b]0;mine\x07 \x9b31m \u202egnp.exe ä"
    told = decode(encode(words.Failed(1, said))).reason
    assert told == "one\n\ttwo \\x1b]0;mine\\x07 \\x9b31m \\u202egnp.exe ä"
    longest = "\x1b" * 8000
    assert decode(encode(words.Failed(1, longest))).reason == "\\x1b" * 8000


def test_nobody_forges_a_line_of_a_log():
    assert fields.printable("one\nJan 1 root: two\r") == "one\\x0aJan 1 root: two\\x0d"


def test_whatever_unicode_does_not_call_printable_is_written_out():
    said = "ä σ 漢 \u061c\u2028\u2066\ufeff\udcff\U000e0041"
    told = "ä σ 漢 \\u061c\\u2028\\u2066\\ufeff\\udcff\\U000e0041"
    assert fields.printable(said) == fields.printable(said, lines=True) == told
    assert told.isprintable()
