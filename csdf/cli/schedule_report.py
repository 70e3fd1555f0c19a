"""What `csdf schedule` prints."""

from __future__ import annotations

from csdf.model.static_orders import Orders
from csdf.timing.schedule import Schedule


def as_json(schedule: Schedule, orders: Orders) -> dict[str, object]:
    """For `json.dumps`."""
    return {
        "period": str(schedule.period),
        "iterations": schedule.iterations,
        "orders": {processor: [str(one) for one in order] for processor, order in orders.items()},
        "starts": {name: [str(start) for start in own] for name, own in schedule.starts.items()},
    }


def as_text(schedule: Schedule, orders: Orders) -> str:
    """For people."""
    lines = [f"{processor}={','.join(map(str, order))}" for processor, order in orders.items()]
    if schedule.iterations == 1:
        lines.append(f"every firing again after {schedule.period}; it starts at")
    else:
        turn = schedule.period * schedule.iterations
        lines.append(f"every {schedule.iterations} iterations again after {turn}; they start at")
    lines += [f"{name}: {' '.join(map(str, own))}" for name, own in schedule.starts.items()]
    return "\n".join(lines)
