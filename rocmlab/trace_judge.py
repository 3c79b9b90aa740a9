"""What follows from the metrics of a trace? Metrics in, findings out; nothing is measured here.

`judge(profiler.measure(trace))` returns (numbers, findings); `verdict(metrics)` is the rule alone. The thresholds are
conventions, and the numbers stand beside each word.
"""

from __future__ import annotations

import statistics
from typing import Any

from rocmlab.findings import Finding, finding

# Conventions, reported beside the numbers: a device this busy is the limit; a cause that explains this much of idle.
DEVICE_BOUND_PCT, HOST_BOUND_PCT, MAIN_CAUSE_PCT = 85, 25, 60

WINDOW_KEYS = (
    "kernels_outside_window", "busy_us", "busy_pct", "idle_us", "starved_pct", "unlinked_pct", "launches",
    "graph_launches", "graph_kernels", "median_gap_us", "launch_api_us", "launch_latency_us", "launch_period_us",
    "queue_empty_pct", "sync_calls", "sync_us", "cold_launches", "critical_device_pct", "critical_host_pct",
    "other_library_pct", "top_library_pct",
)  # fmt: skip

REASONS = {
    "gemm_mean_us": "no kernel's name says that it multiplies matrices",
    "median_gap_us": "no gaps between device events",
    "launch_latency_us": "no launch found the device idle",
    "launch_period_us": "fewer than two launches in the window",
    "launch_api_us": "no launches in the window",
    "kernels_per_token": "no annotated decode steps",
    "launches_per_token": "no annotated decode steps",
    "token_wall_us": "no annotated decode steps",
}

NOTES = {
    "GRAPH_LAUNCHES": "graph_launches",
    "KERNELS_OUTSIDE_WINDOW": "kernels_outside_window",
    "UNLINKED_DEVICE_TIME": "unlinked_pct",
}


def verdict(found: dict[str, Any]) -> dict[str, Any]:
    """Return {verdict, why}; `why` names the rule that an INCOMPLETE comes from."""
    code, why = _rule(found)
    return {"verdict": code, "why": why}


def _rule(found: dict[str, Any]) -> tuple[str, str | None]:
    if found["truncated"]:
        return "INCOMPLETE", "CUT"
    if not found["categories"]["dev"]:
        return "NO_DEVICE_DATA", None
    if found["window"] is None:
        return "INCOMPLETE", "NO_WINDOW"
    if found["quirks"]["launch_without_device_event"] * 2 > found["launches_in_file"]:
        return "INCOMPLETE", "LAUNCHES_WITHOUT_KERNELS"
    return window_rule(found)


def window_rule(found: dict[str, Any]) -> tuple[str, str | None]:
    """Return the verdict on one window or step from its own metrics."""
    if found["busy_pct"] >= DEVICE_BOUND_PCT:
        return "DEVICE_BOUND", None
    if found["unlinked_busy_us"] * 2 > found["busy_us"]:
        return "INCOMPLETE", "UNLINKED"
    if found["cause"]:
        return "HOST_BOUND", None
    idle_us, why = found["idle_us"]["total"], found["idle_why_us"]
    if why.get("unexplained_wait", 0) >= MAIN_CAUSE_PCT / 100 * idle_us:
        return "INCOMPLETE", "SLICE"
    if why.get("graph_internal", 0) + why.get("queued", 0) >= MAIN_CAUSE_PCT / 100 * idle_us:
        return "DEVICE_GAPS", None
    return "MIXED", None


def cause(parts: dict[str, int], window: int, idle: int) -> str | None:
    """Return what of the host a HOST_BOUND window waited for, its largest part; None where the host is no limit."""
    starved = sum(parts.values())
    limit = max(HOST_BOUND_PCT / 100 * window, MAIN_CAUSE_PCT / 100 * idle)
    return max(parts, key=parts.__getitem__).upper() if starved and starved >= limit else None


def judge(metrics: dict[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    """Return the flat numbers of an answer, null with a reason where unknown, and the findings."""
    flat = numbers(metrics)
    code, why = metrics["verdict"], metrics["why"]
    variant = metrics.get("cause") if code == "HOST_BOUND" else why if code == "INCOMPLETE" else None
    words = {"window": (metrics["window"] or {}).get("label", "-"), **flat}
    answer = finding(code, numbers=_shown(code, flat), variant=variant, **words)
    return flat, [answer, *_faults(metrics, words), *_notes(metrics, words)]


def _shown(code: str, flat: dict[str, Any]) -> dict[str, Any]:
    keys = ("window_us", "busy_us", "busy_pct", "starved_pct", "unlinked_pct", "kernel_us")
    return {key: flat[key] for key in keys if flat.get(key) is not None} if code != "NO_DEVICE_DATA" else {}


def numbers(metrics: dict[str, Any]) -> dict[str, Any]:
    """Return the answer's numbers: counts, times in us, shares in percent of the window."""
    known = "busy_us" in metrics
    every, counts = metrics["all_kernels"], metrics["counts"]
    window = metrics["window"]
    kernels = metrics["kernel_us"] if known else every
    recorded = metrics["categories"]["dev"] > 0
    found: dict[str, Any] = {
        "events": metrics["events"],
        "device_events": metrics["device_events"]["n"] if known else metrics["categories"]["dev"],
        "window_us": window["dur_us"] if window else None,
        "kernels": kernels["n"] if recorded else None,
        "kernel_us": kernels["sum"] if recorded else None,
        "kernel_mean_us": kernels["mean"],
        "gemm_mean_us": kernels["gemm_mean"],
        "negative_events": counts.get("negative", 0),
        "repaired_events": counts.get("repaired", 0),
        "damaged_lines": counts.get("dropped", 0),
    }
    found |= _window_numbers(metrics) if known else dict.fromkeys(WINDOW_KEYS)
    found |= _step_numbers(metrics.get("steps", []))
    reason = _reason(metrics)
    reasons = {
        f"{key}_reason": REASONS.get(key, "not found in this trace") if known else reason
        for key, value in found.items()
        if value is None
    }
    return found | reasons


def _window_numbers(metrics: dict[str, Any]) -> dict[str, Any]:
    launched, path, libraries = metrics["launches"], metrics["critical_path_pct"], metrics["libraries"]
    return {
        "kernels_outside_window": metrics["device_events"]["outside"],
        "busy_us": metrics["busy_us"],
        "busy_pct": metrics["busy_pct"],
        "idle_us": metrics["idle_us"]["total"],
        "starved_pct": metrics["starved_pct_of_window"],
        "unlinked_pct": metrics["unlinked_busy_pct"],
        "launches": launched["n"],
        "graph_launches": launched["graph_launches"],
        "graph_kernels": launched["graph_device_events"],
        "median_gap_us": metrics["idle_us"]["median_gap"],
        "launch_api_us": launched["api_us_median"],
        "launch_latency_us": metrics["launch_delay_us"]["idle_median"],
        "launch_period_us": launched["period_us_median"],
        "queue_empty_pct": metrics["queue"]["empty_pct"],
        "sync_calls": metrics["sync"]["calls"],
        "sync_us": metrics["sync"]["us"],
        "cold_launches": launched["cold"]["n"],
        "critical_device_pct": path["device"],
        "critical_host_pct": path["host"],
        "other_library_pct": libraries.get("other", {"pct": 0.0})["pct"],
        "top_library_pct": next(iter(libraries.values()), {"pct": None})["pct"],
    }


def _step_numbers(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Return medians over the decoded tokens; prefill is another thing and left out."""
    tokens = [step for step in steps if step["kind"] == "token"]
    keys = {"token_wall_us": "wall_us", "kernels_per_token": "kernels", "launches_per_token": "launch_calls"}
    found = {name: [token[key] for token in tokens if key in token] for name, key in keys.items()}
    return {name: statistics.median_low(values) if values else None for name, values in found.items()}


def evidence(metrics: dict[str, Any]) -> dict[str, Any]:
    """Return what the trace gives to the ledger, medians over the decoded tokens; None where it holds none.

    Grade A: `device_busy_ms_a_token` (union of the work launched in a token), `kernels_a_token`, `launches_a_token`,
    `sync_calls_a_token`.
    """
    keys = {
        "device_busy_ms_a_token": "linked_busy_us",
        "kernels_a_token": "kernels",
        "launches_a_token": "launch_calls",
    }
    found = {
        name: median_of_tokens(metrics, key) for name, key in (keys | {"sync_calls_a_token": "sync_calls"}).items()
    }
    busy = found["device_busy_ms_a_token"]
    return found | {"device_busy_ms_a_token": None if busy is None else round(busy / 1000, 4)}


def median_of_tokens(metrics: dict[str, Any], key: str) -> Any:
    values = [step[key] for step in metrics.get("steps", []) if step["kind"] == "token" and key in step]
    return statistics.median_low(values) if values else None


def _reason(metrics: dict[str, Any]) -> str:
    if metrics["truncated"]:
        return "the file was cut: the rest of the window is missing"
    if metrics["verdict"] == "NO_DEVICE_DATA":
        return "no device events were recorded"
    return "no annotated step and no launch record: there is no window"


def _faults(metrics: dict[str, Any], words: dict[str, Any]) -> list[Finding]:
    found = []
    if metrics["truncated"]:
        found.append(finding("TRUNCATED", numbers={"events": metrics["events"]}))
    if words["negative_events"]:
        found.append(finding("NEGATIVE_DURATIONS", numbers={"negative_events": words["negative_events"]}))
    if words["damaged_lines"]:
        found.append(finding("DAMAGED_LINES", numbers={"damaged_lines": words["damaged_lines"]}))
    replays = metrics.get("replays", {"short": 0})
    if replays["short"]:
        found.append(finding("GRAPH_REPLAYS_DIFFER", numbers=replays))
    return found


def _notes(metrics: dict[str, Any], words: dict[str, Any]) -> list[Finding]:
    found = []
    if words["repaired_events"]:
        found.append(finding("REPAIRED", numbers={"repaired_events": words["repaired_events"]}))
    if "busy_us" not in metrics:
        return found
    overlaps, devices = metrics["device_events"]["same_stream_overlaps"], metrics["devices"]
    if overlaps:
        found.append(finding("OVERLAPS_CLIPPED", numbers={"overlaps": overlaps}))
    if devices > 1:
        found.append(finding("SEVERAL_DEVICES", numbers={"devices": devices}, device=metrics["window"]["device"]))
    for code, key in NOTES.items():
        # What the verdict says already is not said again.
        if words[key] >= 0.05 and not (code == "UNLINKED_DEVICE_TIME" and metrics["why"] == "UNLINKED"):
            found.append(finding(code, numbers={key: words[key]}, **words))
    if _launch_bound(metrics, words):
        found.append(finding("LAUNCH_BOUND", **words))
    found += _host_notes(metrics)
    return [*found, finding("PROFILER_LIMITS", variant=metrics["platform"] if metrics["platform"] == "hip" else None)]


def _launch_bound(metrics: dict[str, Any], words: dict[str, Any]) -> bool:
    """Tell whether the reader's word "launch-bound" fits: the host is the limit, by launching many short kernels."""
    if metrics["verdict"] != "HOST_BOUND" or metrics["cause"] not in ("LAUNCH", "DISPATCH"):
        return False
    mean, period = words["kernel_mean_us"], words["launch_period_us"]
    return words["queue_empty_pct"] > 50 and mean is not None and period is not None and mean < period


def _host_notes(metrics: dict[str, Any]) -> list[Finding]:
    """Waits and CPU work that cost at least a percent of the window; a wait on an empty queue is free."""
    found = []
    one_percent = metrics["window"]["dur_us"] / 100
    waited, longest = metrics["starved_by_us"]["sync"], next(iter(metrics["waits"]), None)
    if longest and waited >= one_percent:
        behind = longest["frame"] or longest["operator"] or "-"
        found.append(finding("HIDDEN_SYNCS", numbers={"sync_idle_us": waited}, behind=behind, **longest))
    cpu_us = round(sum(row["us"] for row in metrics["no_launch_ops"].values()), 3)
    # Without launch records every operator looks like one that launches nothing.
    if cpu_us >= one_percent and metrics["launches_in_file"]:
        operators = ", ".join(list(metrics["no_launch_ops"])[:3])
        found.append(finding("CPU_TENSOR_WORK", numbers={"cpu_tensor_us": cpu_us}, operators=operators))
    return found
