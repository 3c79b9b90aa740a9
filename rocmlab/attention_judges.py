"""Which path does attention take, is it right, and what do switch, mask and K and V change? Judges, pure.

`judge(rows, ...)` takes the records of notebook 09 and gives all of its findings, those of attention_costs and
attention_visits among them; records of forced back ends from elsewhere go to sdpa_probe.
"""

from __future__ import annotations

from typing import Any

from rocmlab import archs, attention_costs, attention_visits, timing, words
from rocmlab.attention import SWITCH
from rocmlab.attention_tables import (
    FUSED,
    SAID,
    Row,
    call_samples,
    costs,
    head_of,
    median,
    own,
    path,
    usual,
    works,
)  # fmt: skip
from rocmlab.findings import Finding, finding, worst_first
from rocmlab.steadiness import judge_processes
from rocmlab.timing import Interval

SLOWER = 1.1  # a default slower than the fastest path by this factor is named


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
        found += attention_costs.judge(decode, prefill) + attention_visits.judge(rows)
        found += judge_switch(rows) + judge_settings(rows) + _others(rows)
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
