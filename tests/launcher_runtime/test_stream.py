"""The host's ends keep within the capacities in any order of arrival, and refuse breaches."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.core.blueprint import Dealing
from launcher.core.stream import FrameSink, FrameSource
from launcher.core.upload import Upload
from nodes.protocol.errors import LocalProtocolError, RemoteProtocolError
from nodes.protocol.messages import (
    CHUNK_BYTES,
    HOST,
    PUT_WINDOW,
    ChannelSpec,
    Credit,
    Stored,
    TensorHeader,
)
from tests.launcher_runtime.plans import EPOCH, blob


def inward(number: int, capacity: int) -> ChannelSpec:
    return ChannelSpec(number, f"x{number}", "float32", (2,), HOST, None, "n0", (0,), capacity)


def outward(number: int, capacity: int, node: str = "n0") -> ChannelSpec:
    return ChannelSpec(number, f"y{number}", "float32", (2,), node, 0, HOST, (), capacity)


def header(channel: int, frame: int, epoch: int = EPOCH) -> TensorHeader:
    return TensorHeader(epoch, channel, frame, "float32", (2,))


capacities = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@given(capacities, st.integers(1, 12), st.data())
def test_frames_come_back_in_order_and_never_more_than_the_capacities_are_under_way(
    capacity: list[int], frames: int, data: st.DataObject
) -> None:
    """Source → a network of FIFOs that moves at random → sink, until every frame is through."""
    source = FrameSource([inward(i, c) for i, c in enumerate(capacity)], frames, EPOCH)
    sink: FrameSink[int] = FrameSink([outward(i, c) for i, c in enumerate(capacity)], frames, EPOCH)
    places = [0] * len(capacity)
    for credit in sink.attach("n0"):
        places[credit.channel] += credit.frames
    for i, c in enumerate(capacity):
        source.credit(Credit(EPOCH, i, c))
    inside: list[deque[int]] = [deque() for _ in capacity]
    sent = [0] * len(capacity)
    results = []
    while not sink.is_done:
        moves: list[tuple[str, int]] = [("send", 0)] * source.is_ready
        moves += [("take", 0)] * sink.is_ready
        moves += [("pass", i) for i, fifo in enumerate(inside) if fifo and places[i]]
        assert moves, "a stall"
        move, channel = data.draw(st.sampled_from(moves))
        if move == "send":
            for spec, head in source.fire():
                inside[spec.number].append(head.frame)
                assert len(inside[spec.number]) <= spec.capacity_frames
        elif move == "pass":
            frame = inside[channel].popleft()
            places[channel] -= 1
            sent[channel] += 1
            assert sent[channel] - sink.taken <= capacity[channel]
            assert sink.tensor("n0", header(channel, frame), frame)
            assert source.credit(Credit(EPOCH, channel, 1))
        else:
            number, outputs = sink.result()
            assert outputs == {f"y{i}": number for i in range(len(capacity))}
            results.append(number)
            for _, credit in sink.take():
                places[credit.channel] += credit.frames
    assert results == list(range(frames))


@given(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.integers(1, 15), st.data())
def test_dealt_frames_come_back_in_order_each_from_the_copy_whose_turn_it_was(
    pattern: list[int], frames: int, data: st.DataObject
) -> None:
    dealing = Dealing(tuple(pattern), {i: i for i in range(3)}, {f"y{i}": "y" for i in range(3)})
    capacity = data.draw(st.lists(st.integers(1, 3), min_size=3, max_size=3))
    source = FrameSource([inward(i, c) for i, c in enumerate(capacity)], frames, EPOCH, dealing)
    sink: FrameSink[tuple[int, int]] = FrameSink(
        [outward(i, c) for i, c in enumerate(capacity)], frames, EPOCH, dealing
    )
    places = {credit.channel: credit.frames for credit in sink.attach("n0")}
    for i, c in enumerate(capacity):
        source.credit(Credit(EPOCH, i, c))
    inside: list[deque[int]] = [deque() for _ in capacity]
    while not sink.is_done:
        ready = [i for i, fifo in enumerate(inside) if fifo and places[i]]
        moves = ["send"] * source.is_ready + ["take"] * sink.is_ready + ["pass"] * bool(ready)
        assert moves, "a stall"
        match data.draw(st.sampled_from(moves)):
            case "send":
                [(spec, head)] = source.fire()
                inside[spec.number].append(head.frame)
                assert len(inside[spec.number]) <= spec.capacity_frames
            case "pass":
                copy = data.draw(st.sampled_from(ready))
                number = inside[copy].popleft()
                places[copy] -= 1
                sink.tensor("n0", header(copy, number), (copy, number))
                source.credit(Credit(EPOCH, copy, 1))
            case "take":
                frame, outputs = sink.result()
                copy = pattern[frame % len(pattern)]
                before = [pattern[k % len(pattern)] for k in range(frame)].count(copy)
                assert outputs == {"y": (copy, before)}
                [(_, credit)] = sink.take()
                places[credit.channel] += credit.frames


def test_the_source_waits_for_a_credit_of_every_channel() -> None:
    source = FrameSource([inward(0, 3), inward(1, 1)], 5, EPOCH)
    source.credit(Credit(EPOCH, 0, 3))
    assert not source.is_ready
    source.credit(Credit(EPOCH, 1, 1))
    assert [head.frame for _, head in source.fire()] == [0, 0]
    assert not source.is_ready


@pytest.mark.parametrize(
    ("grant", "why"),
    [
        (Credit(EPOCH, 5, 1), "channel 5, which the host does not feed"),
        (Credit(EPOCH, 0, 3), "channel 0: 3 credits granted.* the capacity is 2"),
        (Credit(EPOCH, 0, 0), "channel 0: 0 credits granted"),
    ],
)
def test_credits_that_cannot_be_are_a_breach(grant: Credit, why: str) -> None:
    with pytest.raises(RemoteProtocolError, match=why):
        FrameSource([inward(0, 2)], 9, EPOCH).credit(grant)


@pytest.mark.parametrize(
    ("node", "head", "why"),
    [
        ("n0", header(0, 0), "channel 0: frame 0 arrived instead of frame 1"),
        ("n0", header(0, 2), "channel 0: frame 2 arrived instead of frame 1"),
        ("n1", header(0, 1), "not its own"),
        ("n0", header(7, 1), "not its own"),
        ("n0", TensorHeader(EPOCH, 0, 1, "float64", (2,)), r"float64\[2\] as 'y0'"),
        ("n0", TensorHeader(EPOCH, 0, 1, "float32", (3,)), r"float32\[3\] as 'y0'"),
    ],
)
def test_a_tensor_that_is_not_due_is_a_breach(node: str, head: TensorHeader, why: str) -> None:
    sink: FrameSink[str] = FrameSink([outward(0, 4)], 9, EPOCH)
    sink.tensor("n0", header(0, 0), "first")
    with pytest.raises(RemoteProtocolError, match=why):
        sink.tensor(node, head, "second")


def test_a_tensor_beyond_the_credits_is_a_breach() -> None:
    sink: FrameSink[str] = FrameSink([outward(0, 2)], 9, EPOCH)
    for frame in (0, 1):
        sink.tensor("n0", header(0, frame), "fine")
    with pytest.raises(RemoteProtocolError, match="without a credit"):
        sink.tensor("n0", header(0, 2), "too many")


def test_a_frame_that_was_never_fed_in_is_a_breach() -> None:
    """Places are left for it, and the stream is shorter by what its source has dropped."""
    sink: FrameSink[str] = FrameSink([outward(0, 4)], 3, EPOCH)
    sink.tensor("n0", header(0, 0), "fine")
    sink.frames = 1
    with pytest.raises(RemoteProtocolError, match="frame 1 arrived, but the stream has 1"):
        sink.tensor("n0", header(0, 1), "made up")


def test_grants_count_what_is_under_way() -> None:
    source = FrameSource([inward(0, 2)], 9, EPOCH)
    source.credit(Credit(EPOCH, 0, 2))
    source.fire()
    source.credit(Credit(EPOCH, 0, 1))
    with pytest.raises(RemoteProtocolError, match="the capacity is 2"):
        source.credit(Credit(EPOCH, 0, 1))


def test_neither_end_moves_before_it_may() -> None:
    source, sink = FrameSource([inward(0, 2)], 9, EPOCH), FrameSink([outward(0, 2)], 9, EPOCH)
    for early in (source.fire, sink.result, sink.take):
        with pytest.raises(LocalProtocolError):
            early()
    source.credit(Credit(EPOCH, 0, 1))
    assert [head.frame for _, head in source.fire()] == [0]
    sink.tensor("n0", header(0, 0), "fine")
    assert sink.take() == [("n0", Credit(EPOCH, 0, 1))]


def test_another_epoch_is_ignored() -> None:
    sink: FrameSink[str] = FrameSink([outward(0, 2)], 9, EPOCH)
    assert not sink.tensor("n0", header(0, 0, EPOCH + 1), "stale")
    assert not sink.is_ready
    source = FrameSource([inward(0, 2)], 9, EPOCH)
    assert not source.credit(Credit(EPOCH - 1, 0, 2))
    assert not source.is_ready


@given(st.lists(st.integers(0, 5 * CHUNK_BYTES), min_size=1, max_size=4), st.data())
def test_an_upload_sends_every_byte_once_in_order_within_its_window(
    sizes: list[int], data: st.DataObject
) -> None:
    blobs = [blob(i, size) for i, size in enumerate(sizes)]
    upload = Upload(blobs)
    arrived = dict.fromkeys(blobs, 0)
    under_way: deque[Stored] = deque()
    while not upload.is_complete:
        for sent, offset, size in upload.due(data.draw(st.sampled_from((1, PUT_WINDOW)))):
            assert offset == arrived[sent]
            arrived[sent] += size
            complete = arrived[sent] == sent.size_bytes
            under_way.append(Stored(sent.digest, offset, complete))
        assert len(under_way) <= PUT_WINDOW
        for _ in range(data.draw(st.integers(1, len(under_way)))):
            upload.stored(under_way.popleft())
    assert arrived == {b: b.size_bytes for b in blobs}
    assert upload.stored_bytes == upload.total_bytes == sum(sizes)


def test_a_blob_that_another_agent_completed_meanwhile_is_not_sent_on() -> None:
    big, small = blob(0, 30 * CHUNK_BYTES), blob(1, 10)
    upload = Upload([big, small])
    first = upload.due()
    for sent, offset, _ in first:
        upload.stored(Stored(sent.digest, offset, complete=True))
    assert [sent for sent, _, _ in upload.due()] == [small]
    upload.stored(Stored(small.digest, 0, complete=True))
    assert upload.is_complete
    assert upload.stored_bytes == upload.total_bytes


def test_a_blob_that_arrived_with_another_content_is_a_breach() -> None:
    upload = Upload([blob(0, 10)])
    upload.due()
    with pytest.raises(RemoteProtocolError, match="does not report it complete"):
        upload.stored(Stored(blob(0, 10).digest, 0, complete=False))


def test_answers_nobody_waits_for_are_a_breach() -> None:
    with pytest.raises(RemoteProtocolError, match="never sent"):
        Upload().stored(Stored(blob(0, 1).digest, 0, complete=True))
    upload = Upload([blob(0, 10)])
    upload.due()
    with pytest.raises(RemoteProtocolError, match="at 5 instead of"):
        upload.stored(Stored(blob(0, 10).digest, 5, complete=True))


def test_a_result_whose_shape_varies_may_have_any_up_to_a_bound() -> None:
    channel = replace(outward(0, 4), varies=True)
    sink: FrameSink[int] = FrameSink([channel], 4, EPOCH)
    for frame, shape in enumerate([(0, 6), (3,), (), (1 << 24,)]):
        assert sink.tensor("n0", TensorHeader(EPOCH, 0, frame, "float32", shape), frame)
    for dtype, shape in (("float64", (2,)), ("float32", ((1 << 24) + 1,))):
        sink = FrameSink([channel], 4, EPOCH)
        with pytest.raises(RemoteProtocolError, match="it sent"):
            sink.tensor("n0", TensorHeader(EPOCH, 0, 0, dtype, shape), 0)
