"""What does the missing fused attention cost a step, by length: much, little, or not to be told? Pure.

`judge(decode, prefill)` takes the lines of attention_tables.costs, which hold a gap a length with its interval.
"""

from __future__ import annotations

from typing import Any

from rocmlab import words
from rocmlab.findings import Finding, finding
from rocmlab.words import number

LITTLE_PCT = 5.0  # of a step: less is worth little


def judge(decode: list[dict[str, Any]], prefill: list[dict[str, Any]]) -> list[Finding]:
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
