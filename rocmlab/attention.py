"""Which path does scaled dot product attention take, and what does each cost by length? Measured for notebook 09.

`study(run, model, arm, ...)` forces every back end in turn at the shapes of one model, in a child process; rows go to
the table `attention`: one line (`what` = case) is one back end at one shape, `attention_judges` reads them. A back end
that is refused, crashes or hangs is a row. `attention_trial` holds what the child does.
"""

from __future__ import annotations

import os
from typing import Any

from rocmlab import isolate
from rocmlab.results import Run

TABLE = "attention"
# What torch.nn.attention.SDPBackend calls them.
BACKENDS = {
    "math": "MATH",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
    "overrideable": "OVERRIDEABLE",
}
DEFAULT, NO_CUDNN = "default", "default_without_cudnn"
# Read once by torch, at its first look at a shape: it must be set before Python starts.
SWITCH = "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL"
RESTARTS = 2  # a process that a back end has ended is started again without it, this often


def switch(probe: dict[str, Any], arm: dict[str, str]) -> tuple[str | None, str]:
    """Return (the value of SWITCH to try in a second process, why): the opposite of what it is now; None off ROCm."""
    if arm["device"] == "cpu":
        return None, "the CPU has attention kernels of its own"
    if not probe.get("torch_version_hip"):
        return None, "this torch is no ROCm build"
    on = os.environ.get(SWITCH, "").strip().lower() in ("1", "on", "true", "yes", "y")
    return ("0", "it is on here") if on else ("1", "it is off here")


def study(
    run: Run, model: str, arm: dict[str, str], *, lengths: list[int], switch: tuple[str | None, str], limit_s: float,
    **plan: int,
) -> list[dict[str, Any]]:  # fmt: skip
    """Measure every length in one process; on ROCm the ends again in a second one with the switch turned round.

    `plan` holds samples (steady ones of each case) and visits (new lengths visited first). Returns how each ended.
    """
    given: dict[str, Any] = run.where() | {"model": model, "arm": arm}
    given |= {"lengths": sorted(set(lengths)), "settings": True, **plan}
    ended = _process(run, given, "attention", limit_s)
    value, why = switch
    if value is None:
        run.append(TABLE, {"what": "switch", "name": SWITCH, "status": "NOT_APPLICABLE", "reason": why})
        return ended
    run.append(TABLE, {"what": "switch", "name": SWITCH, "status": "TRIED", "value": value, "reason": why})
    ends = {"lengths": sorted({min(lengths), max(lengths)}), "settings": False}
    return ended + _process(run, given | ends, f"attention, {SWITCH}={value}", limit_s, {SWITCH: value})


def _process(
    run: Run, given: dict[str, Any], what: str, limit_s: float, env: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """Run the child; where a back end ended it, write that down as this back end's row and go on without it."""
    ended: list[dict[str, Any]] = []
    excluded: list[list[str]] = []
    graphs = True
    for _ in range(1 + RESTARTS):
        asked = given | {"excluded": excluded, "graphs": graphs}
        outcome = isolate.call("rocmlab.attention_trial:measure", asked, limit_s=limit_s, env=env)
        ended.append(isolate.record(run, "attention_ended", what, outcome))
        lost = unfinished(run.rows(TABLE))
        if outcome.status == "OK" or lost is None:
            break
        if lost["what"] == "capturing":  # no fault of attention: time it without graphs
            graphs = False
            continue
        run.append(TABLE, lost | {"what": "case", "status": outcome.status, "error": outcome.words})
        excluded.append([lost["backend"], lost["phase"]])
    return ended


def summary(rows: list[dict[str, Any]], **known: Any) -> dict[str, Any]:
    """Return what the rows say for other notebooks: see attention_tables.summary (pure)."""
    from rocmlab import attention_tables  # with pandas behind it, which the measuring process does without

    return attention_tables.summary(rows, **known)


def unfinished(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the row of what was being tried or captured when the process ended; None where nothing was."""
    last = rows[-1] if rows else {}
    return {k: v for k, v in last.items() if k != "at"} if last.get("what") in ("trying", "capturing") else None
