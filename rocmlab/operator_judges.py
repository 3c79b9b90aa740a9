"""From the rows of the table "operators" to findings: what works, what does not, and what the rows cannot see. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

from rocmlab import evidence, problems
from rocmlab.evidence import Row
from rocmlab.findings import Finding, finding

SHOWN = 8  # names in a sentence; the table holds them all
COMPILE_MS, COMPILE_TIMES = 1000.0, 20.0  # a first call longer than this, and this much longer than steady, is named
SPEED_FAMILIES_LEFT_OUT = ("copies and streams", "compile")


def judge(rows: list[Row], before: list[Row] | None = None) -> list[Finding]:
    """Return all findings, the broken ones first and in the order of evidence.ORDER."""
    verdicts = [evidence.verdict(row) for row in rows]
    found = [_verdict(code, rows, verdicts) for code in evidence.ORDER if code in verdicts and code != "NOT_TRIED"]
    found += _by_size(rows)
    found += _retries(rows)
    found += _attention(rows, verdicts)
    found += _growing(rows)
    found += _waiting(rows)
    found += _first_calls(rows)
    found += _speeds(rows)
    found += _changes(rows, before or [])
    return found + _not_tried(rows, verdicts) + _blind(rows)


def numbers(rows: list[Row]) -> dict[str, int]:
    """Return total and the count of each verdict that occurs, in small letters."""
    counts = Counter(evidence.verdict(row) for row in rows)
    return {"total": len(rows), **{code.lower(): counts[code] for code in evidence.ORDER if counts[code]}}


def names(rows: list[Row]) -> str:
    """Return operators with their dtypes, the first few by name: "linear (float16, bfloat16), mm (float32)"."""
    by_op: dict[str, list[str]] = {}
    for row in rows:
        by_op.setdefault(row["op"], []).append(row["dtype"])
    said = [f"{op} ({', '.join(dict.fromkeys(dtypes))})" for op, dtypes in by_op.items()]
    return ", ".join(said[:SHOWN]) + (f", ... (+{len(said) - SHOWN})" if len(said) > SHOWN else "")


def _verdict(code: str, rows: list[Row], verdicts: list[str]) -> Finding:
    chosen = [row for row, verdict in zip(rows, verdicts, strict=True) if verdict == code]
    counted = {"count": len(chosen), "total": len(rows)}
    if code == "PASS":
        return finding("PASS", numbers=numbers(rows), variant=_variant(rows), **_ladder(rows))
    words: dict[str, Any] = {"names": names(chosen), "first": first_line(chosen[0])}
    variant = "operators" if code in ("WRONG_VALUE", "OUT_OF_MEMORY") else None
    return finding(code, numbers=counted, variant=variant, **words)


def _variant(rows: list[Row]) -> str | None:
    return "cpu" if all(row.get("device_asked") == "cpu" for row in rows) else None


def _ladder(rows: list[Row]) -> dict[str, Any]:
    counts = evidence.histogram(rows)
    told = {level: f"{c['yes']}/{c['yes'] + c['no']}" for level, c in counts.items()}
    return {"on_device": told["on_device"], "right": told["matches_cpu"], "gradients": told["grad_ok"]}


def first_line(row: Row) -> str:
    """Return what a row that went wrong says of itself, in one line."""
    error = str(row.get("error") or "").strip()
    if error:
        return error.splitlines()[0][:200]
    code = evidence.verdict(row)
    if code in evidence.ENDED:
        return str(row.get("words") or code)
    bad = [one for one in row.get("inputs") or [] if one.get("not_finite") or one.get("outside")]
    if bad:
        return _numeric(bad[0])
    gradient = row.get("gradient") or {}
    if gradient.get("not_finite") or gradient.get("outside"):
        return "gradient: " + _numeric(gradient)
    return (evidence.said(row) or [str(row.get("device") or "")])[0][:200]


def _numeric(one: Row) -> str:
    if one.get("shape_expected"):
        return f"shape {one['shape']}, expected {one['shape_expected']}"
    if one.get("inputs_changed"):
        return f"it wrote to its own input, {one['inputs_changed']} elements" + _where(one)
    parts = [f"{one['not_finite']} NaN/Inf"] if one.get("not_finite") else []
    if one.get("outside"):
        times = one.get("over_tolerance")
        parts.append(f"{one['outside']} > tolerance" + (f", max {times:.3g} x tolerance" if times else ""))
    return ", ".join(parts) + _where(one)


def _where(one: Row) -> str:
    """Return which inputs these were: their name with the shapes, or the sample as PyTorch describes it."""
    if one.get("shapes"):
        return f" ({one['inputs']}: {'; '.join('x'.join(map(str, s)) for s in one['shapes'])})"
    return f" ({one['sample'][:150]})" if one.get("sample") else ""


def wrong_on(row: Row) -> tuple[list[str], list[str]]:
    """Return (inputs with a wrong result, inputs with a right one)."""
    wrong = [one["inputs"] for one in row.get("inputs") or [] if one.get("not_finite") or one.get("outside")]
    return wrong, [one["inputs"] for one in row.get("inputs") or [] if one["inputs"] not in wrong]


def _by_size(rows: list[Row]) -> list[Finding]:
    """Wrong on some inputs and right on others: a fault that depends on size or data."""
    found = []
    for row in rows:
        wrong, right = wrong_on(row)
        bad = next((one for one in row.get("inputs") or [] if one["inputs"] in wrong), None)
        if bad is None or not (right or _right_in_pieces(bad)):
            continue
        pieces = "right" if _right_in_pieces(bad) else "wrong" if bad.get("pieces") else "not tried"
        words = {"op": row["op"], "dtype": row["dtype"], "wrong": ", ".join(wrong), "right": ", ".join(right) or "-"}
        counted = {"not_finite": bad.get("not_finite"), "outside": bad.get("outside")}
        found.append(finding("WRONG_RESULT_BY_SIZE", variant="operator", numbers=counted, pieces=pieces, **words))
    return found


def _right_in_pieces(one: Row) -> bool:
    pieces = one.get("pieces")
    return pieces is not None and not pieces["not_finite"] and not pieces["outside"]


def _retries(rows: list[Row]) -> list[Finding]:
    """A second try with the library off tells the library's fault from the card's."""
    groups: dict[tuple[str, bool], list[Row]] = {}
    for row in rows:
        retry = row.get("retry") or {}
        # Refused or without room, the second try says nothing about the first.
        if retry.get("switch") and retry.get("verdict") in (*evidence.SOUND, *evidence.RETRIED):
            groups.setdefault((retry["switch"], retry.get("verdict") in evidence.SOUND), []).append(row)
    return [
        finding("LIBRARY_AT_FAULT" if right else "NOT_THE_LIBRARY", switch=switch, names=names(chosen))
        for (switch, right), chosen in groups.items()
    ]


def _attention(rows: list[Row], verdicts: list[str]) -> list[Finding]:
    """Math is the only path of scaled dot product attention when every forced other one is refused."""
    forced = {"sdpa_flash": "flash", "sdpa_efficient": "memory-efficient", "sdpa_cudnn": "cuDNN"}
    states: dict[str, list[bool]] = {}
    for row, verdict in zip(rows, verdicts, strict=True):
        if row["op"] in (*forced, "sdpa_math") and verdict != "NOT_TRIED":
            states.setdefault(row["op"], []).append(verdict in evidence.SOUND)
    refused = [name for op, name in forced.items() if op in states and not any(states[op])]
    if not any(states.get("sdpa_math", [])) or not refused or len(refused) < len(set(forced) & set(states)):
        return []
    return [finding("SDPA_MATH_ONLY", variant="forced", which=", ".join(refused))]


def _growing(rows: list[Row]) -> list[Finding]:
    chosen = [row for row in rows if evidence.leaks(row)]
    if not chosen:
        return []
    most = max(max(v for k, v in r["growth"].items() if k.endswith("bytes")) / r["growth"]["calls"] for r in chosen)
    return [finding("MEMORY_GROWS", numbers={"count": len(chosen)}, names=names(chosen), mib=most / 2**20)]


def _waiting(rows: list[Row]) -> list[Finding]:
    chosen = [row for row in rows if evidence.levels(row)["no_hidden_sync"] == "no"]
    return [finding("HIDDEN_WAIT", numbers={"count": len(chosen)}, names=names(chosen))] if chosen else []


def _first_calls(rows: list[Row]) -> list[Finding]:
    """Name operators whose first call takes over a second and twenty times a steady one: compiling or searching."""
    slow = []
    for row in rows:
        first, steady = evidence.first_call(row)
        if row["family"] == "compile":  # that is what it is for
            continue
        if first and steady and first > COMPILE_MS and first > COMPILE_TIMES * steady:
            slow.append((first, steady, row))
    if not slow:
        return []
    first, steady, worst = max(slow, key=lambda one: one[0])
    total = sum(one[0] for one in slow) / 1000
    given = {"first_call_ms": first, "median_ms": steady, "count": len(slow), "total_s": total}
    return [finding("COMPILE_ON_FIRST_CALL", variant="operators", numbers=given, op=f"{worst['op']} {worst['dtype']}")]


def _speeds(rows: list[Row]) -> list[Finding]:
    """How many are faster than the CPU in float32, and the median ratio."""
    ratios, faster = [], 0
    for row in rows:
        own, cpu = evidence.speed(row)
        if own and cpu and own.median and row.get("family") not in SPEED_FAMILIES_LEFT_OUT:
            ratios.append((cpu.median / own.median, row))
            faster += evidence.levels(row)["faster_than_cpu"] == "yes"
    if not ratios:
        return []
    slower = [row for ratio, row in sorted(ratios, key=lambda one: one[0]) if ratio < 1]
    given = {"faster": faster, "compared": len(ratios), "median_ratio": statistics.median(r for r, _ in ratios)}
    return [finding("OPERATOR_SPEED", numbers=given, slower=names(slower) or "-")]


def changes(rows: list[Row], before: list[Row]) -> list[tuple[Row, str, str]]:
    """Return (row, verdict before, verdict now) of what differs from the attempt before."""
    old = {(row["set"], row["op"], row["dtype"]): evidence.verdict(row) for row in before}
    pairs = [(row, old.get((row["set"], row["op"], row["dtype"])), evidence.verdict(row)) for row in rows]
    return [(row, then, now) for row, then, now in pairs if then is not None and then != now]


def _changes(rows: list[Row], before: list[Row]) -> list[Finding]:
    if not before:
        return []
    differ = changes(rows, before)
    good = (*evidence.SOUND, "NOT_SUPPORTED")
    mended = [row for row, then, now in differ if then not in good and now in good]
    worse = [row for row, then, now in differ if then in good and now not in good and now != "NOT_TRIED"]
    counted = {"compared": len(before), "mended": len(mended), "worse": len(worse)}
    code = "CHANGED_FOR_THE_WORSE" if worse else "CHANGED_SINCE"
    variant = None if differ or worse else "same"
    said = {"mended_names": names(mended) or "-", "worse_names": names(worse) or "-"}
    return [finding(code, numbers=counted, variant=variant, **said)]


def _not_tried(rows: list[Row], verdicts: list[str]) -> list[Finding]:
    """Rows without a try: by design (no accelerator), or because time or workers ran out, which is a gap."""
    left = [row for row, verdict in zip(rows, verdicts, strict=True) if verdict == "NOT_TRIED"]
    found = []
    for reason in dict.fromkeys(row["not_tried"] for row in left):
        chosen = [row for row in left if row["not_tried"] == reason]
        given = {"count": len(chosen), "total": len(rows)}
        code = "NOT_TRIED" if reason == "needs_accelerator" else "NOT_ALL_TRIED"
        variant = reason if reason in ("worker_will_not_start",) else None
        found.append(finding(code, variant=variant, numbers=given, names=names(chosen)))
    return found


def _blind(rows: list[Row]) -> list[Finding]:
    """Say what inputs were used, because a small random input cannot see every fault."""
    rows = [row for row in rows if row["set"] != "all"]
    tried = Counter(one["inputs"] for row in rows for one in row.get("inputs") or [])
    only = [row for row in rows if len(row.get("inputs") or []) == 1]
    given = {"random_only": len(only), "with_others": sum(len(row.get("inputs") or []) > 1 for row in rows)}
    others = ", ".join(name for name in tried if name != "random") or "-"
    return [finding("INPUTS_TRIED", numbers=given, others=others)] if tried else []


def known(row: Row, *, hip: bool) -> str | None:
    """Return the known problem that a row's error, warnings, output and verdict match."""
    texts = [str(row.get("error") or ""), str(row.get("stderr") or ""), str(row.get("words") or "")]
    return problems.match(row["op"], [*texts, *evidence.said(row), evidence.verdict(row)], hip=hip)
