"""A computed timeline as a Chrome trace (Perfetto and chrome://tracing open it)."""

from typing import Any

import numpy as np

from gnnperf.graph.model import NONE
from gnnperf.timeline.lanes import HOST, Part
from gnnperf.timeline.replay import Result


def to_chrome(result: Result) -> dict[str, Any]:
    """The last repetition of a step: a process per rank, a track per host chain and stream.

    Times are microseconds from the first event of that repetition. A call that waited, or a
    collective that waited for its last rank, is one slice, with the waiting in `args.waited_us`.
    """
    step, times = result.step, result.times[-1]
    origin = float(times.event_us.min())
    lane = step.schedule.lane_of
    events: list[dict[str, Any]] = []
    graph_of_lane = step.graph[step.schedule.lane_ptr[:-1].clip(max=len(step.graph) - 1)]
    for g, graph in enumerate(step.job.graphs):
        name = f"rank {graph.meta.rank} {graph.meta.device}"
        events.append(_label("process_name", g, 0, name))
    for number, lane_name in enumerate(step.lane_names):
        events.append(_label("thread_name", int(graph_of_lane[number]), number, lane_name))
    opens = np.flatnonzero(step.part != Part.SECOND)
    closes = opens + (step.part[opens] == Part.FIRST)
    for i, last in zip(opens.tolist(), closes.tolist(), strict=True):
        begin, end = float(times.start_us[i]), float(times.end_us[last])
        own = float(result.schedule.duration_us[last if step.device[i] else i])
        node, graph = int(step.node[i]), step.job.graphs[int(step.graph[i])]
        event: dict[str, Any] = {
            "ph": "X",
            "name": graph.name_of(node) if node != NONE else "launch",
            "cat": HOST if step.lane_names[int(lane[i])] == HOST else "device",
            "ts": round(begin - origin, 3),
            "dur": round(end - begin, 3),
            "pid": int(step.graph[i]),
            "tid": int(lane[i]),
        }
        if end - begin > own + 1e-6:
            event["args"] = {"waited_us": round(end - begin - own, 3)}
        events.append(event)
    about = {"iteration_us": result.iteration_us, "how": result.how}
    return {"traceEvents": events, "displayTimeUnit": "ms", "gnnperf": about}


def _label(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name.strip()}}
