"""llama-bench's output: which model on which device reads and writes how fast, and how much of the card is that?"""

from __future__ import annotations

from typing import Any

from rocmlab import archs, llama_bench
from rocmlab.findings import Finding, finding
from rocmlab.llama_bench import Row
from rocmlab.readers import Evidence, Reading, decode
from rocmlab.words import number

LOW_PCT, NEAR_PCT = 30.0, 60.0  # of the stated peak: below is a fixed cost, above is bound by bandwidth
SHOWN = 6


def recognise(evidence: Evidence) -> bool:
    return llama_bench.recognise(decode(evidence.head))


def read(evidence: Evidence) -> Reading:
    """Return the rates of every test, and how far the card's memory is used while it writes."""
    tests, damaged = llama_bench.parse(evidence.text)
    numbers: dict[str, Any] = {"tests": len(tests), "damaged_tests": damaged}
    for name, kind in (("prefill", "pp"), ("decode", "tg")):
        numbers |= _best(name, [one for one in tests if llama_bench.kind(one) == kind])
    headline = finding("LLAMA_BENCH_READ", tests=len(tests), said=said(tests))
    return Reading("llama_bench", None, numbers, judge(tests, damaged), headline)


def _best(name: str, tests: list[Row]) -> dict[str, Any]:
    """Return the fastest test of a kind, flat; of several also the slowest."""
    if not tests:
        why = f"no test of this kind ({'pp' if name == 'prefill' else 'tg'}) in the file"
        return {f"{name}_tok_s": None, f"{name}_tok_s_reason": why}
    best = max(tests, key=lambda one: one["tok_s"])
    found: dict[str, Any] = {f"{name}_tok_s": best["tok_s"]}
    if len(tests) > 1:
        found[f"slowest_{name}_tok_s"] = min(one["tok_s"] for one in tests)
    if name == "decode":
        found |= {"decode_gb_s": llama_bench.gb_s(best), "model_gb": (best["model_bytes"] or 0) / 1e9 or None}
        found |= {f"{key}_reason": "the output gives no model size" for key in ("decode_gb_s", "model_gb")
                  if found[key] is None}  # fmt: skip
    return found


def said(tests: list[Row]) -> str:
    """Say every model and device once, with its rates; long files are cut, and say by how many."""
    groups: dict[str, list[str]] = {}
    for test in tests:
        device, backend = llama_bench.device(test), test["backend"]
        name = f"{test['model']} on {backend}" + (f" ({device})" if device not in (backend, "CPU") else "")
        groups.setdefault(name, []).append(_rate(test))
    told = [f"{name}: {', '.join(rates)}" for name, rates in groups.items()]
    more = f"; +{len(told) - SHOWN}" if len(told) > SHOWN else ""
    return ("; ".join(told[:SHOWN]) or "no test") + more


def _rate(test: Row) -> str:
    parts = [f"pp{test['prompt_tokens']}"] * bool(test["prompt_tokens"]) + [f"tg{test['new_tokens']}"] * bool(
        test["new_tokens"]
    )
    name = "+".join(parts) + (f" @ d{test['depth']}" if test["depth"] else "")
    moved = llama_bench.gb_s(test)
    return f"{name} {number(test['tok_s'], 'tok/s')}" + (f" = {number(moved, 'GB/s')}" if moved else "")


# ---- judge


def judge(tests: list[Row], damaged: int = 0) -> list[Finding]:
    """Say how near writing comes to the card's stated peak, and when a build for a card did not use it."""
    found: list[Finding] = []
    if damaged or not tests:
        found.append(finding("DAMAGED_LINES", numbers={"records": len(tests), "damaged_lines": damaged}))
    idle = [one for one in tests if llama_bench.on_cpu(one) and not _cpu_build(one)]
    if idle and len(idle) == len(tests):
        found.append(finding("LLAMA_BENCH_NOT_OFFLOADED", backend=idle[0]["backend"]))
    writing = [one for one in tests if llama_bench.kind(one) == "tg" and not one["depth"] and llama_bench.gb_s(one)]
    best: dict[str, Row] = {}
    for test in writing:
        device = llama_bench.device(test)
        if device not in best or (llama_bench.gb_s(test) or 0) > (llama_bench.gb_s(best[device]) or 0):
            best[device] = test
    return found + [_against_peak(device, test) for device, test in best.items()]


def _cpu_build(test: Row) -> bool:
    return {one.strip() for one in test["backend"].split(",")} <= llama_bench.NO_GPU


def peak(name: str) -> float | None:
    """Return the stated bandwidth of a card in GB/s, None for one that archs.yaml does not know (and every CPU)."""
    known = archs.product(archs.identify(name), name)
    return known["bandwidth_gbs"] if known else None


def _against_peak(device: str, test: Row) -> Finding:
    moved, limit = llama_bench.gb_s(test), peak(device)
    given = {"decode_gb_s": moved, "decode_tok_s": test["tok_s"], "stated_gb_s": limit}
    words = {"device": device, "model": test["model"], "backend": test["backend"]}
    if not limit or moved is None:
        given["stated_gb_s_reason"] = "no stated bandwidth is known for this device"  # type: ignore[assignment]
        return finding("LLAMA_BENCH_RATE", numbers=given, variant="no_peak", **words)
    given["peak_pct"] = 100 * moved / limit
    if given["peak_pct"] > 105:
        return finding("LLAMA_BENCH_RATE", numbers=given, variant="over", **words)
    if given["peak_pct"] < LOW_PCT:
        return finding("LLAMA_BENCH_SLOW", numbers=given, **words)
    return finding(
        "LLAMA_BENCH_RATE", numbers=given, variant=None if given["peak_pct"] >= NEAR_PCT else "between", **words
    )
