"""Which path of attention charges the first visit of a length, which switch stops it, and what does that cost? Pure."""

from __future__ import annotations

from typing import Any

from rocmlab.attention_tables import SAID, Row, call_samples, median, own, same_shape, usual, visits, works
from rocmlab.findings import Finding, finding
from rocmlab.first_visits import TIMES
from rocmlab.words import number

CHARGE_MS = 0.1  # a step: a charge below this is none
SWITCH_NUMBERS = tuple(f"{end}_{phase}_switch_{unit}" for end in ("short", "long") for phase in ("decode", "prefill")
                       for unit in ("ms", "pct"))  # fmt: skip


def judge(rows: list[Row]) -> list[Finding]:
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
    if default and _charges(default):  # a step takes this way; the same path forced may charge a little else
        given |= {"first_visit_charge_ms": default["charge_ms"].median, "low_ms": default["charge_ms"].low}
        given |= {"high_ms": default["charge_ms"].high, "n": default["charge_ms"].n}
    given["default_charge_ms"] = default["charge_ms"].median if default else None
    said = {"path": SAID[name], "first": number(given["first_call_ms"], "ms")}
    said["charge"] = number(given["first_visit_charge_ms"], "ms")
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
    if charge.low > CHARGE_MS and ratio.low > TIMES:
        return True
    return False if ratio.high <= TIMES or charge.high <= CHARGE_MS else None


def _switch_costs(rows: list[Row], lines: dict[str, Any], given: dict[str, Any], said: dict[str, Any]) -> Finding:
    """Compare the default without cuDNN with the default: first visits, and steady in decode and prefill."""
    given["charge_with_switch_ms"] = lines["default_without_cudnn"]["charge_ms"].median
    for phase in ("decode", "prefill"):
        gaps = []
        for row in [one for one in usual(own(rows), phase) if one["backend"] == "default"]:
            other = works([one for one in usual(own(rows), phase) if same_shape(one, row)]).get("default_without_cudnn")
            mine, without = median(call_samples(row)), median(call_samples(other or {}))
            if mine and without:
                gaps.append((row["length"], (without - mine) * row["layers"], 100 * (without / mine - 1)))
        for end, one in (("short", gaps[:1]), ("long", gaps[-1:])):
            given |= {f"{end}_{phase}_switch_ms": one[0][1], f"{end}_{phase}_switch_pct": one[0][2]} if one else {}
    given |= {key: None for key in SWITCH_NUMBERS if key not in given}
    given |= {f"{key}_reason": "not measured" for key in SWITCH_NUMBERS if given[key] is None}
    return finding("FIRST_VISIT_CHARGED", numbers=given, **said)
