"""Is it prefill or decode, does the context matter, may the numbers be believed? Judges of notebook 04, pure.

`judge(...)` takes the records of one run and returns findings; each can come out more than one way.
"""

from __future__ import annotations

import statistics
from typing import Any

from rocmlab import curves, first_visits, sensor_judges, timing
from rocmlab.findings import Finding, finding, worst_first
from rocmlab.roof import MOST_PCT, Roof
from rocmlab.steadiness import judge_processes
from rocmlab.timing import Interval
from rocmlab.words import number

NO_EFFECT_PCT = 5.0  # of TPOT, over all contexts measured: less is no effect
CURVED_PCT = 10.0  # largest distance of a median from the line that still is a straight line
STAMP_PCT = 1.0
RISES = 1.25  # a prefill within a quarter of the shortest prompt's has not grown
FLAT_PROMPTS = 4  # over a prompt four times as long


def judge(
    rows: list[dict[str, Any]], stamps: list[dict[str, Any]], roof: Roof, ended: list[dict[str, Any]] | None = None
) -> list[Finding]:
    """Return the findings of the length and stamp records, worst first; [] when nothing is there."""
    found = [*judge_processes(ended or []), *judge_memory(rows)]
    if not curves.steady(rows).empty:
        found += [
            *judge_phases(rows, roof),
            *judge_prefill(rows),
            *judge_context(rows, roof),
            *judge_visits(rows),
            *judge_ways(rows),
        ]
        found += [*judge_stamps(stamps), *judge_conditions(rows), *judge_steadiness(rows)]
    return worst_first(found)


def side(rows: list[dict[str, Any]]) -> str:
    """Return CPU or GPU, as the records say."""
    return "CPU" if next((r.get("device") for r in rows if r.get("device")), "cpu") == "cpu" else "GPU"


def judge_phases(rows: list[dict[str, Any]], roof: Roof) -> list[Finding]:
    """Say how long prefill and one decoded token are; a rate above the roof is impossible and said instead."""
    table = curves.by_length(rows, roof.gb_s, roof.reason).to_dict("records")
    known = [line for line in table if isinstance(line["tpot_ms"], Interval)]
    if not known:
        return []
    short, long = known[0], known[-1]
    given = {"tpot_ms": short["tpot_ms"].median, "decode_tok_s": 1000 / short["tpot_ms"].median}
    given |= {"gb_s": short["gb_s"], "mbu_pct": short["mbu_pct"], "length": short["length_tokens"]}
    given |= {"prefill_ms": short["prefill_ms"].median, "prefill_tok_s": short["prefill_tok_s"]}
    given |= {"long_prefill_ms": long["prefill_ms"].median, "long_prefill_tok_s": long["prefill_tok_s"]}
    given["long_length"] = long["length_tokens"]
    if short["mbu_pct"] is None:
        given["mbu_pct_reason"] = roof.reason.get("en")
    most = max(known, key=lambda line: line["mbu_pct"] or 0.0)  # at any length: a longer one moves more bytes
    if (most["mbu_pct"] or 0.0) > MOST_PCT.get(roof.kind, 100.0):
        numbers = {"decode_step_ms": most["tpot_ms"].median, "gb_s": most["gb_s"], "roof_pct": most["mbu_pct"]}
        return [finding("IMPOSSIBLE_RATE", numbers=numbers, variant="bandwidth", roof=roof.gb_s, kind=roof.name)]
    variant = None if short["mbu_pct"] is not None else "no_roof"
    said = {"prefill": number(given["prefill_ms"], "ms"), "long_prefill": number(given["long_prefill_ms"], "ms")}
    said |= {"long_rate": number(given["long_prefill_tok_s"], "tok/s"), "tpot": number(given["tpot_ms"], "ms")}
    said |= {"rate": number(given["decode_tok_s"], "tok/s"), "moved": number(given["gb_s"], "GB/s")}
    return [
        finding(
            "PREFILL_AND_DECODE",
            numbers=given,
            variant=variant,
            **said,
            side=side(rows),
            roof=roof.gb_s,
            kind=roof.name,
        )
    ]


def judge_prefill(rows: list[dict[str, Any]]) -> list[Finding]:
    """Say whether a longer prompt takes longer to read: where it does not, a fixed cost hides the arithmetic.

    Each length is compared with the shortest by steady round, so that a machine that changes its speed is no growth;
    flat or longer only where the whole interval says so.
    """
    table = curves.by_length(rows, None).to_dict("records")
    known = {line["length_tokens"]: line["prefill_ms"].median for line in table if line["prefill_ms"]}
    growth = curves.prefill_growth(rows)
    if len(known) < 2 or len(growth) < 2:
        return []
    short, long = min(growth), max(growth)
    flat_to = curves.flat_to({length: one.high for length, one in growth.items()}, RISES)
    last = growth[long]
    given: dict[str, Any] = {"prefill_growth": known[long] / known[short], "prompt_growth": long / short}
    given |= {"prefill_growth_low": last.low, "prefill_growth_high": last.high, "rounds": last.n}
    given["prefill_flat_to"] = flat_to
    said: dict[str, Any] = {"flat": number(known[flat_to], "ms"), "short": short, "long": long}
    said |= {"few": number(known[short], "ms"), "many": number(known[long], "ms"), "bar": RISES}
    if not last.enough:
        return [finding("PREFILL_UNDECIDED", numbers=given, variant="few", **said)]
    if flat_to >= FLAT_PROMPTS * short:
        return [finding("PREFILL_FLAT", numbers=given, variant="throughout" if flat_to == long else None, **said)]
    if last.low > RISES:
        return [finding("PREFILL_GROWS", numbers=given, **said)]
    if last.high <= RISES or long < FLAT_PROMPTS * short:
        return []  # flat, but over prompts too alike to say anything
    return [finding("PREFILL_UNDECIDED", numbers=given, **said)]


def judge_context(rows: list[dict[str, Any]], roof: Roof) -> list[Finding]:
    """Say whether a longer context makes a token slower, by how much, and how much of that is reading the cache."""
    frame = curves.steady(rows)
    fit = curves.line(frame)
    if fit is None:
        return []
    reach = float(frame["context"].max() - frame["context"].min())
    given: dict[str, Any] = {"tpot_at_0_ms": fit.a_ms, "us_a_position": fit.b_us, "us_a_position_low": fit.b_low_us}
    given |= {"us_a_position_high": fit.b_high_us, "fit_residual_pct": fit.residual_pct}
    words: dict[str, Any] = {"limit": NO_EFFECT_PCT, "reach": reach, "longest": float(frame["context"].max())}
    rise_pct, most_pct = (
        100 * slope * reach / 1000 / fit.a_ms if fit.a_ms > 0 else float("inf") for slope in (fit.b_us, fit.b_high_us)
    )
    if fit.residual_pct > CURVED_PCT:
        return [finding("CONTEXT_NOT_A_LINE", numbers=given, **words)]
    if not fit.enough:
        return [finding("CONTEXT_UNDECIDED", numbers=given, variant="few", rise=rise_pct, most=most_pct, **words)]
    if most_pct < NO_EFFECT_PCT:
        return [finding("CONTEXT_NO_EFFECT", numbers=given, rise=rise_pct, **words)]
    if fit.b_low_us <= 0 or rise_pct < NO_EFFECT_PCT:
        return [finding("CONTEXT_UNDECIDED", numbers=given, rise=rise_pct, most=most_pct, **words)]
    cache = next((r["kv_bytes_a_position"] for r in rows if r.get("kv_bytes_a_position")), None)
    read_us = cache / roof.gb_s / 1000 if cache and roof.gb_s else None
    variant = "against_cache" if read_us else None
    given |= {"cache_read_us_a_position": read_us} if read_us else {}
    times = fit.b_us / read_us if read_us else None
    return [finding("CONTEXT_COSTS", numbers=given, variant=variant, rise=rise_pct, times=times, **words)]


def judge_visits(rows: list[dict[str, Any]]) -> list[Finding]:
    """Say whether the first visit of a length costs more than the second, in decode."""
    found = first_visits.cost(curves.first_visits(rows))
    if found is None or found.slow is None:
        return []
    given = {"first_visit_itl_ms": found.first_ms, "second_visit_itl_ms": found.usual_ms}
    if found.slow:
        return [first_visits.slow(found, side(rows), given)]
    said: dict[str, Any] = {"first": found.first_ms, "usual": found.usual_ms, "side": side(rows)}
    return [finding("FIRST_VISIT_SAME", numbers=given, **said)]


def judge_ways(rows: list[dict[str, Any]]) -> list[Finding]:
    """Say what generate() costs beside the hand-written loop."""
    ratio = timing.ratio_interval(*curves.ways(rows)) if curves.ways(rows)[0] else None
    if ratio is None:
        return []
    pct, low, high = (100 * (end - 1) for end in (ratio.median, ratio.low, ratio.high))
    given = {"generate_extra_pct": pct, "generate_extra_low_pct": low, "generate_extra_high_pct": high, "n": ratio.n}
    if not ratio.enough:
        variant = "few"
    elif low > 0:
        variant = None
    else:
        variant = "faster" if high < 0 else "same"
    return [finding("GENERATE_COSTS", numbers=given, variant=variant)]


def judge_stamps(stamps: list[dict[str, Any]]) -> list[Finding]:
    """Say what a stamp a token costs, in each case that was measured."""
    found = []
    for line in curves.stamp_costs(stamps).to_dict("records"):
        cost: Interval = line["cost_pct"]
        name = str(line["bound_by"]).lower()
        given = {f"stamp_cost_{name}_pct": cost.median}
        words = {
            "cost": cost.median,
            "low": cost.low,
            "high": cost.high,
            "usual": number(line["unstamped_ms"].median, "ms"),
        }
        variant = {"CPU": "cpu", "host": "host", "device": "device"}[line["bound_by"]]
        if variant != "device" and cost.low > STAMP_PCT:
            variant = f"{variant}_dear"
        found.append(finding("STAMP_COST", numbers=given, variant=variant, **words))
    return found


def judge_conditions(rows: list[dict[str, Any]]) -> list[Finding]:
    """Say what else the machine did: load at the start, and other processes during any phase that was timed."""
    found = []
    load: dict[str, Any] = next((r["load"] for r in rows if r.get("load")), {})
    if (load.get("load_1min") or 0) > (load.get("cores") or 1):
        found.append(finding("LOADED_AT_START", numbers={"load_1min": load["load_1min"], "cores": load["cores"]}))
    shares = [
        r["others_cpu_pct"] for r in rows if r.get("kind") == "conditions" and r.get("others_cpu_pct") is not None
    ]
    if shares and max(shares) > timing.OTHERS_PCT:
        numbers = {"others_cpu_pct": statistics.median(shares), "others_cpu_max_pct": max(shares)}
        found.append(finding("OTHER_WORK", numbers=numbers))
    return found


def judge_steadiness(rows: list[dict[str, Any]]) -> list[Finding]:
    """Say when tokens of equal work differ: two states between processes, scatter, a ramp or a slow-down."""
    frame, who, found = curves.generations(rows), side(rows), []
    frame = frame[frame["visit"] == "steady"].dropna(subset=["tpot_ms"])
    frame = frame[frame["length"] == frame["length"].min()]
    speeds = frame.assign(tok_s=1000 / frame["tpot_ms"].astype(float))
    states = timing.two_states(list(speeds["tok_s"]))
    if states:
        fast = [group["tok_s"] > states.cut for _, group in speeds.groupby("process")]
        stays = all(one.all() or not one.any() for one in fast)
        numbers = {"slow_state_tok_s": states.low, "fast_state_tok_s": states.high}
        words = {"slow": states.low, "fast": states.high, "n_slow": states.n_low, "n_fast": states.n_high, "side": who}
        found.append(finding("TWO_STATES", numbers=numbers, variant=None if stays else "inside", **words))
    spread = timing.spread_pct(list(speeds[speeds["process"] == 0]["tok_s"]))
    if spread is not None and spread > timing.NOISY_PCT:
        variant = "very" if spread > timing.VERY_NOISY_PCT else None
        found.append(finding("NOISY", numbers={"iqr_pct": spread}, variant=variant, side=who, spread=spread))
    if frame.empty:
        return found
    gaps = curves.gaps_ms(rows, int(frame["length"].iloc[0]))
    read = [row.get("sensor") for row in rows if row.get("visit") == "steady" and row.get("process") == 0]
    before = next((row.get("sensor") for row in rows if row.get("kind") == "before" and row.get("process") == 0), None)
    return found + sensor_judges.faults(read, gaps, "decode step", before)


def judge_memory(rows: list[dict[str, Any]]) -> list[Finding]:
    """Name the lengths that did not fit into memory, with what was asked and what was free."""
    short = [r for r in rows if r.get("kind") == "hand" and r.get("error")]
    if not short:
        return []
    memory = short[0].get("memory") or {}
    given = {key: memory[key] for key in ("asked_gib", "free_gib") if memory.get(key) is not None}
    lengths = ", ".join(str(length) for length in dict.fromkeys(r["length"] for r in short))
    return [
        finding("LENGTH_LIMIT", numbers=given, variant=None if len(given) == 2 else "parts_unknown", lengths=lengths)
    ]
