"""What any FIFO promises, in one process or over sockets. Both ends block; two threads drive them.

Bounded by its capacity, in order, nothing lost or doubled, whatever the tensor's dtype and size; an
end that waits is woken when the other one moves on or closes.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest

from tests.nodes.one_fifo import (
    FifoClosedError,
    FifoSpec,
    FifoTimeoutError,
    LocalFifo,
    Reader,
    WireReader,
    WireWriter,
    Writer,
)

WAIT_S = 10.0
"""What must happen happens within this, or the test fails."""

MOMENT_S = 0.05
"""What must not happen has not happened after this."""

FLOATS = FifoSpec("float32", (3, 5), 2)


class FifoContract:
    """`make` returns the two ends of a new FIFO; they are closed after the test."""

    def make(self, spec: FifoSpec) -> tuple[Writer, Reader]:
        raise NotImplementedError

    @pytest.fixture
    def fifo(self, request):
        made: list[Writer | Reader] = []

        def make(spec: FifoSpec) -> tuple[Writer, Reader]:
            writer, reader = self.make(spec)
            made.extend((writer, reader))
            return writer, reader

        with ThreadPoolExecutor(1) as other:
            self.other = other
            yield make
        for end in made:
            end.close()

    def elsewhere(self, work: Callable, *arguments):
        """Start it in the other thread."""
        return self.other.submit(work, *arguments)

    @pytest.mark.parametrize("capacity", [1, 2, 7])
    def test_keeps_order_and_loses_and_doubles_nothing(self, fifo, capacity):
        writer, reader = fifo(FifoSpec("int64", (2,), capacity))
        frames = 200

        def produce():
            return [writer.put(np.array([k, -k]), WAIT_S) for k in range(frames)]

        produced = self.elsewhere(produce)
        for k in range(frames):
            frame, array = reader.get(WAIT_S)
            assert frame == k
            assert array.tolist() == [k, -k]
            reader.done()
        assert produced.result(WAIT_S) == list(range(frames))
        with pytest.raises(FifoTimeoutError):
            reader.get(0.0)

    @pytest.mark.parametrize("capacity", [1, 3])
    def test_holds_its_capacity_and_no_more(self, fifo, capacity):
        writer, reader = fifo(FifoSpec("float32", (), capacity))
        array = np.array(1, np.float32)

        def fill():
            return [writer.put(array, WAIT_S) for _ in range(capacity)]

        filled = self.elsewhere(fill)
        reader.get(WAIT_S)
        assert filled.result(WAIT_S) == list(range(capacity))
        with pytest.raises(FifoTimeoutError):
            writer.put(array, MOMENT_S)

    def test_a_place_is_taken_until_its_frame_is_done_with(self, fifo):
        writer, reader = fifo(FifoSpec("float32", (), 1))
        array = np.array(1, np.float32)
        first = self.elsewhere(writer.put, array, WAIT_S)
        reader.get(WAIT_S)
        first.result(WAIT_S)
        with pytest.raises(FifoTimeoutError):
            writer.put(array, MOMENT_S)

    def test_a_blocked_producer_resumes_when_a_place_is_free(self, fifo):
        writer, reader = fifo(FifoSpec("float32", (), 1))
        array = np.array(1, np.float32)
        blocked = Event()

        def produce():
            writer.put(array, WAIT_S)
            blocked.set()
            return writer.put(array, WAIT_S)

        second = self.elsewhere(produce)
        reader.get(WAIT_S)
        assert blocked.wait(WAIT_S)
        reader.done()
        assert second.result(WAIT_S) == 1
        assert reader.get(WAIT_S)[0] == 1

    def test_a_waiting_consumer_is_woken_by_a_token(self, fifo):
        writer, reader = fifo(FLOATS)
        with pytest.raises(FifoTimeoutError):
            reader.get(MOMENT_S)
        put = self.elsewhere(writer.put, np.ones((3, 5), np.float32), WAIT_S)
        assert reader.get(WAIT_S)[1].sum() == 15
        assert put.result(WAIT_S) == 0

    @pytest.mark.parametrize(
        "array",
        [
            np.array(3.5, np.float32),
            np.array([True, False, True]),
            np.arange(7, dtype=np.float16),
            np.arange(5, dtype=np.uint8),
            np.arange(6, dtype=np.int64).reshape(1, 2, 3),
            np.zeros((2, 0, 3), np.float32),
            np.random.default_rng(1).random((3, 256, 256)),
            np.arange(1 << 18, dtype=np.float16),
        ],
        ids=lambda array: f"{array.dtype}{list(array.shape)}",
    )
    def test_carries_any_dtype_and_shape(self, fifo, array):
        writer, reader = fifo(FifoSpec(str(array.dtype), array.shape, 2))
        put = self.elsewhere(writer.put, array, WAIT_S)
        _, got = reader.get(WAIT_S)
        put.result(WAIT_S)
        assert (got.dtype, got.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(got, array)

    @pytest.mark.parametrize("elements", [4, 1 << 20])
    def test_what_was_got_may_be_kept(self, fifo, elements):
        writer, reader = fifo(FifoSpec("int64", (elements,), 1))

        def produce():
            for k in range(8):
                writer.put(np.full(elements, k), WAIT_S)

        produced = self.elsewhere(produce)
        kept = []
        for _ in range(8):
            kept.append(reader.get(WAIT_S)[1])
            reader.done()
        produced.result(WAIT_S)
        assert [(int(a[0]), int(a[-1])) for a in kept] == [(k, k) for k in range(8)]

    def test_closing_the_writer_ends_a_waiting_reader(self, fifo):
        writer, reader = fifo(FLOATS)
        writer_used = self.elsewhere(writer.put, np.ones((3, 5), np.float32), WAIT_S)
        reader.get(WAIT_S)
        writer_used.result(WAIT_S)
        self.elsewhere(writer.close)
        with pytest.raises(FifoClosedError):
            reader.get(WAIT_S)

    def test_what_was_put_before_closing_can_still_be_got(self, fifo):
        writer, reader = fifo(FifoSpec("float32", (1000, 1000), 3))

        def produce():
            for k in range(3):
                writer.put(np.full((1000, 1000), k, np.float32), WAIT_S)
            writer.close()

        produced = self.elsewhere(produce)
        assert [reader.get(WAIT_S)[1][0, 0] for _ in range(3)] == [0, 1, 2]
        with pytest.raises(FifoClosedError):
            reader.get(WAIT_S)
        produced.result(WAIT_S)

    def test_closing_the_reader_ends_a_waiting_writer(self, fifo):
        writer, reader = fifo(FifoSpec("float32", (), 1))
        array = np.array(1, np.float32)

        def produce():
            writer.put(array, WAIT_S)
            with pytest.raises(FifoClosedError):
                writer.put(array, WAIT_S)

        produced = self.elsewhere(produce)
        reader.get(WAIT_S)
        reader.close()
        produced.result(WAIT_S)


class TestInProcess(FifoContract):
    def make(self, spec):
        fifo = LocalFifo(spec)
        return fifo, fifo


class TestOverIpc(FifoContract):
    @pytest.fixture(autouse=True)
    def directory(self, tmp_path):
        self.path = tmp_path

    def make(self, spec):
        reader = WireReader(spec, f"ipc://{self.path}/fifo")
        return WireWriter(spec, reader.address), reader


class TestOverTcp(FifoContract):
    def make(self, spec):
        reader = WireReader(spec, "tcp://127.0.0.1:0")
        return WireWriter(spec, reader.address), reader
