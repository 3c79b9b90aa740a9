"""The bench on which `rocmlab selftest` plants its faults: five numbers of a decode step, clean and with each fault.

On a GPU the host is the enqueue of one step into an empty queue and the device is a few layers behind a spin. On a CPU
the host is the tiny-width twin's step and the device what the step takes beyond it; there the clock is the thread's own
processor time where the system counts it finely, so that other programs do not enter.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from typing import Any

from rocmlab import clock, faults, models, prefilled, rig, timing, twin

CONTEXT = 32
CLEAN, PAIRS = 9, 7
GIVEN = 5.0  # a dose against the spread of its number; LEFT must be left when it comes to judging
LEFT = 3.0
TRIES = 3  # a machine may become unsteady between the clean samples and the fault: then the dose is raised
LEAST_SHARE = 0.1  # and against the step
DEPTH = 4  # layers behind a spin: few enough for any launch queue
NARROW = 3  # a twin must be this much narrower than the model, to have almost none of the work
FAULTS = ("control", "host_delay", "device_work", "fallback", "compile_every_shape")
NUMBER = {"host_delay": "host", "device_work": "device", "fallback": "foreign", "compile_every_shape": "visit"}


def measure(model: str, arm: dict[str, str]) -> dict[str, Any]:
    """Measure the numbers clean, then each fault in turns with the clean step; return raw samples (ms, counts)."""
    import torch

    where, dtype = arm["device"], arm["dtype"]
    timing.use(where)
    torch.set_num_threads(1)  # nothing here depends on speed, and one thread is steadier beside other programs
    loaded = models.load(model, where, dtype).model
    with torch.inference_mode(), timing.OtherWork() as others:
        bench = Bench(loaded, where, dtype)
        for _ in range(2):
            bench.numbers()
        clean = [bench.numbers() for _ in range(CLEAN)]
        base = {name: [one[name] for one in clean] for name in clean[0]}
        made = [bench.plant(name, base) for name in FAULTS]
    head = {"device": where, "dtype": dtype, "model_spec": model, "layers": bench.layers, "depth": bench.depth}
    return head | {"narrow": bench.narrow, "others_cpu_pct": others.pct, "clean": base, "faults": made}


def fine() -> bool:
    """Tell whether the system counts a thread's time finely; Windows does so in ticks of 15 ms."""
    return time.get_clock_info("thread_time").resolution <= 1e-5


class Bench:
    """A model, on a CPU its twin, and the five numbers that faults move."""

    def __init__(self, model: Any, where: str, dtype: str) -> None:
        self.model, self.where, self.dtype = model, where, dtype
        self.layers, self.width = model.config.num_hidden_layers, model.config.hidden_size
        self.depth = min(DEPTH, self.layers)
        self.now = time.thread_time if where == "cpu" and fine() else time.perf_counter
        self.rig = rig.ready(model, where, CONTEXT)
        self.twin: rig.Rig | None = None
        self.narrow = True
        if where == "cpu":
            self.twin = rig.ready(twin.make(model, where, dtype), where, CONTEXT)
            self.narrow = self.width >= NARROW * self.twin.model.config.hidden_size
        else:
            self.rate = prefilled.cycles_a_ms(where)
            self.events = clock.choose(clock.qualify(where)).clock == clock.EVENTS
            with twin.shallow(model, self.depth):
                self.few = rig.ready(model, where, CONTEXT)

    def numbers(self, forget: Callable[[], None] = lambda: None) -> dict[str, float]:
        """Return T, host, device, visit in ms and the count foreign. `forget` makes every shape new again."""
        forget()
        first, second, whole = (rig.stamped(self.rig, 1, self.now)["ms"] for _ in range(3))
        if self.twin:
            rig.stamped(self.twin, 1)
            host = rig.stamped(self.twin, 1, self.now)["ms"]
            device = whole - host
        else:
            host, device = rig.queued(self.rig, 1)["enqueue_ms"], self._queued()
        elsewhere = faults.foreign(lambda: rig.step(self.rig), self.where, self.dtype)
        rig.back(self.rig, 1)
        return {"T": whole, "host": host, "device": device, "foreign": elsewhere, "visit": first - second}

    def _queued(self) -> float:
        """Return the device time of a few layers behind a spin."""
        with twin.shallow(self.model, self.depth):
            spin_ms = max(10.0, 4 * rig.queued(self.few, 1)["enqueue_ms"])
            found = prefilled.read(self.where, lambda: rig.step(self.few), spin_ms, self.rate, self.events)
            rig.back(self.few, 1)
        return found["ms"]

    def plant(self, name: str, base: dict[str, list[float]]) -> dict[str, Any]:
        """Measure one fault in turns with the clean step; again with a larger dose where the clean steps beside it
        scattered more than those before. Pairs are [clean, planted]."""
        wanted = self._dose(name, base)
        for _ in range(TRIES):
            made = self._planted(name, wanted)
            beside = {key: [clean for clean, _ in pairs] for key, pairs in made["pairs"].items()}
            needed = self._dose(name, beside)
            if LEFT / GIVEN * needed <= wanted:
                break
            wanted = needed
        return made

    def _planted(self, name: str, wanted: float) -> dict[str, Any]:
        """Measure one fault of one dose; `dose` is that of a whole step, as the fault itself timed it where it can."""
        fault, forget = self._fault(name, wanted)
        pairs: dict[str, list[list[float]]] = {}
        for place in range(-1, PAIRS):
            clean = self.numbers()
            with self._everywhere(fault, first_only=name == "compile_every_shape"):
                planted = self.numbers(forget)
            for key in clean if place >= 0 else ():  # the first pair warms what the fault needs
                pairs.setdefault(key, []).append([clean[key], planted[key]])
        own = getattr(fault, "times_ms", {}).get(self.width)
        times = 1 if name == "compile_every_shape" else self.layers
        given = statistics.median(own) * times if own else wanted
        return {"name": name, "number": NUMBER.get(name), "dose": given, "pairs": pairs}

    @contextlib.contextmanager
    def _everywhere(self, fault: faults.Fault, first_only: bool) -> Any:
        """Plant a fault in the model and in its twin: it lies in the code, whatever the width."""
        with contextlib.ExitStack() as stack:
            for model in (self.model, *([self.twin.model] if self.twin else [])):
                stack.enter_context(faults.planted(model, fault, first_only))
            yield

    def _dose(self, name: str, base: dict[str, list[float]]) -> float:
        """Return the dose of a whole step: ms, or a count of operators."""
        if name == "control":
            return 0.0
        if name == "fallback":
            return float(self.layers)
        number = base[NUMBER[name]]
        if name == "device_work" and self.where != "cpu":  # only a few layers of it stand behind the spin
            number = [one * self.layers / self.depth for one in number]
        return dose(number, base["T"])

    def _fault(self, name: str, whole: float) -> tuple[faults.Fault, Callable[[], None]]:
        each = whole / self.layers
        if name == "compile_every_shape":
            made = faults.CompileEveryShape(faults.functions_for(whole, self.now), self.now)
            return made, made.seen.clear
        if name == "device_work" and self.where == "cpu":
            return faults.CpuWork(faults.share_for(each, self.width, self.now), self.now), _nothing
        if name == "device_work":
            return faults.device_spin(round(each * self.rate)), _nothing
        others = {"host_delay": faults.host_delay(each, self.now), "fallback": faults.fallback}
        return others.get(name, faults.nothing), _nothing


def _nothing() -> None:
    """Forget nothing: the fault has no memory."""


def spread(samples: list[float]) -> float:
    """Return the interquartile range of samples, in their unit."""
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return high - low


def dose(number: list[float], step: list[float]) -> float:
    """Return a dose in ms: five times the spread of its number and of the step, so that 0 ms of T can be told from it,
    and a tenth of the step."""
    return max(GIVEN * spread(number), GIVEN * spread(step), LEAST_SHARE * statistics.median(step))
