"""The launcher's end of the stream in the simulated cluster: sends frames and checks results."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from launcher.core import events as lev
from launcher.core.blueprint import Blueprint
from launcher.core.networks import NetworkStreams
from launcher.core.stream import ENDLESS, RunStream
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


@dataclass
class Lane:
    """What the host does for one network, whose part of the plan is `plan`."""

    plan: Plan
    stream: RunStream[object]
    count: int
    program: Program | None
    state: dict[str, int]
    """What the network keeps of the last frame whose result was taken."""
    results: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    is_taking: bool = False

    @property
    def frames(self) -> int:
        """How many frames there are, those that are dropped included."""
        return self.program.frames if self.program else self.count

    def send(self) -> list[tuple[str, TensorHeader, object]]:
        """The next frame, as it goes to the nodes."""
        frame = self.stream.next_frame
        return [
            (
                spec.target_node,
                header,
                self.stream.state[spec.tensor]
                if spec.kept_from
                else source_value(spec.tensor, frame),
            )
            for spec, header in self.stream.send()
        ]

    def take(self) -> list[tuple[str, Credit]]:
        """Check the next result, which the user has taken."""
        frame, outputs = self.stream.result()
        before = self.results[-1] if self.results else -1
        missed = set(range(before + 1, frame)) - set(self.dropped)
        assert frame > before, "results come once and in order"
        assert not missed, "only frames that were dropped have no result"
        expected = whole(self.plan, frame, self.state)
        wanted = {c.tensor.name for c in self.plan.channels if c.target_device == HOST}
        assert outputs == {tensor: expected[tensor] for tensor in wanted}
        kept = (pair for phase in self.plan.phases for pair in phase.state)
        self.state = {tensor.name: expected[made] for tensor, made in kept}
        self.results.append(frame)
        return self.stream.take()


class SimulatedHost:
    """Every result must be the next one and the whole network's; the user takes `take_s` for it.

    A frame that a program withdrew is passed over. Of several networks each
    has a program.
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
        networks: Sequence[Plan],
        blueprint: Blueprint,
        take_s: float,
        *,
        frames: int,
        programs: Sequence[Program],
    ) -> None:
        self.lanes = []
        for number, plan in enumerate(networks):
            own = blueprint if len(networks) == 1 else blueprint.of_network(number)
            count = ENDLESS if programs else frames
            stream = RunStream[object](own, begins_with(plan), frames=count)
            program = programs[number] if programs else None
            self.lanes.append(Lane(plan, stream, count, program, begins_with(plan)))
        self.learned: list[lev.Rehearsed] = []
        self.streams_of = NetworkStreams(blueprint, [lane.stream for lane in self.lanes])
        self._programs_began = False
        self.data: dict[str, Connection] = {}
        self._take_s = take_s
        self._told: lev.ResultsTaken | None = None
        self.redialled: Callable[[str], None] = lambda _: None
        """Called when the launcher dials a node again that had refused it."""
        self._put_off: list[Happening] = []

    @property
    def stream(self) -> RunStream[object]:
        """The first network's."""
        return self.lanes[0].stream

    @property
    def results(self) -> list[int]:
        """The first network's."""
        return self.lanes[0].results

    @property
    def dropped(self) -> list[int]:
        """The first network's."""
        return self.lanes[0].dropped

    @abstractmethod
    def event(self, event: lev.Event) -> None:
        """Tell the supervisor."""

    def launcher_at(self, at_s: float, happen: Happening) -> None:
        """Let something happen at a time, or when the launcher continues, unless it has ended
        before."""
        era = self.era
        self.clock.at(
            at_s, lambda: self.is_put_off(happen) or happen() if self.era == era else None
        )

    def is_put_off(self, happen: Happening) -> bool:
        """Whether the launcher is stopped, so that something happens when it continues."""
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
                self.streams_of.begin(blueprint)
                self.attach(addresses)
            case lev.Redial(node):
                self.redialled(node)
            case lev.Halt():
                self.halt()
            case lev.Rehearsed():
                self.learned.append(action)
            case lev.PlanRequest(epoch, left):
                self.asked.append(action)
                self.tell_story(f"plan epoch {epoch} for {left}")
                at_s = self.now_s + PLANNING_S
                self.launcher_at(at_s, lambda asked=action: self._plan(asked))
            case lev.StageProgress():
                assert action.total is None or 0 <= action.done <= action.total < ENDLESS
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
        self.event(self.streams_of.halt())
        self._host_works()

    def _push(self, lane: Lane, frames: int) -> None:
        """A program pushes up to so many frames in all, and then continues."""
        assert lane.program is not None
        lane.stream.push(frames)
        if frames < lane.program.frames:
            at_s = self.clock.now_s + lane.program.after_s[frames]
            self.launcher_at(at_s, lambda: self._push(lane, frames + 1))
        else:
            at_s = self.clock.now_s + lane.program.end_s
            self.launcher_at(at_s, lambda: self._end_program(lane, frames))
        self._host_works()

    def _end_program(self, lane: Lane, frames: int) -> None:
        lane.stream.push(frames, is_end=True)
        self._host_works()

    def attach(self, addresses: dict[str, str]) -> None:
        if not self._programs_began:
            self._programs_began = True
            for lane in self.lanes:
                if lane.program is not None:
                    self.launcher_at(self.clock.now_s, lambda own=lane: self._push(own, 0))
                else:
                    lane.stream.push(lane.count, is_end=True)
        for node in addresses:
            over = self.data[node] = self.connect(HOST, node)
            if node not in self.closed_data_ports:
                self.send(over, node, lambda n=node, o=over: self._linked(n, o))
            self.send_data(over, HOST, Attach(self.streams_of.blueprint.epoch, HOST), None)
            for credit in self.streams_of.attach(node):
                self.send_data(over, HOST, credit, None)

    def _linked(self, node: str, over: Connection) -> None:
        if self.data.get(node) is over:
            self.event(lev.DataConnected(node))

    def host_receives(self, over: Connection, message: Data, payload: object) -> None:
        if self.data.get(over.dialled) is not over:
            return
        match message:
            case Credit():
                assert self.streams_of.credit(message)
            case TensorHeader():
                assert payload is not None
                assert self.streams_of.tensor(over.dialled, message, payload)
        self._host_works()

    def _report(self) -> None:
        if self.streams_of.progress != self._told:
            self._told = self.streams_of.progress
            self.event(self._told)

    def _host_works(self) -> None:
        for lane in self.lanes:
            if self.end is None:
                self._works_for(lane)

    def _works_for(self, lane: Lane) -> None:
        stream = lane.stream
        self._report()
        while stream.may_send:
            if lane.program and stream.is_new and stream.next_frame in lane.program.withdrawn:
                lane.dropped.append(stream.next_frame)
                stream.withdraw()
                self._report()
                continue
            for node, header, value in lane.send():
                self.send_data(self.data[node], HOST, header, value)
        if stream.may_take and not lane.is_taking:
            lane.is_taking = True
            self.launcher_at(self.clock.now_s + self._take_s, lambda: self._taken(lane))

    def _taken(self, lane: Lane) -> None:
        lane.is_taking = False
        if self.end is not None:
            return
        for node, credit in lane.take():
            self.send_data(self.data[node], HOST, credit, None)
        self.event(self.streams_of.progress)
        self._host_works()
