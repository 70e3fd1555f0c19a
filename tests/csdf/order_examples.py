"""Static orders to analyse: any that some execution could keep, or might not."""

from __future__ import annotations

from hypothesis import strategies as st

from csdf.execution.static_orders import Entry
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from tests.csdf.oracle import Untimed

Orders = dict[str, list[Entry]]


@st.composite
def pipelined(draw: st.DrawFn, found: Graph) -> Orders:
    """One period's firings of any execution that got under way somehow: always live.

    Or, with offsets drawn at random, perhaps not.
    """
    repetitions = repetition_vector(found)
    count = {a.name: repetitions[a.name] * a.phases for a in found.actors}
    places = st.sampled_from(("P", "P", "Q", "R", None))
    by_phase = {a.name: draw(st.booleans()) and a.phases > 1 for a in found.actors}
    on = {
        (a.name, phase): draw(places)
        for a in found.actors
        for phase in (range(a.phases) if by_phase[a.name] else [None])
    }
    state = Untimed(found)
    ahead = draw(st.integers(0, 2 * sum(count.values())))
    most = {name: draw(st.integers(1, 3)) * n for name, n in count.items()}
    for _ in range(ahead):
        able = [a for a in count if not state.lacking(a) and state.fired[a] < most[a]]
        if not able:
            break
        state.fire(draw(st.sampled_from(able)))
    before = dict(state.fired)
    late = max(fired // count[name] for name, fired in before.items()) + 1
    orders: Orders = {}
    while True:
        able = [a for a in count if not state.lacking(a) and state.fired[a] < before[a] + count[a]]
        if not able:
            break
        actor = draw(st.sampled_from(able))
        phase = state.phase(actor) if by_phase[actor] else None
        processor = on[actor, phase]
        if processor is not None:
            offset = late - state.fired[actor] // count[actor]
            orders.setdefault(processor, []).append(Entry(actor, offset, phase))
        state.fire(actor)
    if draw(st.sampled_from((False, False, True))):
        shift = {name: draw(st.integers(0, 2)) for name in count}
        orders = {
            p: [Entry(e.actor, e.offset + shift[e.actor], e.phase) for e in order]
            for p, order in orders.items()
        }
    return orders
