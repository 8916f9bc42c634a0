"""Which event bounds which: critical paths and the derivative of a time by every duration."""

import numpy as np

from gnnperf.graph.model import F64, I64, NONE
from gnnperf.timeline.scan import Times
from gnnperf.timeline.schedule import Schedule


def binding_events(schedule: Schedule, times: Times) -> tuple[I64, I64]:
    """For every event the event that made it so late, and the edge that carried it.

    A start is bound by the end of the lane's node before it or by an edge, an end by its own
    start (through the duration) or by an edge. Ties go to the lane and to the own start.

    Returns:
        [2 n] binding event (NONE: nothing within this step) and [2 n] row of `schedule.links`
        (NONE: the lane or the own duration).
    """
    event = times.event_us
    n = schedule.num_nodes
    binder = np.arange(2 * n, dtype=np.int64) - 1
    binder[2 * schedule.first_of_lane] = NONE
    value = np.full(2 * n, -np.inf)
    value[2::2] = event[1:-1:2] + schedule.gap_us[1:]
    value[2 * schedule.first_of_lane] = -np.inf
    value[1::2] = event[0::2] + schedule.duration_us
    edge = np.full(2 * n, NONE, dtype=np.int64)
    rows = np.flatnonzero(schedule.links.back == 0)
    links = schedule.links.take(rows)
    target = links.target_event
    bound = event[links.source_event] + links.lag_us
    order = np.lexsort((bound, target))
    sorted_target = target[order]
    last = order[np.append(sorted_target[1:] != sorted_target[:-1], True)[: len(order)]]
    later = last[bound[last] > value[target[last]] + 1e-9]
    edge[target[later]] = rows[later]
    binder[target[later]] = links.source_event[later]
    value[target[later]] = bound[later]
    free = value < event - 1e-6
    binder[free] = edge[free] = NONE
    return binder, edge


def accumulate(binder: I64, weight: F64) -> F64:
    """Sum of the weights of all events that an event bounds, directly or not (itself included).

    Pointer doubling: after k rounds every event holds what lies within 2^k - 1 steps of it.
    """
    total = weight.copy()
    ahead = binder.copy()
    alive = np.flatnonzero(ahead >= 0)
    while alive.size:
        arriving = total[alive]
        np.add.at(total, ahead[alive], arriving)
        ahead[alive] = ahead[ahead[alive]]
        alive = alive[ahead[alive] >= 0]
    return total


def path_to(binder: I64, event: int) -> I64:
    """The events on the critical path to an event, the earliest first."""
    pointers = binder.tolist()
    path = []
    while event >= 0:
        path.append(event)
        event = pointers[event]
    return np.array(path[::-1], dtype=np.int64)


def derivatives(schedule: Schedule, times: Times, by_event: F64) -> tuple[F64, F64, F64]:
    """Derivatives of a function of the event times by durations, gaps and lags.

    Args:
        schedule: The problem.
        times: Its solution.
        by_event: [2 n] derivative of the function by each event's time.

    Returns:
        [n] by duration, [n] by gap, [e] by lag of each edge. For one event's time each is the
        number of times that the critical path passes there: 0 or 1.
    """
    binder, edge = binding_events(schedule, times)
    flow = accumulate(binder, by_event)
    own = (edge < 0) & (binder >= 0)
    by_duration = np.where(own[1::2], flow[1::2], 0.0)
    by_gap = np.where(own[0::2], flow[0::2], 0.0)
    by_lag = np.zeros(len(schedule.links))
    np.add.at(by_lag, edge[edge >= 0], flow[edge >= 0])
    return by_duration, by_gap, by_lag
