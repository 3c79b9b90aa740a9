"""Which clocks ran under load, how high could they go, and what held them down? Pure: sensor readings in.

A GPU that has little to do lowers its clock, so only readings of a busy one count. `device`, `memory` and `host` give a
Clock each: of the GPU's cores, of its memory, and of the CPU core at work; None where no source told it.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from rocmlab import sensor_judges, timing
from rocmlab.clues import Clues, Row, Span
from rocmlab.rates import is_number

BUSY_PCT = 70.0  # of the time in use: below, a low clock may only mean that there is little to do
LEAST = 3  # readings
FULL = 0.8  # of the highest clock: boost rules keep processors under load within a fifth of it
# Of the highest clock, what is low. A CPU's highest is that of one core alone; with all at work it may lie far below.
LOW = {"device": 0.8, "memory": 0.8, "host": 0.6}
TABLES = ("lengths", "generation", "batches")  # those whose readings stand beside a decode step


@dataclass(frozen=True)
class Clock:
    """A clock under load in MHz, its highest, and its share of that; `known`: not only the highest that was seen."""

    name: str
    mhz: float
    most: float
    share: Span
    known: bool

    @property
    def is_full(self) -> bool:
        return self.known and self.share.low >= FULL

    @property
    def is_low(self) -> bool:
        return self.share.high < LOW[self.name]


def beside_decode(clues: Clues) -> list[Row]:
    """Return the readings of the device under study that were taken between texts and steps."""
    rows = [row for name in TABLES for row in clues.table(name) if row.get("device") == clues.device]
    return [row["sensor"] for row in rows if isinstance(row.get("sensor"), dict)]


def busy(clues: Clues, readings: list[Row]) -> list[Row]:
    """Return the readings of a device that works most of the time, by its own word, else by the ledger."""
    step, work = clues.step, clues.device_ms
    always = step is not None and work is not None and 100 * work.low >= BUSY_PCT * step.high
    found = []
    for one in readings:
        use = one.get("use_percent")
        if use >= BUSY_PCT if is_number(use) else always:
            found.append(one)
    return found


def heavy(clues: Clues) -> list[Row]:
    """Return the readings under the steady load of notebook 10, which is harder on a card than decode."""
    rows = [row for row in clues.table("sensors") if row.get("phase") == "sustained"]
    return busy(clues, [row for row in rows if row.get("device") == clues.device])


def device(clues: Clues) -> Clock | None:
    """Return the clock of the GPU's cores while it works."""
    read = beside_decode(clues)
    found = _clock("device", busy(clues, read), "sclk_mhz", "sclk_max_mhz", clues.boost_mhz, read)
    if found is None:
        found = steady_load(clues)
        return found if found and found.is_full else None  # there a power limit may lower it, as decode never does
    return found


def steady_load(clues: Clues) -> Clock | None:
    """Return the clock of the GPU's cores under the steady load of notebook 10, read from another process."""
    return _clock("device", heavy(clues), "sclk_mhz", "sclk_max_mhz", clues.boost_mhz, [])


def memory(clues: Clues) -> Clock | None:
    """Return the clock of the card's memory while it works."""
    return _clock("memory", busy(clues, beside_decode(clues)), "mclk_mhz", "mclk_max_mhz", None, [])


def host(clues: Clues) -> Clock | None:
    """Return the clock of the CPU core that had just worked on a text, or had handed over its steps."""
    return _clock("host", beside_decode(clues), "host_mhz", "host_max_mhz", None, [])


def _clock(name: str, rows: list[Row], key: str, key_most: str, stated: float | None, seen: list[Row]) -> Clock | None:
    """Return a clock against the highest that the source gives, else the stated one, else the highest of `seen`."""
    read = sensor_judges.values(rows, key)
    if len(read) < LEAST:
        return None
    given = max(sensor_judges.values(rows, key_most), default=None) or stated
    most = given or max(sensor_judges.values(seen, key), default=None)
    if not most:
        return None
    middle = timing.median_interval(read)
    assert middle is not None
    share = Span(*(min(1.0, mhz / most) for mhz in (middle.median, middle.low, middle.high)))
    return Clock(name, middle.median, most, share, known=bool(given))


# ---- what holds it down


def limits(rows: list[Row]) -> set[str]:
    """Return "heat", "power" or "throttled" as the driver names it in most of the readings, and "power" at the cap."""
    told = [one["limited_by"] for one in rows if isinstance(one.get("limited_by"), list)]
    kinds = [{_kind(name) for name in one} for one in told]
    found = {kind for kind in ("heat", "power", "throttled") if 2 * sum(kind in one for one in kinds) > len(kinds)}
    pairs = [(one["power_w"], one["power_cap_w"]) for one in rows if one.get("power_w") and one.get("power_cap_w")]
    at_cap = sum(power >= sensor_judges.AT_CAP * cap for power, cap in pairs)
    return found | ({"power"} if pairs and 2 * at_cap > len(pairs) else set())


def _kind(name: str) -> str:
    return "heat" if "heat" in name else "power" if "power" in name else "throttled"


def highest_c(rows: list[Row]) -> float | None:
    return max(sensor_judges.values(rows, "temp_c"), default=None)


def idle(clues: Clues) -> dict[str, float] | None:
    """Return {mhz, most, use} of a GPU whose clock is low while it has little to do; None where that is not so."""
    rows = [one for one in beside_decode(clues) if is_number(one.get("use_percent")) and is_number(one.get("sclk_mhz"))]
    if len(rows) < LEAST or clues.on_cpu:
        return None
    use, mhz = (statistics.median(sensor_judges.values(rows, key)) for key in ("use_percent", "sclk_mhz"))
    most = max(sensor_judges.values(rows, "sclk_max_mhz"), default=None) or clues.boost_mhz
    return {"mhz": mhz, "most": most, "use": use} if most and use < BUSY_PCT and mhz < FULL * most else None


@dataclass(frozen=True)
class Fall:
    """One series that slowed: medians of its first and last third in ms, the share of the last that was lost, and the
    clock in MHz before and after (None: not told)."""

    first_ms: float
    last_ms: float
    lost: Span
    before_mhz: float | None
    after_mhz: float | None

    @property
    def by_clock(self) -> bool | None:
        """Tell whether the clock fell too; None where no clock was told."""
        if self.before_mhz is None or self.after_mhz is None:
            return None
        return 100 * (1 - self.after_mhz / self.before_mhz) >= FALLS_PCT


FALLS_PCT = 3.0  # of the clock, as in drift


def fall(calls: list[float], readings: list[Row], key: str) -> Fall:
    """Compare the thirds of a series that is known to have slowed, and the clock `key` beside them."""
    ends = [timing.median_interval(part) for part in (calls[: len(calls) // 3], calls[-(len(calls) // 3) :])]
    first, last = ends
    assert first is not None and last is not None
    lost = [
        1 - early / late
        for early, late in ((first.median, last.median), (first.high, last.low), (first.low, last.high))
    ]
    clocks = sensor_judges.values(readings, key)
    third = max(1, len(clocks) // 3)
    told = [statistics.median(part) for part in (clocks[:third], clocks[-third:])] if len(clocks) > 1 else [None, None]
    return Fall(first.median, last.median, Span(*(max(0.0, one) for one in lost)), told[0], told[1])
