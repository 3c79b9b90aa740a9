"""Clock, power, temperature and memory of the device under study, read from outside and never while a latency is timed.

`reading(device)` is one cheap reading between two timed blocks. `Sampler` is a process of its own that reads twice a
second into the table `sensors`; `cost(...)` shows whether it disturbs, by blocks with and without it in turns. What a
source does not give is null with the reason, never 0.
"""

from __future__ import annotations

import contextlib
import functools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocmlab import isolate, nvml, results, sensor_sources, timing

HZ = 2.0
FIELDS = (
    "sclk_mhz", "sclk_max_mhz", "mclk_mhz", "mclk_max_mhz", "power_w", "power_cap_w", "temp_c", "temp_hotspot_c",
    "use_percent", "memory_used_bytes", "memory_total_bytes", "spilled_bytes", "limited_by",
)  # fmt: skip
# None of these is ever 0 on a device that runs: drivers write 0 where they do not know.
NEVER_ZERO = (
    "sclk_mhz", "sclk_max_mhz", "mclk_mhz", "mclk_max_mhz", "power_w", "power_cap_w", "temp_c", "temp_hotspot_c",
    "memory_total_bytes",
)  # fmt: skip
SPARSE_S = 1.0
WARM_S = 0.3
START_S = 20  # until the sampler's process has read for the first time

Read = Callable[[], dict[str, Any]]


def identity(device: str) -> dict[str, Any]:
    """Return who a torch device is: {device, vendor, bus, integrated}; bus "0000:03:00.0"; None where unknown."""
    if device == "cpu":
        return {"device": device, "vendor": None, "bus": None, "integrated": None}
    import torch

    facts = torch.cuda.get_device_properties(torch.device(device))
    parts = [getattr(facts, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    bus = f"{parts[0]:04x}:{parts[1]:02x}:{parts[2]:02x}.0" if None not in parts else None
    inside = getattr(facts, "is_integrated", None)
    vendor = "AMD" if torch.version.hip else "NVIDIA"
    return {"device": device, "vendor": vendor, "bus": bus, "integrated": None if inside is None else bool(inside)}


def source(who: dict[str, Any], cheap: bool = False) -> tuple[str | None, Read | None]:
    """Return (name, read) of the first source that gives a number for this device; (None, None) when none does.

    `cheap` leaves out those that start a program for each reading.
    """
    if who["device"] == "cpu":
        return "psutil", sensor_sources.Host().read
    tried: list[tuple[str, Read | None]] = []
    if who["vendor"] == "AMD":
        tried.append(("amdgpu sysfs", sensor_sources.sysfs(who["bus"])))
    else:
        tried.append(("NVML", nvml.reader(who["bus"])))
    if not cheap:
        tried += sensor_sources.programs(who["vendor"], who["bus"])
    for name, read in tried:
        if read is not None and any(value is not None for value in _quiet(read).values()):
            return name, read
    return None, None


def _quiet(read: Read) -> dict[str, Any]:
    """Return a reading; {} when the source fails, which must cost nothing but this reading."""
    try:
        return read()
    except Exception:  # a card that sleeps, a driver that is reset, a tool in a form nobody has seen yet
        return {}


def row(name: str | None, found: dict[str, Any]) -> dict[str, Any]:
    """Return a reading with every field: null and a reason where the source gave nothing, or an impossible 0."""
    made: dict[str, Any] = {"source": name}
    for key in FIELDS:
        value = found.get(key)
        if value == 0 and key in NEVER_ZERO:
            value = None
        made[key] = value
        if value is None:
            made[f"{key}_reason"] = f"not given by {name}" if name else "no source for this device answers"
    return made


@functools.cache
def _cheap(device: str) -> tuple[bool | None, str | None, Read | None]:
    try:
        who = identity(device)
        return who["integrated"], *source(who, cheap=True)
    except Exception:  # it stands between two timed blocks: a device that cannot be asked must not cost their times
        return None, None, None


def reading(device: str) -> dict[str, Any]:
    """Return one cheap reading of a torch device, taken between two timed blocks: t_s (Unix time), source, FIELDS, and
    host_mhz, host_max_mhz of the core that this process has just worked on."""
    host = sensor_sources.own_core()  # first: a core slows down again as soon as it waits
    integrated, name, read = _cheap(device)
    return {"t_s": time.time(), "integrated": integrated, **row(name, _quiet(read) if read else {}), **host}


_taken_s: dict[str, float] = {}


def sparse(device: str) -> dict[str, Any]:
    """Return {"sensor": a reading}, at most one a second, else {}: for work in pieces of milliseconds."""
    now = time.monotonic()
    if now - _taken_s.get(device, -SPARSE_S) < SPARSE_S:
        return {}
    _taken_s[device] = now
    return {"sensor": reading(device)}


# ---- the sampler


class Sampler:
    """A process that reads sensors at HZ into the table `sensors` between `on()` and `off()`.

    `ready` tells whether it took its first reading; one that never starts costs the curve and nothing else.
    """

    def __init__(self, run: results.Run, device: str, phase: str) -> None:
        given: dict[str, Any] = run.where()
        given["phase"] = phase
        given["who"] = identity(device)
        self._heard = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rocmlab.sensors", json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=isolate.child_environment(),
        )

    def __enter__(self) -> Sampler:
        answered = threading.Event()
        threading.Thread(target=self._listen, args=(answered,), daemon=True).start()
        self.ready = answered.wait(START_S) and self._heard == b"ready"
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=3)
        if self._process.poll() is None:
            isolate.end_tree(self._process.pid)

    def _listen(self, answered: threading.Event) -> None:
        for line in self._process.stdout:  # type: ignore[union-attr]
            self._heard = line.strip()
            if self._heard == b"ready":  # what Python's own start prints is passed over; an end is no start
                break
        answered.set()

    def on(self) -> None:
        """Read from now on."""
        self._say(b"on\n")

    def off(self) -> None:
        """Do nothing at all from now on; a reading that has begun is finished first."""
        self._say(b"off\n")

    def _say(self, word: bytes) -> None:
        with contextlib.suppress(OSError):
            self._process.stdin.write(word)  # type: ignore[union-attr]
            self._process.stdin.flush()  # type: ignore[union-attr]


def cost(run: results.Run, device: str, task: Callable[[], Any], *, block_s: float, pairs: int) -> None:
    """Repeat a short task in blocks with and without the sampler, in turns (ABBA); rows go to `sensor_cost`.

    `task` ends synchronised. Each block is longer than one period of the sampler, so each block with it holds readings.
    """
    _calls(task, WARM_S)
    with Sampler(run, device, "cost") as sampler, timing.OtherWork() as others:
        for pair in range(pairs if sampler.ready else 0):
            for sampling in (True, False) if pair % 2 == 0 else (False, True):
                (sampler.on if sampling else sampler.off)()
                calls = _calls(task, max(block_s, 1.1 / HZ))
                run.append("sensor_cost", {"device": device, "pair": pair, "sampling": sampling, "calls_ms": calls})
        sampler.off()
    run.append("sensor_cost", {"device": device, "kind": "conditions", "others_cpu_pct": others.pct})
    if not sampler.ready:
        run.append("sensor_cost", {"device": device, "calls_ms": [], "reason": "the sampler's process did not start"})


def measure_cost(run_dir: str, notebook: str, attempt: str, device: str, block_s: float, pairs: int) -> None:
    """Show what the sampler costs: products so small that launching them takes the time, as in decode."""
    import torch

    square = torch.randn(64, 64, device=torch.device(device))

    def task() -> None:
        for _ in range(20):
            torch.mm(square, square)
        timing.synchronise(device)

    cost(results.Run(Path(run_dir), notebook, attempt), device, task, block_s=block_s, pairs=pairs)


def _calls(task: Callable[[], Any], seconds: float) -> list[float]:
    calls: list[float] = []
    began = late = time.perf_counter()
    while late - began < seconds:
        early = late
        task()
        late = time.perf_counter()
        calls.append(1000 * (late - early))
    return calls


# ---- inside the sampler's process


def _sample(given: dict[str, Any]) -> None:
    run = results.Run(Path(given["run_dir"]), given["notebook"], given["attempt"])
    name, read = source(given["who"])
    working, ended = threading.Event(), threading.Event()
    threading.Thread(target=_obey, args=(working, ended), daemon=True).start()
    print("ready", flush=True)
    head = {"device": given["who"]["device"], "integrated": given["who"]["integrated"], "phase": given["phase"]}
    if read is None:
        run.append("sensors", head | {"t_s": time.time(), "reading_ms": None, **row(None, {})})
        return
    while working.wait() and not ended.is_set():
        began = time.perf_counter()
        found = _quiet(read)
        took = time.perf_counter() - began
        run.append("sensors", head | {"t_s": time.time(), "reading_ms": 1000 * took, **row(name, found)})
        ended.wait(max(0.05, 1 / HZ - (time.perf_counter() - began)))


def _obey(working: threading.Event, ended: threading.Event) -> None:
    for line in sys.stdin:
        (working.set if line.strip() == "on" else working.clear)()
    ended.set()
    working.set()


if __name__ == "__main__":
    _sample(json.loads(sys.argv[1]))
