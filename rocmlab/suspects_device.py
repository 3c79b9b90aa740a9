"""Suspects that are the device's own work: bandwidth, slow products, attention, many small operators. Pure.

Each takes the clues and returns a Verdict; the rule for a part of the step is suspects.by_share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocmlab import attention_tables, curves, words
from rocmlab.batch_judges import BOUND_PCT, FAR_PCT
from rocmlab.clues import Clues, Row, Span, median, of_samples
from rocmlab.rates import is_number
from rocmlab.roof import SPOILS_PCT
from rocmlab.suspects import SHARE, Verdict, by_share, ms, pct, refuted, supported, undecided, within

PRODUCTS = ("linear",)
ATTENTION = ("sdpa", "attention")
ONE_CORE = 0.8  # of the time with one thread: more threads that save less than this use one core
CONTEXT = 64  # where the ledger does not say at which context it measured


def bandwidth(clues: Clues) -> Verdict:
    """Judge how near the step is to the time in which its bytes can be moved."""
    step, floor = clues.step, clues.part("device", "memory_floor")
    records: tuple[str, ...] = ("step", "ceiling")
    if step is None or floor is None:
        step, floor = _floor_of_lengths(clues)
        records = ("lengths", "ceiling")
    if clues.roof.gb_s is None and (clues.step or curves.steady(clues.table("lengths"))["tpot_ms"].notna().any()):
        return undecided("bandwidth", "04", wording="no_roof", why=clues.roof.reason, records=records)
    if step is None or floor is None:
        return undecided("bandwidth", "04", "11", records=records)
    share = 100 * floor.ms / step.ms
    told: dict[str, Any] = {
        "ms": ms(floor),
        "step": ms(step),
        "share": f"{share:.0f}%",
        "roof": words.number(clues.roof.gb_s, "GB/s"),
    }
    kept: dict[str, Any] = {
        "records": records,
        "step_ms": step.ms,
        "grade": clues.grade("device", "memory_floor") or "D",
    }
    if 100 * floor.low / step.high >= BOUND_PCT:
        return supported("bandwidth", span=floor, **told, **kept)
    if 100 * floor.high / step.low <= FAR_PCT:
        return refuted("bandwidth", span=floor, **told, **kept)
    return undecided("bandwidth", "11", wording="between", span=floor, **told, **kept)


def _floor_of_lengths(clues: Clues) -> tuple[Span | None, Span | None]:
    """Return (step, floor) by notebook 04 at its shortest prompt, where the ledger has none."""
    frame = curves.steady(clues.table("lengths"))
    head: Row = next((row for row in clues.table("lengths") if row.get("kind") == "hand"), {})
    roof = clues.roof.gb_s
    if frame.empty or not roof:
        return None, None
    short = frame[frame["length"] == frame["length"].min()]
    step = of_samples(list(short["tpot_ms"]))
    moved = curves.bytes_a_token(head, float(short["context"].iloc[0]))
    floor = moved / roof / 1e6 if moved else None
    return step, Span(floor, floor, floor) if floor else None


# ---- operators timed apart (06)


def excess(clues: Clues, wanted: Callable[[Row], bool]) -> Span | None:
    """Return the time a token above the memory floor of some operators of 06.

    Timed alone, operators also take what overlaps inside a step: where all of them together exceed the lane's own
    excess, each has its share of that, so that suspects never add up to more than there is. None where 06 has no such
    operator or no bandwidth was measured.
    """
    total, every = _above_floor(clues, wanted), _above_floor(clues, lambda row: True)
    lane = clues.part("device", "excess")
    if total is None or every is None or lane is None or lane.ms >= every.ms:
        return total
    part = total.ms / every.ms if every.ms else 0.0
    return Span(*(part * max(0.0, end) for end in (lane.ms, lane.low, lane.high)))


def _above_floor(clues: Clues, wanted: Callable[[Row], bool]) -> Span | None:
    roof = clues.roof.gb_s
    rows = [
        row for row in clues.table("shapes") if row.get("operator") and row.get("phase") == "decode" and wanted(row)
    ]
    spans = [(row, of_samples(row.get("samples_ms"))) for row in rows]
    known = [(row, one) for row, one in spans if one]
    if not roof or not known:
        return None
    total = Span(0.0, 0.0, 0.0)
    for row, one in known:
        floor, count = (row.get("bytes") or 0) / roof / 1e6, _count(row)
        total += Span(*(count * max(0.0, end - floor) for end in (one.ms, one.low, one.high)))
    return total


def _worst(clues: Clues, wanted: Callable[[Row], bool]) -> tuple[str, float | None]:
    """Return the operator with the most time above its floor, and its share of the memory roof (0 to 1)."""
    found, roof = [], clues.roof.gb_s or 0.0
    for row in clues.table("shapes"):
        one = median(row.get("samples_ms"))
        if row.get("phase") == "decode" and wanted(row) and one:
            floor = (row.get("bytes") or 0) / roof / 1e6 if roof else 0.0
            found.append((_count(row) * (one - floor), str(row.get("name")), floor / one))
    return max(found)[1:] if found else ("", None)


def _count(row: Row) -> float:
    """Return how often a step calls an operator: some are timed that it does not call."""
    return float(row["count"]) if is_number(row.get("count")) else 1.0


def _is(*operators: str) -> Callable[[Row], bool]:
    return lambda row: row.get("operator") in operators


def _operators(clues: Clues, suspect: str, wanted: Callable[[Row], bool]) -> Verdict:
    busy = [r["others_cpu_pct"] for r in clues.table("shapes") if is_number(r.get("others_cpu_pct"))]
    if busy and max(busy) > SPOILS_PCT:
        return undecided(suspect, "06", wording="disturbed_operators", records=("shapes",), pct=f"{max(busy):.0f}%")
    if clues.texts != 1:
        return undecided(suspect, "11", wording="one_text", records=("shapes",), texts=f"{clues.texts:,}")
    if clues.roof.gb_s is None and clues.table("shapes"):
        return undecided(suspect, "04", wording="no_roof", why=clues.roof.reason, records=("shapes", "ceiling"))
    name, reached = _worst(clues, wanted)
    cores = one_core(clues) if suspect == "slow_products" else None
    return by_share(
        clues, suspect, "device", excess(clues, wanted), records=("shapes", "ceiling"), notebooks=("06",),
        grade=next((row.get("grade") for row in clues.table("shapes") if row.get("operator") and wanted(row)), None),
        wording="supported_cpu" if cores else "supported", worst=name, reached=pct(reached), cores=cores,
    )  # fmt: skip


def one_core(clues: Clues) -> dict[str, str] | None:
    """Say, on a CPU, whether the product of one row that was timed uses more than one core; None on a GPU."""
    if not clues.on_cpu:
        return None
    times = one_row_times(clues)
    if times is None:
        return dict.fromkeys(words.LANGUAGES, "")
    key = "verdict_one_core" if times["one_core"] else "verdict_many_cores"
    return words.both(key, **times | {end: ms(times[end]) for end in ("alone", "every")})


def one_row_times(clues: Clues) -> dict[str, Any] | None:
    """Return {name, threads, alone, every, one_core} of the product of one row that was timed with one thread and with
    all (in ms); None where it was not."""
    rows = [row for row in clues.table("one_row") if row.get("way") == "as_it_is" and is_number(row.get("threads"))]
    times = {row["threads"]: median(row.get("samples_ms")) for row in rows}
    most = max(times, default=1)
    alone, every = times.get(1), times.get(most)
    if most < 2 or not alone or not every:
        return None
    found = {"name": rows[0].get("name") or words.NONE, "threads": most, "alone": alone, "every": every}
    return found | {"one_core": every > ONE_CORE * alone}


def slow_products(clues: Clues) -> Verdict:
    """Judge matrix products that move their weights far below the memory's speed."""
    return _operators(clues, "slow_products", _is(*PRODUCTS))


def small_operators(clues: Clues) -> Verdict:
    """Judge everything that is neither a product nor attention: norms, rotary embedding, copies, elementwise."""
    return _operators(clues, "small_operators", lambda row: row.get("operator") not in (*PRODUCTS, *ATTENTION))


def attention(clues: Clues) -> Verdict:
    """Judge the attention path that the default takes against the best that runs here, in the lane that binds."""
    if clues.texts != 1 and clues.table("attention"):
        return undecided("attention", "11", wording="one_text", records=("attention",), texts=f"{clues.texts:,}")
    gap = attention_gap(clues)
    if gap is None:
        return undecided("attention", "09", records=("attention",))
    told = {"default": gap["default"] or words.NONE, "best": gap["best"]}
    step = clues.step
    if gap["alone"] and step and gap["span"].high >= SHARE * step.low:
        span = within(gap["span"], step)
        given: dict[str, Any] = {"span": span, "step_ms": step.ms, "grade": gap["grade"]}
        told |= {"ms": ms(span), "step": ms(step), "share": pct(span.ms / step.ms)}
        return undecided("attention", "09", wording="alone", records=("attention",), **told, **given)
    return by_share(
        clues, "attention", gap["lane"], gap["span"], grade=gap["grade"], records=("attention",), notebooks=("09",),
        **told,
    )  # fmt: skip


def attention_gap(clues: Clues) -> dict[str, Any] | None:
    """Return {span, default, best, lane, grade, alone}: what the default takes a step beyond the best path here.

    At the length nearest the ledger's context. Where the host binds it is the host's time that counts, since paths
    differ in what they launch. `alone`: no other path runs, so the best is reading the bytes at the memory's speed.
    """
    rows = clues.table("attention")
    cases = attention_tables.usual(attention_tables.own(rows), "decode")
    context = ((clues.account or {}).get("subject") or {}).get("context") or CONTEXT
    length = min({row["length"] for row in cases}, key=lambda one: abs(one - context), default=None)
    here = [row for row in cases if row["length"] == length]
    ran = attention_tables.works(here)
    if "default" not in ran:
        return None
    of_host = clues.binds("host") is True and not clues.on_cpu and all(r.get("host_samples_ms") for r in ran.values())
    times = {name: of_samples(row["host_samples_ms" if of_host else "samples_ms"]) for name, row in ran.items()}
    mine, head = times["default"], ran["default"]
    took = attention_tables.path(head, rows, here)
    others = {
        name: one for name, one in times.items() if name in attention_tables.FORCED and name != took["path"] and one
    }
    if mine is None or not (others or clues.roof.gb_s):
        return None
    floor = attention_tables.bytes_moved(head) / (clues.roof.gb_s or 1.0) / 1e6
    best = min(others, key=lambda name: others[name].ms) if others else words.NONE
    least = others.get(best) or Span(floor, floor, floor)
    ends = (mine.ms - least.ms, mine.low - least.high, mine.high - least.low)
    span = Span(*(head["layers"] * max(0.0, end) for end in ends))
    lane = "host" if of_host else "device"
    grade = head.get("evidence_grade")
    return {"span": span, "default": took["path"], "best": best, "lane": lane, "grade": grade, "alone": not others}
