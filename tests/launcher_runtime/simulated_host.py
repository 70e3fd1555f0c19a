"""The launcher's end of the stream in the simulated cluster: sends frames and checks results."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from launcher.core import events as lev
from launcher.core.intake import ENDLESS
from launcher.core.stream import RunStream
from nodes.protocol.messages import (
    CHUNK_BYTES,
    HOST,
    PUT_WINDOW,
    Attach,
    Credit,
    Data,
    Put,
    TensorHeader,
)
from partition.plan import Plan
from tests.launcher_runtime.connections import Clock, Connection, Happening
from tests.launcher_runtime.simulated_node import source_value, whole

PLANNING_S = 0.4
_ZEROS = bytes(CHUNK_BYTES)


def begins_with(plan: Plan) -> dict[str, int]:
    """What the network keeps before its first frame, by the names by which phases read it."""
    return {tensor.name: 11 for phase in plan.phases for tensor, _ in phase.state}


@dataclass(frozen=True)
class Program:
    """Pushes a frame `after_s[k]` after the one before, and ends the stream `end_s` after the last
    one; the frames in `withdrawn` are not to be sent any more when it is their turn."""

    after_s: tuple[float, ...]
    end_s: float = 0.0
    withdrawn: frozenset[int] = frozenset()

    @property
    def frames(self) -> int:
        return len(self.after_s)


class SimulatedHost:
    """Every result must be the next one and the whole network's; the user takes `take_s` for it.

    A frame that the source dropped, or a `program` withdrew, is passed over.
    """

    clock: Clock
    era = 0
    """Counts launchers."""
    is_stopped = False
    """Whether the launcher is, by a signal."""
    closed_data_ports: set[str]
    end: lev.End | None

    def __init__(
        self,
        plan: Plan,
        stream: RunStream[object],
        take_s: float,
        program: Program | None = None,
    ) -> None:
        self.plan = plan
        self.stream = stream
        self.program = program
        self._program_began = False
        self.results: list[int] = []
        self.dropped: list[int] = []
        self.data: dict[str, Connection] = {}
        self._state = begins_with(plan)
        self._wanted = {c.tensor.name for c in plan.channels if c.target_device == HOST}
        self._take_s = take_s
        self._taking = False
        self._looks: set[float] = set()
        self._told: lev.ResultsTaken | None = None
        self._put_off: list[Happening] = []

    @abstractmethod
    def event(self, event: lev.Event) -> None:
        """Tell the supervisor."""

    def launcher_at(self, at_s: float, happen: Happening) -> None:
        """Let something happen at a time, or when the launcher goes on, unless it has ended
        before."""
        era = self.era
        self.clock.at(
            at_s, lambda: self.is_put_off(happen) or happen() if self.era == era else None
        )

    def is_put_off(self, happen: Happening) -> bool:
        """Whether the launcher is stopped, so that something happens when it goes on."""
        if self.is_stopped:
            self._put_off.append(happen)
        return self.is_stopped

    def go_on_with_launcher(self) -> None:
        """SIGCONT."""
        self.is_stopped = False
        late, self._put_off = self._put_off, []
        for happen in late:
            happen()

    @abstractmethod
    def connect(self, dialler: str, dialled: str, *, is_control: bool = False) -> Connection:
        """A new connection."""

    @abstractmethod
    def hang_up(self, over: Connection, end: str) -> None:
        """Close a connection at one end."""

    @abstractmethod
    def send(self, over: Connection, sender: str, arrive: Happening) -> None:
        """Let something arrive at the other end."""

    @abstractmethod
    def send_data(self, over: Connection, sender: str, message: Data, payload: object) -> None:
        """Send a message over a data connection."""

    def performs(self, action: lev.Action) -> None:
        """Do what the supervisor wants done."""
        match action:
            case lev.Send(node, message):
                self.command(node, message)
            case lev.SendChunk(node, blob, offset, size):
                self.nodes[node].unanswered += 1
                assert self.nodes[node].unanswered <= 2 * PUT_WINDOW
                self.command(node, Put(blob, offset, _ZEROS[:size]))
            case lev.Stream(addresses, blueprint):
                self.streams.append(action)
                self.stream.begin(blueprint)
                self.attach(addresses)
            case lev.Halt():
                self.halt()
            case lev.PlanRequest(epoch, left):
                self.tell_story(f"plan epoch {epoch} for {left}")
                at_s = self.now_s + PLANNING_S
                self.launcher_at(at_s, lambda asked=action: self._plan(asked))
            case lev.StageProgress():
                assert 0 <= action.done <= action.total < ENDLESS
                self.reports.append(action)
            case lev.Notice(text):
                self.tell_story(f"told: {text}")
                self.notices.append(text)
            case lev.End(error):
                self.tell_story(f"the end: {error}")
                self.end, self.end_s = action, self.now_s

    def halt(self) -> None:
        for connection in self.data.values():
            self.hang_up(connection, HOST)
        self.data.clear()
        self.event(lev.Halted(*self.stream.halt()))
        self._host_works()

    def _push(self, frames: int) -> None:
        """The program pushes up to so many frames in all, and then goes on."""
        assert self.program is not None
        self.stream.push(frames)
        if frames < self.program.frames:
            at_s = self.clock.now_s + self.program.after_s[frames]
            self.launcher_at(at_s, lambda: self._push(frames + 1))
        else:
            self.launcher_at(self.clock.now_s + self.program.end_s, self._end_program)
        self._host_works()

    def _end_program(self) -> None:
        assert self.program is not None
        self.stream.push(self.program.frames, is_end=True)
        self._host_works()

    def attach(self, addresses: dict[str, str]) -> None:
        if self.program is not None and not self._program_began:
            self._program_began = True
            self.launcher_at(self.clock.now_s, lambda: self._push(0))
        self.stream.intake.begin(self.clock.now_s)
        for node in addresses:
            over = self.data[node] = self.connect(HOST, node)
            if node not in self.closed_data_ports:
                self.send(over, node, lambda n=node, o=over: self._linked(n, o))
            self.send_data(over, HOST, Attach(self.stream.blueprint.epoch, HOST), None)
            for credit in self.stream.sink.attach(node):
                self.send_data(over, HOST, credit, None)

    def _linked(self, node: str, over: Connection) -> None:
        if self.data.get(node) is over:
            self.event(lev.DataConnected(node))

    def host_receives(self, over: Connection, message: Data, payload: object) -> None:
        if self.data.get(over.dialled) is not over:
            return
        match message:
            case Credit():
                assert self.stream.credit(message)
            case TensorHeader():
                assert payload is not None
                assert self.stream.tensor(over.dialled, message, payload)
        self._host_works()

    def _source_works(self) -> None:
        """Take in what the source has made; look again when it makes the next frame."""
        dropped = self.stream.advance(self.clock.now_s)
        self.dropped += dropped
        due_s = self.stream.intake.due_s
        if due_s is not None and due_s not in self._looks:
            self._looks.add(due_s)
            self.launcher_at(due_s, self._host_works)
        progress = lev.ResultsTaken(self.stream.taken, self.stream.frames, self.stream.offered)
        if progress != self._told:
            self._told = progress
            self.event(progress)

    def _host_works(self) -> None:
        if self.end is not None:
            return
        if self.stream.intake.pace is not None or self.program is not None:
            self._source_works()
        while self.stream.may_send:
            frame = self.stream.next_frame
            if self.program and self.stream.is_new and frame in self.program.withdrawn:
                self.stream.withdraw()
                self.dropped.append(frame)
                self._source_works()
                continue
            for spec, header in self.stream.send():
                is_state = spec.kept_from != ""
                name = spec.tensor
                value = self.stream.state[name] if is_state else source_value(name, frame)
                self.send_data(self.data[spec.target_node], HOST, header, value)
        if self.stream.may_take and not self._taking:
            self._taking = True
            self.launcher_at(self.clock.now_s + self._take_s, self._taken)

    def _taken(self) -> None:
        self._taking = False
        if self.end is not None:
            return
        frame, outputs = self.stream.result()
        before = self.results[-1] if self.results else -1
        missed = set(range(before + 1, frame)) - set(self.dropped)
        assert frame > before, "results come once and in order"
        assert not missed, "only frames that were dropped have no result"
        expected = whole(self.plan, frame, self._state)
        assert outputs == {tensor: expected[tensor] for tensor in self._wanted}
        kept = (pair for phase in self.plan.phases for pair in phase.state)
        self._state = {tensor.name: expected[made] for tensor, made in kept}
        self.results.append(frame)
        for node, credit in self.stream.take():
            self.send_data(self.data[node], HOST, credit, None)
        self.event(lev.ResultsTaken(self.stream.taken, self.stream.frames, self.stream.offered))
        self._host_works()
