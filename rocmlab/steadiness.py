"""May the generation numbers be believed? Judges of noise, other work, two states, drift and early ends, pure.

A sample is compared with the others of its own prompt, so that a prompt that is slower by nature is no disturbance.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from rocmlab import first_visits, sensor_judges, timing
from rocmlab.findings import Finding, finding
from rocmlab.first_visits import Visit
from rocmlab.speed import main_arms, steady

MEMORY_SHORT_SHARE = 0.1  # of the device's memory in use by others at the start: another process is on the GPU


def judge(rows: list[dict[str, Any]], frame: pd.DataFrame) -> list[Finding]:
    """Return what makes the timings less than they seem; [] for a calm machine and whole texts."""
    found = [*_early(rows), *_at_start(rows), *_others(frame)]
    for arm in main_arms(frame):
        found += _judge_arm(frame, arm)
    return found + _repeats(rows)


def judge_processes(processes: list[dict[str, Any]]) -> list[Finding]:
    """Say how many measuring processes did not end well, and how they ended."""
    ended = [one for one in processes if one["status"] != "OK"]
    if not ended:
        return []
    numbers = {"ended": len(ended), "count": len(processes)}
    words = "; ".join(dict.fromkeys(f"{one['status']}, {one['words']}" for one in ended))
    return [finding("PROCESS_ENDED", numbers=numbers, words=words)]


def _early(rows: list[dict[str, Any]]) -> list[Finding]:
    early = [row for row in rows if (row.get("new_tokens") or 0) < (row.get("max_new_tokens") or 0)]
    if not early:
        return []
    numbers = {"new_tokens": early[0]["new_tokens"], "max_new_tokens": early[0]["max_new_tokens"]}
    return [finding("STOPPED_EARLY", numbers=numbers)]


def _at_start(rows: list[dict[str, Any]]) -> list[Finding]:
    """Say what was going on before the first measurement: load above the cores, somebody else on the GPU."""
    found, load = [], (rows[0].get("load") or {}) if rows else {}
    if (load.get("load_1min") or 0) > (load.get("cores") or 1):
        found.append(finding("LOADED_AT_START", numbers={"load_1min": load["load_1min"], "cores": load["cores"]}))
    whole, free = load.get("device_memory_bytes"), load.get("device_free_bytes")
    if whole and free is not None and whole - free > MEMORY_SHORT_SHARE * whole:
        numbers = {"device_used_gib": (whole - free) / 2**30, "device_memory_gib": whole / 2**30}
        found.append(finding("GPU_MEMORY_TAKEN", numbers=numbers))
    return found


def _others(frame: pd.DataFrame) -> list[Finding]:
    """Name other work when it disturbed any one process, and say so when the clock was too short to tell."""
    chosen = steady(frame)
    told = chosen.dropna(subset=["others_cpu_pct"])
    if told.empty:
        return [finding("OTHER_WORK_UNKNOWN")] if len(chosen) else []
    worst = float(told.groupby("process")["others_cpu_pct"].median().max())
    if worst <= timing.OTHERS_PCT:
        return []
    numbers = {"others_cpu_pct": worst, "others_cpu_max_pct": float(told["others_cpu_pct"].max())}
    return [finding("OTHER_WORK", numbers=numbers)]


def level(frame: pd.DataFrame, arm: str) -> pd.DataFrame:
    """Return an arm's steady rows with `tok_s`: each rate relative to its prompt's median, at the arm's own median."""
    chosen = steady(frame)
    chosen = chosen[chosen["arm"] == arm].dropna(subset=["decode_tok_s"])
    rates = chosen["decode_tok_s"].astype(float)
    own = rates.groupby(chosen["prompt_id"]).transform("median")
    return chosen.assign(tok_s=rates / own * rates.median())


def _judge_arm(frame: pd.DataFrame, arm: str) -> list[Finding]:
    side, even = "CPU" if arm == "cpu" else "GPU", level(frame, arm)
    samples, found = list(even["tok_s"]), []
    states = timing.two_states(samples)
    if states:
        found.append(_two_states(even, arm, side, states))
    spread = timing.spread_pct(samples)
    if spread is not None and spread > timing.NOISY_PCT:
        variant = "very" if spread > timing.VERY_NOISY_PCT else None
        found.append(finding("NOISY", numbers={f"{arm}_iqr_pct": spread}, variant=variant, side=side, spread=spread))
    if not states:  # a machine that changes over has no one slope
        found += sensor_judges.faults(list(even["sensor"]), [1000 / one for one in samples], f"{side} decode step")
    return found + _first_visit(frame, arm, side)


def _first_visit(frame: pd.DataFrame, arm: str, side: str) -> list[Finding]:
    """Compare the first text of a process, which goes through the lengths of all, with its own steady ones."""
    chosen = frame[(frame["arm"] == arm) & (frame["kind"] == "main")].dropna(subset=["itl_ms"])
    visits = []
    for _, group in chosen.groupby("process"):
        first, usual = (group[group["visit"] == visit] for visit in ("first", "steady"))
        if len(first) and len(usual):
            new = first.iloc[0]
            visits.append(Visit(float(new["itl_ms"]), float(usual["itl_ms"].median()), new["itl_most_ms"]))
    found = first_visits.cost(visits)
    if found is None or not found.slow:
        return []
    numbers = {f"{arm}_first_visit_itl_ms": found.first_ms, f"{arm}_steady_itl_ms": found.usual_ms}
    return [first_visits.slow(found, side, numbers)]


def _two_states(even: pd.DataFrame, arm: str, side: str, states: timing.States) -> Finding:
    """Name both states, and whether a process stays in one or changes over while it runs."""
    groups = [group["tok_s"] > states.cut for _, group in even.groupby("process")]
    stays = all(fast.all() or not fast.any() for fast in groups)
    numbers = {f"{arm}_slow_state_tok_s": states.low, f"{arm}_fast_state_tok_s": states.high}
    words = {"slow": states.low, "fast": states.high, "n_slow": states.n_low, "n_fast": states.n_high}
    return finding("TWO_STATES", numbers=numbers, variant=None if stays else "inside", side=side, **words)


def _repeats(rows: list[dict[str, Any]]) -> list[Finding]:
    """Greedy decoding of one prompt by one arm must give the same tokens every time."""
    seen: dict[tuple, set] = {}
    for row in rows:
        if row.get("visit") == "steady" and row.get("kind") == "main" and row.get("token_ids"):
            key = (row["arm"], row["prompt_id"], row["max_new_tokens"])
            seen.setdefault(key, set()).add(tuple(row["token_ids"]))
    varied = sorted({key for key, variants in seen.items() if len(variants) > 1})
    if not varied:
        return []
    numbers = {"prompts_that_varied": len(varied), "prompts_compared": len(seen)}
    return [finding("NOT_REPEATABLE", numbers=numbers, arms=", ".join(sorted({key[0] for key in varied})))]
