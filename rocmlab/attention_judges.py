"""Which path does attention take, is it right, what does the missing one cost, who charges first visits? Judges, pure.

`judge(rows, ...)` takes the records of notebook 09; records of forced back ends from elsewhere go to sdpa_probe.
"""

from __future__ import annotations

from typing import Any

from rocmlab import archs, timing, words
from rocmlab.attention import SWITCH
from rocmlab.attention_tables import (
    FUSED,
    Row,
    call_samples,
    costs,
    head_of,
    median,
    own,
    path,
    usual,
    visits,
    works,
)  # fmt: skip
from rocmlab.findings import Finding, finding, worst_first
from rocmlab.steadiness import FIRST_VISIT_TIMES, judge_processes
from rocmlab.timing import Interval
from rocmlab.words import number

SLOWER = 1.1  # a default slower than the fastest path by this factor is named
LITTLE_PCT = 5.0  # of a step: less is worth little
CHARGE_MS = 0.1  # a step: a charge below this is none
SAID = {
    "flash": "flash",
    "efficient": "memory-efficient",
    "cudnn": "cuDNN",
    "overrideable": "overrideable",
    "math": "math",
}


def judge(
    rows: list[Row], *, ended: list[Row] | None = None, arch: str | None = None,
    step_ms: dict[int, float] | None = None, prefill_ms: dict[int, float] | None = None,
    ceiling_gb_s: float | None = None,
) -> list[Finding]:  # fmt: skip
    """Return the findings of notebook 09, worst first; [] when nothing is there."""
    found = judge_processes(ended or [])
    if own(rows):
        decode, prefill = (
            costs(rows, phase, whole, ceiling_gb_s) for phase, whole in (("decode", step_ms), ("prefill", prefill_ms))
        )
        found += judge_paths(rows, arch) + judge_values(rows) + judge_default(rows)
        found += judge_costs(decode, prefill) + judge_visits(rows) + judge_switch(rows) + judge_settings(rows)
        found += _others(rows)
    return worst_first(found)


# ---- which paths are there


def judge_paths(rows: list[Row], arch: str | None) -> list[Finding]:
    """Say when every fused path is refused, in every setting; and what can exist for this target."""
    cases = own(rows)
    tried = [name for name in FUSED if any(row["backend"] == name for row in cases)]
    ran = {row["backend"] for row in cases if row["status"] == "OK"}
    if not ran:
        return [finding("ATTENTION_NONE", said=_why(cases))]
    if not tried or ran & set(tried) or "math" not in ran:
        return []
    on = str(head_of(rows).get("switch") or "0") not in ("0", "", "off", "false")
    return [math_only([one for one in tried if one != "overrideable"], arch, on)]


def _why(cases: list[Row]) -> str:
    return "; ".join(dict.fromkeys(f"{row['backend']}: {row.get('error') or row['status']}" for row in cases))[:600]


def math_only(refused: list[str], arch: str | None, switched_on: bool) -> Finding:
    libraries = (archs.target(arch) or {}).get("libraries") or {}
    variant = "forced" if arch is None else "elsewhere"
    if libraries.get("flash_attention") is False and libraries.get("mem_efficient_attention") is False:
        variant = "impossible"
    elif libraries.get("experimental_flag"):
        variant = "switched_on" if switched_on else "switch"
    which = ", ".join(SAID[one] for one in refused)
    return finding("SDPA_MATH_ONLY", variant=variant, which=which, arch=arch)


def judge_values(rows: list[Row]) -> list[Finding]:
    """Say which paths give wrong values, with or without the switch; or how near the worst one is to its tolerance."""
    cases = [row for row in own(rows) + own(rows, other=True) if row["status"] == "OK"]
    wrong = [row for row in cases if row.get("not_finite") or (row.get("over_tolerance") or 0) > 1]
    known = [row["over_tolerance"] for row in cases if row.get("over_tolerance") is not None]
    if wrong:
        where = dict.fromkeys(f"{row['backend']} ({row['phase']}, {row['length']})" for row in wrong)
        worst = max(wrong, key=lambda row: row.get("over_tolerance") or float("inf"))
        given = {"wrong_cases": len(wrong), "cases": len(cases), "worst_times_tolerance": worst.get("over_tolerance")}
        return [finding("ATTENTION_WRONG", numbers=given, where=", ".join(list(where)[:8]))]
    if not known:
        return []
    given = {"cases": len(cases), "worst_of_tolerance_pct": 100 * max(known)}
    return [finding("ATTENTION_RIGHT", numbers=given)]


def judge_default(rows: list[Row]) -> list[Finding]:
    """Say which path the default takes in either phase, and whether a forced one would be faster."""
    cases, told, by = own(rows), [], set()
    for phase in ("decode", "prefill"):
        mine = sorted(
            (row for row in usual(cases, phase) if row["backend"] == "default"), key=lambda row: row["length"]
        )
        took = [(row["length"], path(row, rows, cases)) for row in mine if row["status"] == "OK"]
        if took:
            told.append(f"{phase}: {_by_length([(length, one['path'] or 'unknown') for length, one in took])}")
            by |= {one["by"] for _, one in took if one["by"]}
    if not told:
        return []
    witnesses = [one for one in ("kernels", "operators", "choice", "time") if one in by]
    each = [words.both(f"attention_by_{one}") for one in witnesses or ["nothing"]]
    said = {lang: ", ".join(one[lang] for one in each) for lang in words.LANGUAGES}
    variant = None if witnesses else "unknown"
    found = [finding("ATTENTION_DEFAULT", variant=variant, paths="; ".join(told), by=said)]
    return found + _faster(cases)


def _by_length(took: list[tuple[int, str]]) -> str:
    """Say "flash" where one path serves every length, else "flash (64-256), math (1024)"."""
    if len({name for _, name in took}) == 1:
        return took[0][1]
    parts: list[list[Any]] = []
    for length, name in took:
        if parts and parts[-1][0] == name:
            parts[-1][2] = length
        else:
            parts.append([name, length, length])
    return ", ".join(
        f"{name} ({first})" if first == last else f"{name} ({first}-{last})" for name, first, last in parts
    )


def _faster(cases: list[Row]) -> list[Finding]:
    """Name the shape at which a forced path beats the default most; where none does, say so."""
    compared = []
    for row in [one for one in cases if one["backend"] == "default" and one.get("usual")]:
        forced = works(
            [one for one in cases if one.get("usual") and _shape(one) == _shape(row) and one["backend"] in SAID]
        )
        if row["status"] != "OK" or not forced:
            continue
        best = min(forced.values(), key=lambda one: median(call_samples(one)) or float("inf"))
        pairs = list(zip(call_samples(row), call_samples(best), strict=False))
        ratio = timing.ratio_interval([p[0] for p in pairs], [p[1] for p in pairs])
        if ratio:
            compared.append((ratio, row, best))
    if not compared:
        return []
    ratio, row, best = max(compared, key=lambda one: one[0].low)
    given = {"default_over_fastest": ratio.median, "low": ratio.low, "high": ratio.high, "n": ratio.n}
    said = {"phase": row["phase"], "length": row["length"], "best": best["backend"]}
    if ratio.low > SLOWER and ratio.enough:
        return [finding("ATTENTION_DEFAULT_SLOW", numbers=given, **said)]
    most = max(one[0].high for one in compared)
    variant = None if most <= SLOWER else "undecided"
    return [finding("ATTENTION_DEFAULT_FAST", numbers={"default_over_fastest_most": most}, variant=variant)]


def _shape(row: Row) -> tuple[Any, ...]:
    return row["phase"], row["length"], row["gqa"], row["mask"]


# ---- what the missing path costs


def judge_costs(decode: list[dict[str, Any]], prefill: list[dict[str, Any]]) -> list[Finding]:
    """Say what math attention costs a step more than a fused path, by length: much, little, or not to be told."""
    known = [line for line in decode if line["gap_ms"] is not None]
    if not known:
        return []
    short, long = known[0], known[-1]
    given: dict[str, Any] = {"short_length": short["length_tokens"], "long_length": long["length_tokens"]}
    given |= {"short_gap_ms": short["gap_ms"], "long_gap_ms": long["gap_ms"]}
    given |= {"short_share_pct": short["share_pct"], "long_share_pct": long["share_pct"]}
    given |= {f"{end}_share_pct_reason": "no decode step measured near this length" for end, line in
              (("short", short), ("long", long)) if line["share_pct"] is None}  # fmt: skip
    filled = [line for line in prefill if line["gap_ms"] is not None]
    for name, key in (("prefill_gap_ms", "gap_ms"), ("prefill_length", "length_tokens")):
        given |= {name: filled[-1][key]} if filled else {name: None, f"{name}_reason": "no prefill was measured"}
    said: dict[str, Any] = {"short_gap": _gap(short), "long_gap": _gap(long)}
    said |= {"prefill_gap": _gap(filled[-1]) if filled else None, "fused": long["fused"] or short["fused"] or "-"}
    said |= {"extra_ops": _extra(known), "layers": long["layers"]}
    bound = "bound" if long["at_most"] else None
    said |= {"short_share": _of_it(short["share_pct"]), "long_share": _of_it(long["share_pct"])}
    shares = [line for line in (*known, *filled) if line["share_pct"] is not None]
    if not shares or long["share_pct"] is None:
        return [finding("ATTENTION_GAP", numbers=given, variant=bound, **said)]
    given |= {f"most_share_{end}_pct": max(line[f"share_pct_{end}"] for line in shares) for end in ("low", "high")}
    if given["most_share_high_pct"] < LITTLE_PCT:
        return [finding("FUSED_WORTH_LITTLE", numbers=given, variant=bound, **said)]
    if given["most_share_low_pct"] >= LITTLE_PCT:
        return [finding("FUSED_SAVES", numbers=given, variant=bound, **said)]
    return [finding("FUSED_UNDECIDED", numbers=given, **said)]


def _of_it(share_pct: float | None) -> dict[str, str]:
    """Return "19% of it", or that the share is not known."""
    if share_pct is None:
        return words.both("attention_share_unknown")
    return words.both("attention_share", pct=f"{share_pct:.{0 if share_pct >= 10 else 1}f}")


def _gap(line: dict[str, Any]) -> str:
    """Say a gap with its interval: the difference of two medians that scatter is only as good as both."""
    low, high = (number(line[f"gap_ms_{end}"]) for end in ("low", "high"))
    return f"{number(line['gap_ms'], 'ms')} ({low} to {high})"


def _extra(lines: list[dict[str, Any]]) -> int | None:
    """Return by how many operators a call of math attention is longer than a fused one, in decode."""
    both = [line["math_ops"] - line["fused_ops"] for line in lines if line["math_ops"] and line["fused_ops"]]
    return both[-1] if both else None


# ---- first visits


def judge_visits(rows: list[Row]) -> list[Finding]:
    """Name the path that charges the first visit of a length, the switch that stops it, and what the switch costs."""
    lines = {line["backend"]: line for line in visits(rows)}
    if not lines:
        return []
    charging = [line for line in lines.values() if _charges(line) and line["backend"] in SAID]
    free = all(_charges(line) is False for line in lines.values())
    if not charging:
        variant = None if free else "undecided"
        most = max(line["charge_ms"].median for line in lines.values())
        return [finding("FIRST_VISIT_FREE", numbers={"most_charge_ms": most, "paths": len(lines)}, variant=variant)]
    worst = max(charging, key=lambda line: line["charge_ms"].median)
    name, charge = worst["backend"], worst["charge_ms"]
    given: dict[str, Any] = {"first_visit_charge_ms": charge.median, "low_ms": charge.low, "high_ms": charge.high}
    given |= {"first_call_ms": worst["first_call_ms"].median, "calls_a_step": worst["calls"], "n": charge.n}
    default = lines.get("default")
    given["default_charge_ms"] = default["charge_ms"].median if default else None
    said = {"path": SAID[name], "charge": number(charge.median, "ms"), "first": number(given["first_call_ms"], "ms")}
    if not default or not _charges(default):
        return [finding("FIRST_VISIT_CHARGED", numbers=given, variant="not_default", **said)]
    if name != "cudnn" or "default_without_cudnn" not in lines:
        return [finding("FIRST_VISIT_CHARGED", numbers=given, variant="no_switch", **said)]
    return [_switch_costs(rows, lines, given, said)]


def _charges(line: dict[str, Any]) -> bool | None:
    """Tell whether first visits cost more than second ones; None where the samples leave it open."""
    ratio, charge = line["charge_ratio"], line["charge_ms"]
    if not ratio.enough:
        return None
    if charge.low > CHARGE_MS and ratio.low > FIRST_VISIT_TIMES:
        return True
    return False if ratio.high <= FIRST_VISIT_TIMES or charge.high <= CHARGE_MS else None


def _switch_costs(rows: list[Row], lines: dict[str, Any], given: dict[str, Any], said: dict[str, Any]) -> Finding:
    """Compare the default without cuDNN with the default: first visits, and steady in decode and prefill."""
    given["charge_with_switch_ms"] = lines["default_without_cudnn"]["charge_ms"].median
    for phase in ("decode", "prefill"):
        gaps = []
        for row in [one for one in usual(own(rows), phase) if one["backend"] == "default"]:
            other = works([one for one in usual(own(rows), phase) if _shape(one) == _shape(row)]).get(
                "default_without_cudnn"
            )
            mine, without = median(call_samples(row)), median(call_samples(other or {}))
            if mine and without:
                gaps.append((row["length"], (without - mine) * row["layers"], 100 * (without / mine - 1)))
        for end, one in (("short", gaps[:1]), ("long", gaps[-1:])):
            given |= {f"{end}_{phase}_switch_ms": one[0][1], f"{end}_{phase}_switch_pct": one[0][2]} if one else {}
    given |= {key: None for key in SWITCH_NUMBERS if key not in given}
    given |= {f"{key}_reason": "not measured" for key in SWITCH_NUMBERS if given[key] is None}
    return finding("FIRST_VISIT_CHARGED", numbers=given, **said)


SWITCH_NUMBERS = tuple(f"{end}_{phase}_switch_{unit}" for end in ("short", "long") for phase in ("decode", "prefill")
                       for unit in ("ms", "pct"))  # fmt: skip


# ---- the switch, the mask, K and V


def judge_switch(rows: list[Row]) -> list[Finding]:
    """Say what turning AOTriton's experimental switch round changed: paths that open or close, or nothing."""
    asked = next((row for row in rows if row.get("what") == "switch"), None)
    other = own(rows, other=True)
    if not asked or asked["status"] != "TRIED" or not other:
        return []
    shapes = {_shape(row) for row in other}
    before = {row["backend"] for row in own(rows) if row["status"] == "OK" and _shape(row) in shapes}
    after = {row["backend"] for row in other if row["status"] == "OK"}
    on, off = (after, before) if asked.get("value") == "1" else (before, after)
    opened = ", ".join(SAID.get(one, one) for one in sorted((on - off) & set(FUSED)))
    arch = head_of(rows).get("device_name")
    if not opened:
        return [finding("SWITCH_NO_EFFECT", switch=SWITCH, card=arch)]
    variant = None if asked.get("value") == "1" else "already_on"
    return [finding("SWITCH_OPENS_PATHS", switch=SWITCH, card=arch, paths=opened, variant=variant)]


def judge_settings(rows: list[Row]) -> list[Finding]:
    """Say whether an explicit mask, or K and V handed over in the other way, changes the path or the time."""
    cases = own(rows)
    base = {(row["phase"], row["length"]): row for row in cases if row.get("usual") and row["backend"] == "default"}
    found = []
    for variant, chosen in (("mask", [r for r in cases if r["mask"] != "none"]),
                            ("kv", [r for r in cases if r["mask"] == "none" and not r.get("usual")])):  # fmt: skip
        compared = [_against(row, base, rows, cases) for row in chosen if row["backend"] == "default"]
        kept = [one for one in compared if one]
        if kept:
            found.append(_setting(variant, max(kept, key=lambda one: one[0].low)))
    return found


def _against(
    row: Row, base: dict[tuple[str, int], Row], rows: list[Row], cases: list[Row]
) -> tuple[Interval, Row, str, str] | None:
    usually = base.get((row["phase"], row["length"]))
    if not usually or row["status"] != "OK" or usually["status"] != "OK":
        return None
    pairs = list(zip(call_samples(row), call_samples(usually), strict=False))
    ratio = timing.ratio_interval([p[0] for p in pairs], [p[1] for p in pairs])
    names = [path(one, rows, cases)["path"] or "unknown" for one in (usually, row)]
    return (ratio, row, *names) if ratio else None  # type: ignore[return-value]


def _setting(variant: str, most: tuple[Interval, Row, str, str]) -> Finding:
    ratio, row, before, after = most
    given = {"times": ratio.median, "low": ratio.low, "high": ratio.high, "n": ratio.n}
    said = {"phase": row["phase"], "length": row["length"], "before": before, "after": after}
    said["kv"] = "grouped" if row["gqa"] else "repeated"
    if ratio.enough and (ratio.low > SLOWER or before != after):
        kind = variant if before != after else f"{variant}_same_path"
        return finding("ATTENTION_SETTING_COSTS", numbers=given, variant=kind, **said)
    if ratio.high <= SLOWER:
        return finding("ATTENTION_SETTING_SAME", numbers=given, variant=variant, **said)
    return finding("ATTENTION_SETTING_SAME", numbers=given, variant=f"{variant}_undecided", **said)


def _others(rows: list[Row]) -> list[Finding]:
    shares = [
        r["others_cpu_pct"] for r in rows if r.get("what") == "conditions" and r.get("others_cpu_pct") is not None
    ]
    if not shares or max(shares) <= timing.OTHERS_PCT:
        return []
    return [finding("OTHER_WORK", numbers={"others_cpu_pct": max(shares), "others_cpu_max_pct": max(shares)})]
