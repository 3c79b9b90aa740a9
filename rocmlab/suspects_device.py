"""Suspects that cost the device's time: bandwidth, slow products, dtype, attention, small operators, size, clocks,
spilled memory. Pure.

Each takes the clues and returns a Verdict; the rule for a part of the step is suspects.by_share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocmlab import ceiling, conditions, curves, drift, words
from rocmlab.batch_judges import BOUND_PCT, FAR_PCT
from rocmlab.clues import Clues, Row, Span, median, of_samples
from rocmlab.rates import is_number
from rocmlab.suspects import SHARE, Verdict, by_share, ms, not_applicable, pct, refuted, supported, undecided

PRODUCTS = ("linear",)
ATTENTION = ("sdpa", "attention")
BACKENDS = ("math", "flash", "efficient", "cudnn")
EMULATED = 0.8  # of float32's rate: a narrower type that is slower than this is converted, not computed
EMULATED_OF_FLOAT16 = 0.5  # bfloat16 of float16's rate
ROOM = 0.5  # of the step: a device that works less than this could do twice the work in the same time
WIDER_FREE, WIDER_DEAR = 1.25, 1.75  # times the step for a model twice as wide


def bandwidth(clues: Clues) -> Verdict:
    """Judge how near the step is to the time in which its bytes can be moved."""
    step, floor = clues.step, clues.part("device", "memory_floor")
    records: tuple[str, ...] = ("step", "ceiling")
    if step is None or floor is None:
        step, floor = _floor_of_lengths(clues)
        records = ("lengths", "ceiling")
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
    """Return the time a token above the memory floor of some operators of 06, never more than the lane's own excess.

    None where 06 has no such operator or no bandwidth was measured.
    """
    roof = clues.roof.gb_s
    rows = [row for row in clues.table("shapes") if row.get("phase") == "decode" and wanted(row)]
    spans = [(row, of_samples(row.get("samples_ms"))) for row in rows]
    known = [(row, one) for row, one in spans if one]
    if not roof or not known:
        return None
    total = Span(0.0, 0.0, 0.0)
    for row, one in known:
        floor, count = (row.get("bytes") or 0) / roof / 1e6, row.get("count") or 1
        total += Span(*(count * max(0.0, end - floor) for end in (one.ms, one.low, one.high)))
    lane = clues.part("device", "excess")
    if lane and lane.ms < total.ms:  # timed alone, an operator may also take what overlaps inside a step
        return Span(lane.ms, min(lane.low, total.low), lane.high)
    return total


def _worst(clues: Clues, wanted: Callable[[Row], bool]) -> tuple[str, float | None]:
    """Return the operator with the most time above its floor, and its share of the memory roof (0 to 1)."""
    found, roof = [], clues.roof.gb_s or 0.0
    for row in clues.table("shapes"):
        one = median(row.get("samples_ms"))
        if row.get("phase") == "decode" and wanted(row) and one:
            floor = (row.get("bytes") or 0) / roof / 1e6 if roof else 0.0
            found.append(((row.get("count") or 1) * (one - floor), str(row.get("name")), floor / one))
    return max(found)[1:] if found else ("", None)


def _is(*operators: str) -> Callable[[Row], bool]:
    return lambda row: row.get("operator") in operators


def _operators(clues: Clues, suspect: str, wanted: Callable[[Row], bool]) -> Verdict:
    name, reached = _worst(clues, wanted)
    threads = next((row["threads"] for row in clues.table("shapes") if row.get("threads")), None)
    return by_share(
        clues, suspect, "device", excess(clues, wanted), records=("shapes", "ceiling"), notebooks=("06",),
        grade=next((row.get("grade") for row in clues.table("shapes") if wanted(row)), None),
        worst=name, reached=pct(reached), threads=threads or words.NONE,
    )  # fmt: skip


def slow_products(clues: Clues) -> Verdict:
    """Judge matrix products that move their weights far below the memory's speed."""
    return _operators(clues, "slow_products", _is(*PRODUCTS))


def small_operators(clues: Clues) -> Verdict:
    """Judge everything that is neither a product nor attention: norms, rotary embedding, copies, elementwise."""
    return _operators(clues, "small_operators", lambda row: row.get("operator") not in (*PRODUCTS, *ATTENTION))


def attention(clues: Clues) -> Verdict:
    """Judge the attention path that the default takes against the best that runs here."""
    gap = attention_gap(clues)
    default, best = (gap or {}).get("default"), (gap or {}).get("fastest")
    return by_share(
        clues, "attention", "device", (gap or {}).get("span"), grade=(gap or {}).get("grade"), records=("attention",),
        notebooks=("09",), default=default or words.NONE, best=best or words.NONE,
    )  # fmt: skip


def attention_gap(clues: Clues) -> dict[str, Any] | None:
    """Return {span, default, fastest, grade} in ms a decode step at the length nearest the ledger's context."""
    rows = [r for r in clues.table("attention") if r.get("phase") == "decode" and of_samples(r.get("samples_ms"))]
    rows = [r for r in rows if r.get("backend") in ("default", *BACKENDS) and not r.get("env")]
    context = ((clues.account or {}).get("subject") or {}).get("context") or 64
    if not rows:
        return None
    length = min({row["length"] for row in rows}, key=lambda one: abs(one - context))
    here = {row["backend"]: (row, of_samples(row["samples_ms"])) for row in rows if row["length"] == length}
    forced = {name: found for name, found in here.items() if name != "default"}
    if "default" not in here or not forced:
        return None
    row, mine = here["default"]
    name = min(forced, key=lambda one: forced[one][1].ms)  # type: ignore[union-attr]
    best = forced[name][1]
    layers = row.get("layers") or layers_of(clues)
    if not layers or mine is None or best is None:
        return None
    ends = (mine.ms - best.ms, mine.low - best.high, mine.high - best.low)
    span = Span(*(layers * max(0.0, end) for end in ends))
    return {
        "span": span,
        "default": row.get("chosen") or "default",
        "fastest": name,
        "grade": row.get("evidence_grade"),
    }


def layers_of(clues: Clues) -> int | None:
    """Return how many layers the model has: as often as its q_proj is called in one step."""
    rows = (r for r in clues.table("shapes") if r.get("operator") in ("linear", "sdpa") and r.get("phase") == "decode")
    return max((int(row.get("count") or 0) for row in rows), default=0) or None


# ---- dtype


def wrong_dtype(clues: Clues) -> Verdict:
    """Judge whether the subject's dtype is computed by the device or only emulated."""
    rates = gemm_rates(clues)
    own, wide, half = (rates.get(name) for name in (clues.dtype, "float32", "float16"))
    records = ("gemm_rate", "experiments")
    if clues.dtype == "float32":
        return not_applicable("wrong_dtype", "float32")
    if own is None or wide is None:
        return undecided("wrong_dtype", "06", records=records)
    slow = own < EMULATED * wide
    if clues.dtype == "bfloat16" and half is not None:
        slow = slow or own < EMULATED_OF_FLOAT16 * half
    told: dict[str, Any] = {
        "dtype": clues.dtype,
        "rate": words.number(own, "TFLOP/s"),
        "wide": words.number(wide, "TFLOP/s"),
    }
    if not slow:
        return refuted("wrong_dtype", span=Span(0.0, 0.0, 0.0), records=records, grade="B", **told)
    better = _other_dtype(clues)
    if better is None and clues.binds("device") is False:
        return refuted("wrong_dtype", "hidden_dtype", span=Span(0.0, 0.0, 0.0), records=records, grade="B", **told)
    if better is None:
        return supported("wrong_dtype", records=records, grade="B", no_ms=words.both("verdict_no_experiment"), **told)
    step = clues.step.ms if clues.step else None
    span = Span(*(step * (1 - ratio) for ratio in better)) if step else None
    kept: dict[str, Any] = {"span": span, "records": records, "grade": "D", "step_ms": step}
    return (supported if better[0] < 1 - SHARE else refuted)(
        "wrong_dtype", "supported" if better[0] < 1 - SHARE else "hidden_dtype", **told, **kept
    )


def gemm_rates(clues: Clues) -> dict[str, float]:
    """Return the best rate of each dtype in TFLOP/s over the sizes of 06."""
    found: dict[str, float] = {}
    for row in clues.table("gemm_rate"):
        once = median(row.get("samples_ms"))
        sizes = [row.get(key) for key in ("m", "n", "k")]
        flop = row.get("flops") or (2.0 * sizes[0] * sizes[1] * sizes[2] if all(is_number(s) for s in sizes) else None)  # type: ignore[operator]
        if once and flop and row.get("dtype"):
            found[row["dtype"]] = max(found.get(row["dtype"], 0.0), flop / once / 1e9)
    return found


def _other_dtype(clues: Clues) -> tuple[float, float, float] | None:
    """Return T in another dtype over T in this one, (median, high, low), the best that was tried as an experiment."""
    others = {"float16", "float32"} - {clues.dtype}
    ratios = [ratio_of(row) for row in clues.table("experiments") if row.get("name") in others]
    known = [one for one in ratios if one]
    return min(known, key=lambda one: one[0]) if known else None


def ratio_of(row: Row) -> tuple[float, float, float] | None:
    """Return T_changed / T_baseline of one experiment as observed, (median, high, low); None where it did not run."""
    found = of_samples(row.get("ratios"))
    return (found.ms, found.high, found.low) if row.get("status") == "OK" and found else None


# ---- the card and its size


def model_small(clues: Clues) -> Verdict:
    """Judge whether the model gives the card too little to do: a wider model would then cost nothing more."""
    if clues.on_cpu:
        return not_applicable("model_small", "on_cpu")
    step, device = clues.step, clues.device_ms
    wider = next((ratio_of(row) for row in clues.table("experiments") if row.get("name") == "width_x2"), None)
    if step is None or device is None:
        return undecided("model_small", "11", records=("step",))
    idle = Span(step.ms - device.ms, step.low - device.high, step.high - device.low)
    told: dict[str, Any] = {"device": ms(device), "step": ms(step), "share": pct(device.ms / step.ms)}
    kept: dict[str, Any] = {"records": ("step", "experiments"), "step_ms": step.ms, "grade": "D"}
    room = clues.binds("host") is True and device.high <= ROOM * step.low
    full = clues.binds("device") is True or (device.low > ROOM * step.high)
    if room and (wider is None or wider[0] <= WIDER_FREE):
        return supported("model_small", span=idle, **told, **kept)
    if full and (wider is None or wider[0] > WIDER_FREE):
        return refuted("model_small", span=Span(0.0, 0.0, 0.0), **told, **kept)
    return undecided("model_small", "11", wording="mixed", span=idle, ms=ms(idle), **told, **kept)


CLOCK_CODES = ("THROTTLING", "SLOWS_DOWN", "CLOCK_RAMP")
POWER_CODES = ("POWER_SAVING", "ON_BATTERY")


def clocks(clues: Clues) -> Verdict:
    """Judge clocks that do not rise, fall with heat, or are held down by a power plan."""
    rows = clues.table("lengths")
    lengths = sorted({r["length"] for r in rows if r.get("kind") == "hand" and r.get("visit") == "steady"})
    series = [curves.gaps_ms(rows, length) for length in lengths]
    seen = [one for gaps in series for one in drift.judge(gaps, op="decode step")[1] if one["code"] in CLOCK_CODES]
    power = [one for one in conditions.power(clues.snapshot) if one["code"] in POWER_CODES]
    long_enough = any(len(gaps) >= drift.MIN_CALLS for gaps in series)
    step = clues.step.ms if clues.step else None
    kept: dict[str, Any] = {"records": ("lengths", "snapshot"), "grade": "D", "step_ms": step}
    down = next((one for one in seen if one["code"] != "CLOCK_RAMP"), None)
    if down:
        numbers = down["numbers"]
        lost = numbers["last_third_ms"] - numbers["first_third_ms"]
        told = {"first": ms(numbers["first_third_ms"]), "last": ms(numbers["last_third_ms"])}
        return supported("clocks", span=Span(lost, lost, lost), **told, **kept)
    if power:
        plan = str(power[0]["words"].get("plan") or "battery")
        return supported("clocks", "plan", plan=plan, no_ms=words.both("verdict_no_single_time"), **kept)
    if not long_enough:
        return undecided("clocks", "04", **kept)
    return refuted("clocks", span=Span(0.0, 0.0, 0.0), count=sum(map(len, series)), **kept)


def spilled(clues: Clues) -> Verdict:
    """Judge whether the model's memory reaches past the card's own into memory behind PCIe."""
    if clues.on_cpu:
        return not_applicable("spilled", "on_cpu")
    rows, need = clues.table("ceiling"), clues.weight_bytes
    sizes = [row["bytes"] for row in rows if row.get("way") == "read" and ceiling.rate(row)]
    if not sizes or need is None:
        return undecided("spilled", "04", records=("ceiling",))
    over = ceiling.spill(rows)
    kept: dict[str, Any] = {
        "records": ("ceiling", "lengths"),
        "grade": "D",
        "step_ms": clues.step.ms if clues.step else None,
    }
    told: dict[str, Any] = {"need": words.number(need, "B"), "largest": words.number(float(max(sizes)), "B")}
    if over is None:
        if max(sizes) < need:
            return undecided("spilled", "04", wording="not_reached", **told, **kept)
        return refuted("spilled", span=Span(0.0, 0.0, 0.0), **told, **kept)
    told |= {"begin": words.number(float(over["bytes"]), "B"), "rate": words.number(over["gb_s"], "GB/s")}
    fits = max((size for size in sizes if size < over["bytes"]), default=0)
    if need <= fits:
        return refuted("spilled", "fits", span=Span(0.0, 0.0, 0.0), **told, **kept)
    if need < over["bytes"]:
        return undecided("spilled", "04", wording="between_sizes", **told, **kept)
    slower = 1e-6 * (1 / over["gb_s"] - 1 / over["usual_gb_s"])  # ms a byte that lies outside
    span = Span((need - (fits + over["bytes"]) / 2) * slower, (need - over["bytes"]) * slower, (need - fits) * slower)
    return supported("spilled", span=span, ms=ms(span), **told, **kept)
