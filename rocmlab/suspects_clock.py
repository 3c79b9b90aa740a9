"""The suspect that is a clock: one that does not rise, falls with heat, or is held down by a power plan. Pure.

Only the clock of the side that sets the pace can make a step slow: the GPU's where the device binds, the CPU core's
where the host does. What it costs is an upper bound: work that shortens in proportion to the clock.
"""

from __future__ import annotations

from typing import Any

from rocmlab import clock_readings, conditions, curves, drift, words
from rocmlab.clock_readings import Clock, Fall
from rocmlab.clues import Clues, Row, Span
from rocmlab.suspects import SHARE, Text, Verdict, by_share, ms, pct, refuted, supported, undecided

SUSPECT = "clocks"
POWER_CODES = ("POWER_SAVING", "ON_BATTERY")
RECORDS = ("lengths", "generation", "batches", "sensors", "snapshot")
NOTHING = dict.fromkeys(words.LANGUAGES, "")


def clocks(clues: Clues) -> Verdict:
    """Judge clocks that do not rise under load, fall with heat, or are held down by a power plan."""
    lanes = _lanes(clues)
    kept: dict[str, Any] = {"records": RECORDS, "grade": "D", "step_ms": clues.step.ms if clues.step else None}
    told: dict[str, Any] = {"why": why(clues), "kept": steady(clues), "idle": _idle(clues, lanes)}
    slowed = slowing(clues)
    if slowed and _is_throttling(clues, slowed):
        found = _falls(clues, slowed, told, kept)
        if found:
            return found
    known = {lane: _clocks(clues, lane) for lane in lanes}
    if any(one.is_low for lane in lanes for one in known[lane]):
        return _low(clues, known, told, kept)
    if slowed and not _is_throttling(clues, slowed):
        return undecided(
            SUSPECT, "04", wording="slowed", first=ms(slowed.first_ms), last=ms(slowed.last_ms), **told, **kept
        )
    every = [one for lane in lanes for one in known[lane]]
    told["clocks"] = listed(every)
    if all(_cleared(known[lane], lane) for lane in lanes):
        return refuted(SUSPECT, "full", span=Span(0.0, 0.0, 0.0), **told, **kept)
    return _open(clues, lanes, every, told, kept)


def _lanes(clues: Clues) -> tuple[str, ...]:
    """Return the side whose clock sets the pace; both where that is not known."""
    if clues.on_cpu or clues.binds("host") is True:
        return ("host",)
    return ("device",) if clues.binds("device") is True else ("device", "host")


def _clocks(clues: Clues, lane: str) -> list[Clock]:
    ways = (clock_readings.host,) if lane == "host" else (clock_readings.device, clock_readings.memory)
    return [one for one in (way(clues) for way in ways) if one]


def _cleared(found: list[Clock], lane: str) -> bool:
    """Tell whether all that is known is near its highest; the memory's clock alone does not clear a card."""
    return any(one.name == lane for one in found) and all(one.is_full for one in found)


# ---- low under load


def _low(clues: Clues, known: dict[str, list[Clock]], told: dict[str, Any], kept: dict[str, Any]) -> Verdict:
    """Return the verdict on a low clock: by what it costs, where it is known which side sets the pace."""
    lane = next(name for name, found in known.items() if any(one.is_low for one in found))
    told |= {"clocks": listed([one for found in known.values() for one in found])}
    cost = lost(clues, lane, known[lane])
    steady_clock = clock_readings.steady_load(clues) if lane == "device" else None
    only_cores = all(one.name == "device" for one in known[lane] if one.is_low)
    if steady_clock and steady_clock.is_full and only_cores:  # between texts a card may rest before it is read
        return undecided(SUSPECT, "04", "10", wording="rests", steady=listed([steady_clock]), **told, **kept)
    if cost is None or len(known) > 1:
        return undecided(SUSPECT, "11", wording="low_open", **told, **kept)
    return by_share(
        clues, SUSPECT, lane, cost, grade="D", records=(*RECORDS, "step"), notebooks=("04",), wording="low", **told
    )


def lost(clues: Clues, lane: str, found: list[Clock]) -> Span | None:
    """Return by how much the step would shorten at most if the low clocks were at their highest.

    What a device does beyond moving the bytes goes with the clock of its cores, moving them with the memory's.
    """
    floor = clues.part("device", "memory_floor") or Span(0.0, 0.0, 0.0)
    of_lane = clues.device_ms if lane == "device" else clues.quantity("H")
    work = clues.step if clues.on_cpu else of_lane
    if work is None:
        return None
    beyond = work if lane == "host" and not clues.on_cpu else _less(work, floor)
    total = Span(0.0, 0.0, 0.0)
    for one in found:
        if one.is_low:
            part = floor if one.name == "memory" else beyond
            share = one.share
            total += Span(part.ms * (1 - share.ms), part.low * (1 - share.high), part.high * (1 - share.low))
    most = clues.step or total  # the host's work measured apart may be a little longer than the step
    return Span(*(min(end, most.ms) for end in (total.ms, total.low, total.high)))


def _less(work: Span, floor: Span) -> Span:
    ends = (work.ms - floor.ms, work.low - floor.high, work.high - floor.low)
    return Span(*(max(0.0, one) for one in ends))


# ---- slower at the end


def slowing(clues: Clues) -> Fall | None:
    """Return the first series of equal steps of notebook 04 that got slower, with the clock beside it."""
    rows = clues.table("lengths")
    key = "host_mhz" if clues.on_cpu else "sclk_mhz"
    for length in _lengths(rows):
        calls = curves.gaps_ms(rows, length)
        if drift.slowing(calls):
            return clock_readings.fall(calls, [r["sensor"] for r in _steady(rows, length) if r.get("sensor")], key)
    return None


def _is_throttling(clues: Clues, slowed: Fall) -> bool:
    """Tell whether the clock fell with the speed, or, where no clock is told, the driver itself names heat."""
    named = clock_readings.limits(clock_readings.beside_decode(clues))
    return slowed.by_clock if slowed.by_clock is not None else "heat" in named


def _falls(clues: Clues, slowed: Fall, told: dict[str, Any], kept: dict[str, Any]) -> Verdict | None:
    """Return the verdict on a step that got slower as the clock fell; None where that is less than a tenth of it."""
    base = clues.step.ms if clues.step else slowed.last_ms
    span = Span(*(base * end for end in (slowed.lost.ms, slowed.lost.low, slowed.lost.high)))
    fell = NOTHING
    if slowed.by_clock:
        fell = words.both("verdict_clock_fell", before=_mhz(slowed.before_mhz), after=_mhz(slowed.after_mhz))
    told = told | {"first": ms(slowed.first_ms), "last": ms(slowed.last_ms), "share": pct(slowed.lost.ms), "fell": fell}
    if slowed.lost.low >= SHARE:
        return supported(SUSPECT, "falls", span=span, **told, **kept)
    if slowed.lost.high < SHARE:
        return None
    return undecided(SUSPECT, "04", wording="falls_wide", span=span, **told, **kept)


def _steady(rows: list[Row], length: int) -> list[Row]:
    mine = [r for r in rows if r.get("kind") == "hand" and r.get("visit") == "steady" and r.get("process") == 0]
    return [r for r in mine if r.get("length") == length]


def _lengths(rows: list[Row]) -> list[int]:
    return sorted({r["length"] for r in rows if r.get("kind") == "hand" and r.get("visit") == "steady"})


# ---- nothing to tell it by


def _open(
    clues: Clues, lanes: tuple[str, ...], every: list[Clock], told: dict[str, Any], kept: dict[str, Any]
) -> Verdict:
    """Return the undecided verdict that says what is missing: a clock, a highest clock, a calm plan, any series."""
    saving = plan(clues)
    if every and all(any(one.name == lane and one.known for one in every) for lane in lanes):
        return undecided(SUSPECT, "04", wording="edge", **told, **kept)
    if saving:
        return undecided(SUSPECT, "04", wording="plan", plan=saving, **told, **kept)
    if not any(told["kept"].values()):
        return undecided(SUSPECT, "04", **kept)
    missing = [lane for lane in lanes if not any(one.name == lane and one.known for one in every)]
    who = {lang: words.word("list_or", lang).join(words.word(f"verdict_whose_{x}", lang) for x in missing)
           for lang in words.LANGUAGES}  # fmt: skip
    return undecided(SUSPECT, "04", wording="held", who=who, **told, **kept)


# ---- words


def plan(clues: Clues) -> Text | None:
    """Return the name of the power plan that saves, or the battery; None where neither is in use."""
    power = [one for one in conditions.power(clues.snapshot) if one["code"] in POWER_CODES]
    if not power:
        return None
    name = power[0]["words"].get("plan")
    return words.both("verdict_battery") if name is None else words.both("verdict_plan_name", plan=name)


def listed(found: list[Clock]) -> Text:
    """Write clocks for a sentence: each under load, against its highest."""
    made = {}
    for lang in words.LANGUAGES:
        told = []
        for one in found:
            key = "verdict_clock_of" if one.known else "verdict_clock_seen"
            given = {"mhz": _mhz(one.mhz), "most": _mhz(one.most), "share": pct(one.share.ms)}
            told.append(words.word(key, lang, who=words.word(f"verdict_clock_{one.name}", lang), **given))
        made[lang] = words.word("list_comma", lang).join(told)
    return made


def why(clues: Clues) -> Text:
    """Say what the driver, power, temperature and plan tell beside a clock; "" where nothing does."""
    rows = clock_readings.busy(clues, clock_readings.beside_decode(clues))
    named, warm, saving = sorted(clock_readings.limits(rows)), clock_readings.highest_c(rows), plan(clues)
    made = {}
    for lang in words.LANGUAGES:
        limits = words.word("list_comma", lang).join(words.word(f"verdict_limit_{one}", lang) for one in named)
        told = [words.word("verdict_held_by", lang, names=limits)] if named else []
        told += [words.word("verdict_warm", lang, temp=f"{warm:.0f}")] if warm is not None else []
        told += [words.word("verdict_plan_is", lang, plan=words.pick(saving, lang))] if saving else []
        made[lang] = "".join(told)
    return made


def steady(clues: Clues) -> Text:
    """Say how many steps in a row kept their speed; "" where no series is long enough."""
    rows = clues.table("lengths")
    series = [curves.gaps_ms(rows, length) for length in _lengths(rows)]
    count = sum(len(one) for one in series if len(one) >= drift.MIN_CALLS and not drift.slowing(one))
    return words.both("verdict_kept", count=count) if count else NOTHING


def _idle(clues: Clues, lanes: tuple[str, ...]) -> Text:
    found = clock_readings.idle(clues) if lanes == ("host",) else None
    if found is None:
        return NOTHING
    given = {"mhz": _mhz(found["mhz"]), "most": _mhz(found["most"]), "use": f"{found['use']:.0f}"}
    return words.both("verdict_idle_clock", **given)


def _mhz(value: float | None) -> str:
    return words.NONE if value is None else f"{value:,.0f}"
