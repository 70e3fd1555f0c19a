"""Runs a plan: starts or reaches agents, deploys, streams frames, collects results, cleans up."""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from cnn.blocked_layout import borders_in_blocks
from launcher.config.access import Access, exposed, launcher_keys
from launcher.core.blueprint import Blueprint
from launcher.core.events import PlanReply, PlanRequest, Rehearsed
from launcher.core.roll import Question, Roll
from launcher.core.session import Contact, Session
from launcher.core.stream import ENDLESS
from launcher.core.supervisor import Supervisor
from launcher.core.watch import Limits
from launcher.errors import BadInputError, RunFailedError
from launcher.run.background import IsWanted
from launcher.run.connections import Connections
from launcher.run.deployment import SubnetBlobs, blueprint
from launcher.run.drive import Drive
from launcher.run.host import Host
from launcher.run.observer import Observer
from launcher.run.processes import LocalAgents, start_agents
from launcher.run.roll_call import call_roll, greeting
from launcher.run.runtime import (
    REMOTE_S,
    CutPlan,
    Node,
    OnUpdate,
    PushedFrames,
    Runner,
    RunOptions,
    RunResult,
    SubnetFiles,
)
from launcher.run.tracing import Tracer
from launcher.view.frame_trace import FrameTracer
from nodes.core.engines import EngineLackingError, resolve
from nodes.net.sockets import AddressError
from nodes.protocol.messages import HOST, BlobInfo, EngineChoice
from partition.plan import Plan
from partition.prediction.memory import with_room

MOST_PLANS = 32
"""How many plans are kept, the one that runs among them; only the last ones can come to run."""


@dataclass(frozen=True)
class AgentRunner:
    """Runs plans on nodes whose agents on this machine were started before (a `Runner`)."""

    agents: LocalAgents
    session: str = field(default_factory=partial(secrets.token_hex, 16))
    slots: dict[str, str] = field(default_factory=dict)
    """The address of the slot of each node that has answered the roll call."""

    def __call__(
        self,
        plan: Plan,
        nodes: tuple[Node, ...],
        subnets: Mapping[str, SubnetFiles],
        networks: Sequence[PushedFrames],
        on_update: OnUpdate,
        options: RunOptions,
    ) -> RunResult:
        """See `run`."""
        return run(
            *(plan, nodes, subnets, networks, on_update, options),
            agents=self.agents,
            session=self.session,
            slots=self.slots,
        )

    def call_roll(
        self,
        nodes: tuple[Node, ...],
        timeout_s: float,
        remote_s: float = REMOTE_S,
        wanted: Mapping[str, Question] = MappingProxyType({}),
        show: Callable[[int, int], None] = lambda *_: None,
    ) -> Roll:
        """Greet the nodes' agents and return their answers (see `launcher.run.roll_call`)."""
        contacts = [_contact(node, self.agents, keep=True) for node in nodes]
        access = nodes[0].access
        keys = launcher_keys(access, _dialled(access, nodes, contacts))
        hello = greeting(timeout_s, self.session)
        with Connections(keys, access.guards, _doors(nodes)) as connections:
            roll = call_roll(
                *(connections, contacts, hello, timeout_s, remote_s, self.agents),
                wanted=wanted,
                show=show,
            )
        self.slots.update(roll.addresses)
        return roll


def run(
    plan: Plan,
    nodes: tuple[Node, ...],
    subnets: Mapping[str, SubnetFiles],
    networks: Sequence[PushedFrames],
    on_update: OnUpdate,
    options: RunOptions,
    agents: LocalAgents | None = None,
    session: str | None = None,
    slots: Mapping[str, str] = MappingProxyType({}),
) -> RunResult:
    """Run `plan` on `nodes` (a `Runner`).

    This returns once the frames of all `networks` have ended and have their results.

    Nodes without a phase in the plan are not used; if `options.recovers`, they stand by in case a
    node is lost. `agents` are those that were started before planning
    (`launcher.run.processes.start_agents`); without them, this function starts and ends its own.
    `session` is the name of the session with every agent, by default a random one. `slots` has the
    addresses of the slots that are tried first.

    Raises `BadInputError` for nodes that cannot be used (unreachable, busy, of another protocol
    version, missing); `RunFailedError` if the run fails later.
    """
    began_s = time.monotonic()
    used = _nodes_in_use(plan, nodes)
    held = nodes if options.recovers else used
    _check_addresses(held)
    count = min(ENDLESS, sum(network.count for network in networks))
    descriptors = [network.descriptor for network in networks]
    inputs = [network.inputs for network in networks]
    blueprint = _blueprint(plan, nodes, subnets, secrets.randbits(62), options, inputs)
    plans = {blueprint.epoch: CutPlan(plan, subnets)}

    def replan(request: PlanRequest, is_wanted: IsWanted) -> tuple[PlanReply, Mapping[str, Path]]:
        if options.replan is None:
            raise RunFailedError("this run does not continue without a node")
        to_beat = None if request.better_than is None else plans[request.better_than].plan
        earlier = None if request.again is None else plans.get(request.again)
        found = earlier or options.replan(request, to_beat, is_wanted)
        plans[request.epoch] = found
        if len(plans) > MOST_PLANS:
            del plans[next(epoch for epoch in plans if epoch != supervisor.blueprint.epoch)]
        blueprint = _blueprint(found.plan, nodes, found.subnets, request.epoch, options, inputs)
        room = frozenset() if to_beat is None else with_room(to_beat, found.plan)
        blueprint = replace(blueprint, slower=request.slower, with_room=room)
        return PlanReply(blueprint, found.gain, found.note), _blob_files(found.subnets)

    def learn(rehearsed: Rehearsed) -> None:
        if options.learn is not None:
            options.learn(plans[rehearsed.epoch].plan, rehearsed)

    with contextlib.ExitStack() as stack:
        if agents is None:
            agents = stack.enter_context(start_agents(held, options.cache))
        contacts = [
            _contact(node, agents, options.keep_agents, options.absent.get(node.name, ""), slots)
            for node in held
        ]
        access = used[0].access
        keys = launcher_keys(access, _dialled(access, held, contacts))
        connections = stack.enter_context(Connections(keys, access.guards, _doors(held)))
        for contact in contacts:
            _connect(connections, contact)
        follower = FrameTracer() if options.follows else None
        if follower is not None:
            stack.callback(follower.close)
        host = Host(
            blueprint,
            networks,
            connections,
            began_s,
            options.state,
            timed=options.timed,
            on_traced=None if follower is None else follower.took,
        )
        limits = _limits(options, plan.batch)
        supervisor = Supervisor(
            blueprint, contacts, count, greeting(limits.run.lease_s, session), limits
        )
        blobs = _blob_files(subnets)
        tracer = None if options.trace is None else Tracer()
        observer = None
        if options.observation is not None:
            observer = Observer(
                options.observation, supervisor, host, plans, held, connections.send
            )
        drive = Drive(
            supervisor,
            host,
            connections,
            agents,
            blobs,
            on_update,
            replan,
            learn,
            tracer or follower,
            options.consent,
            [descriptor for descriptor in descriptors if descriptor is not None],
            observer,
        )
        drive.run()
    if tracer is not None and options.trace is not None:
        tracer.write(options.trace, supervisor.blueprint)
    blueprint = supervisor.blueprint
    sessions = [supervisor.sessions[node] for node in blueprint.deployments]
    return RunResult(
        sent_s=tuple(host.sent_s),
        received_s=tuple(host.received_s),
        stats={s.node: s.stats for s in sessions if s.stats is not None},
        idle_rss_bytes={s.node: s.welcome.rss_bytes for s in sessions if s.welcome is not None},
        warmup_s={s.node: s.deployed.phase_s for s in sessions if s.deployed is not None},
        first_result_s=host.first_result_s,
        message_s={s.node: s.deployed.message_s for s in sessions if s.deployed is not None},
        byte_s={s.node: s.deployed.byte_s for s in sessions if s.deployed is not None},
        welcome={s.node: s.welcome for s in sessions if s.welcome is not None},
        engines=_engines(nodes, sessions),
        recoveries=tuple(supervisor.recoveries),
        absences=supervisor.absences,
        sent_bytes=host.sent_bytes,
        replanned=None if plans[blueprint.epoch].plan is plan else plans[blueprint.epoch].plan,
    )


def _engines(nodes: tuple[Node, ...], sessions: Iterable[Session]) -> dict[str, EngineChoice]:
    """Return what each node of the run computes with."""
    choices = {node.name: node.engine for node in nodes}
    found = {}
    for session in sessions:
        if session.welcome is not None:
            with contextlib.suppress(EngineLackingError):  # of a node that was not used
                found[session.node] = resolve(choices[session.node], session.welcome.engines)
    return found


def _blueprint(
    plan: Plan,
    nodes: tuple[Node, ...],
    subnets: Mapping[str, SubnetFiles],
    epoch: int,
    options: RunOptions,
    inputs: Sequence[Sequence[str]],
) -> Blueprint:
    return blueprint(
        plan,
        {phase: _blobs(subnet) for phase, subnet in subnets.items()},
        {node.name: node for node in nodes},
        epoch=epoch,
        order=options.run.order,
        check_finite=options.check_phases,
        networks=inputs,
        run="" if options.observation is None else options.observation.run,
    )


def _contact(
    node: Node,
    agents: LocalAgents,
    keep: bool,
    absence: str = "",
    slots: Mapping[str, str] = MappingProxyType({}),
) -> Contact:
    if not node.addresses:
        address = agents[node.name].address
        return Contact(node.name, address, not keep, node.engine, absence)
    first = slots.get(node.name, node.addresses[0])
    others = tuple(address for address in node.addresses if address != first)
    return Contact(node.name, first, False, node.engine, absence, others)


def _doors(nodes: Iterable[Node]) -> dict[str, str]:
    """Return the addresses of data ports that the user gives, by those of control ports."""
    return {control: data for node in nodes for control, data in node.doors.items()}


def _dialled(access: Access, nodes: Iterable[Node], contacts: Iterable[Contact]) -> dict[str, str]:
    """Return the address of each node by which it is known whether it needs keys."""
    data = {node.name: node.data for node in nodes}
    return {each.name: exposed(access, each.address, data[each.name]) for each in contacts}


def _connect(connections: Connections, contact: Contact) -> None:
    try:
        connections.open_control(contact.name, contact.address)
    except AddressError as error:
        raise BadInputError(f"node {contact.name!r}: {error}") from error


def _limits(options: RunOptions, batch: int) -> Limits:
    return Limits(
        options.run,
        options.recovery.model_copy(update={"enabled": options.recovers}),
        start_wait_s=options.start_wait_s,
        consent="" if options.consent is None else options.consent.command,
        source_period_s=options.source_period_s,
        batch=batch,
        searches_on=options.searches_on,
        corrects_in_a_hurry=options.corrects_in_a_hurry,
    )


_is_digest = re.compile(r"[0-9a-f]{64}").fullmatch


def _blobs(files: SubnetFiles) -> SubnetBlobs:
    weights = _blob(files.weights) if files.weights else None
    return SubnetBlobs(_blob(files.graph), weights, borders_in_blocks(files.graph))


def _blob(path: Path) -> BlobInfo:
    if not _is_digest(path.name):
        raise BadInputError(f"{path} is not named by the SHA-256 of its content")
    try:
        return BlobInfo(path.name, path.stat().st_size)
    except OSError as error:
        raise BadInputError(f"{path} cannot be read ({error}): make the plan again") from error


def _blob_files(subnets: Mapping[str, SubnetFiles]) -> dict[str, Path]:
    files = (path for subnet in subnets.values() for path in (subnet.graph, subnet.weights))
    return {path.name: path for path in files if path is not None}


def _nodes_in_use(plan: Plan, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """The nodes for which the plan has phases; raises `BadInputError` if one of them is missing."""
    devices = {phase.device for phase in plan.phases} - {HOST}
    known = {node.name for node in nodes}
    for device in sorted(devices - known):
        raise BadInputError(
            f"the plan needs a node {device!r}, which is not among {', '.join(sorted(known))}: "
            "make a plan for these nodes"
        )
    return tuple(node for node in nodes if node.name in devices)


def _check_addresses(nodes: tuple[Node, ...]) -> None:
    """Raises `BadInputError` if two nodes have the same address, or slots at the same address."""
    at: dict[str, str] = {}
    for node in nodes:
        for address in node.addresses:
            if at.setdefault(address, node.name) != node.name:
                raise BadInputError(
                    f"nodes {at[address]!r} and {node.name!r} have the same address {address}: "
                    "each node needs its own agent"
                )


Runtime = Callable[[tuple[Node, ...]], contextlib.AbstractContextManager[Runner]]
"""Starts agents for the nodes; the context's value runs plans on them until the context ends."""


@contextlib.contextmanager
def real_runtime(nodes: tuple[Node, ...]) -> Iterator[Runner]:
    """Start agents on this machine for nodes without an address; run plans by `AgentRunner`."""
    with start_agents(nodes) as agents:
        yield AgentRunner(agents)
