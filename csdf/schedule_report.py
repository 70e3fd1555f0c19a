"""What `csdf schedule` prints."""

from __future__ import annotations

from csdf.order_search import Found
from csdf.orders import Orders
from csdf.schedule import Schedule


def as_json(schedule: Schedule, orders: Orders, found: Found | None) -> dict[str, object]:
    """For `json.dumps`; `found` if the orders were looked for."""
    return {
        "period": str(schedule.period),
        "iterations": schedule.iterations,
        "orders": {processor: [str(one) for one in order] for processor, order in orders.items()},
        "at_least": None if found is None else str(found.at_least),
        "best": None if found is None else found.best,
        "starts": {name: [str(start) for start in own] for name, own in schedule.starts.items()},
    }


def as_text(schedule: Schedule, orders: Orders, found: Found | None) -> str:
    """For people."""
    lines = [f"{processor}={','.join(map(str, order))}" for processor, order in orders.items()]
    if found is not None:
        lines.append(_claim(found))
    if schedule.iterations == 1:
        lines.append(f"every firing again after {schedule.period}; it starts at")
    else:
        turn = schedule.period * schedule.iterations
        lines.append(f"every {schedule.iterations} iterations again after {turn}; they start at")
    lines += [f"{name}: {' '.join(map(str, own))}" for name, own in schedule.starts.items()]
    return "\n".join(lines)


def _claim(found: Found) -> str:
    if found.period == found.at_least:
        return f"no order has a shorter period than {found.period}"
    if found.best:
        return (
            f"no order with one iteration per period has a shorter one than {found.period}; "
            f"others need {found.at_least} at least"
        )
    return (
        f"{found.period} is the best found, not proved to be the best: "
        f"{found.at_least} are needed at least"
    )
