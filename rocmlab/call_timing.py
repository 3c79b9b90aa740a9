"""How long does the device take for one call, apart from what the host takes to queue it?

`timed(calls, device, chosen)` runs a list of calls that rotate over what they read. On a GPU they are captured into a
graph and replayed, so that the host cannot be what binds; where capture fails, they are queued behind known work, and
where that is not valid either, between two events, which the row then says. On a CPU: wall clock.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

from rocmlab import clock, lengths, timing

SAMPLES, FEWEST, WARM_CALLS = 12, 6, 3
BLOCK_MS = {"cpu": 4.0, "gpu": 2.0}
BUDGET_S = {"cpu": 0.4, "gpu": 0.3}
LEAST_CALLS, MOST_CALLS = 20, 512  # in one graph
QUEUED_CALLS = 20  # behind known work: few enough never to fill the launch queue (about 1,024 kernels)

Calls = list[Callable[[], Any]]


def timed(calls: Calls, device: str, chosen: clock.Choice) -> dict[str, Any]:
    """Return {samples_ms (of one call), method, grade, clock, calls, host_may_bind} and why a better method failed."""
    if device == "cpu":
        return _by_wall(calls, device)
    failed: dict[str, str] = {}
    for name, way in (("graph", _by_graph), ("queue", _by_queue), ("events", _by_events)):
        try:
            return way(_enough(calls), device, chosen) | {"method": name, "failed": failed}
        except (RuntimeError, AttributeError) as error:
            failed[name] = str(error)[:300]
            _leave_capture(device)
            timing.synchronise(device)  # a broken device raises here, and the row says so
    raise RuntimeError("; ".join(f"{name}: {said}" for name, said in failed.items()))


def _leave_capture(device: str) -> None:
    """Go back to the default stream: a capture that fails leaves its own one current."""
    import torch

    torch.cuda.set_stream(torch.cuda.default_stream(torch.device(device)))


def _enough(calls: Calls) -> Calls:
    times = -(-LEAST_CALLS // len(calls))
    return (calls * times)[:MOST_CALLS]


def _by_wall(calls: Calls, device: str) -> dict[str, Any]:
    """Time blocks of calls by the wall clock; the rotation goes on from block to block, so that none finds its part in
    a cache."""
    turn = itertools.cycle(calls)
    once = min(clock.timed(next(turn), device) for _ in range(WARM_CALLS))
    size = max(1, min(5000, round(BLOCK_MS["cpu"] / once)))

    def block() -> None:
        for _ in range(size):
            next(turn)()

    warm = min(clock.warm(block, device, blocks=4, limit_s=0.3))
    count = int(max(FEWEST, min(SAMPLES, 1000 * BUDGET_S["cpu"] / warm)))
    samples = [clock.timed(block, device) / size for _ in range(count)]
    said = {"method": "wall", "grade": "D", "clock": clock.WALL, "host_may_bind": device != "cpu"}
    return {"samples_ms": samples, "calls": size, "failed": {}, **said}


def _by_graph(calls: Calls, device: str, chosen: clock.Choice) -> dict[str, Any]:
    """Capture one rotation into a graph and replay it; by events where they are trusted, else by the wall clock."""
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls[:3]:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    warm = min(clock.warm(graph.replay, device, blocks=4, limit_s=0.3))
    replays = max(1, round(max(BLOCK_MS["gpu"], 2 * chosen.smallest_ms) / warm))
    count = int(max(FEWEST, min(SAMPLES, 1000 * BUDGET_S["gpu"] / (warm * replays))))
    samples = [clock.each(graph.replay, replays, device, chosen.clock) / len(calls) for _ in range(count)]
    del graph
    grade = "B" if chosen.clock == clock.EVENTS else "D"
    return {"samples_ms": samples, "calls": len(calls) * replays, "clock": chosen.clock, "grade": grade,
            "host_may_bind": False}  # fmt: skip


def _by_queue(calls: Calls, device: str, chosen: clock.Choice) -> dict[str, Any]:
    """Queue the calls behind known work: valid only if all was queued before half of that work was done."""
    import torch

    if chosen.clock == clock.WALL:
        raise RuntimeError("events are not trusted here, and only they can time work behind other work")
    calls = calls[:QUEUED_CALLS]
    for call in calls:
        call()
    timing.synchronise(device)
    began = time.perf_counter()
    for call in calls:
        call()
    host_ms = 1000 * (time.perf_counter() - began)
    timing.synchronise(device)
    work, known_ms = lengths.device_work(device, 4 * host_ms + 1)
    samples = []
    for _ in range(SAMPLES):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        timing.synchronise(device)
        began = time.perf_counter()
        work()
        start.record()
        for call in calls:
            call()
        end.record()
        queued_ms = 1000 * (time.perf_counter() - began)
        timing.synchronise(device)
        if queued_ms < known_ms / 2:
            samples.append(start.elapsed_time(end) / len(calls))
    if len(samples) < FEWEST:
        raise RuntimeError("queueing took more than half of the known work in front")
    return {"samples_ms": samples, "calls": len(calls), "clock": clock.EVENTS, "grade": "B", "host_may_bind": False}


def _by_events(calls: Calls, device: str, chosen: clock.Choice) -> dict[str, Any]:
    """Time the calls as the host queues them: an upper limit of the device's time where the host is slower."""
    if chosen.clock == clock.WALL:
        return _by_wall(calls, device)

    def once() -> None:
        for call in calls:
            call()

    clock.warm(once, device, blocks=4, limit_s=0.3)
    samples = [clock.each(once, 1, device, chosen.clock) / len(calls) for _ in range(SAMPLES)]
    return {"samples_ms": samples, "calls": len(calls), "clock": clock.EVENTS, "grade": "B", "host_may_bind": True}
