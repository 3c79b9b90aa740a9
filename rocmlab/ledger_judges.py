"""What binds a decode step, and what about the measurement needs saying? Pure: an account in, findings out."""

from __future__ import annotations

from typing import Any

from rocmlab import timing, words
from rocmlab.findings import Finding, finding, worst_first
from rocmlab.ledger_lanes import known
from rocmlab.words import number

BOUND = {"host_bound": "HOST_BOUND", "device_bound": "DEVICE_BOUND", "mixed": "MIXED", "undecided": "UNDECIDED"}
FAILED = {  # what a check says when it does not pass; the rest is plain to see in the table of checks
    "residual": "RESIDUAL_LARGE",
    "agree": "DEVICE_TIMES_DISAGREE",
    "twin": "HOST_AND_DEVICE_NOT_APART",
    "launch_cost": "LAUNCH_COST_DISAGREES",
    "enqueue": "ENQUEUE_DISAGREES",
    "queue": "QUEUE_NOT_AVAILABLE",
    "one_way": "SINGLE_METHOD",
    "operators": "OPERATORS_NOT_TIMED",
}


def judge(account: dict[str, Any] | None) -> list[Finding]:
    """Return the findings of an account (ledger.build), worst first; [] without one."""
    if not account or not (account["quantities"].get("T") or {}).get("ms"):
        return []
    found = [judge_regime(account), *judge_launches(account), *judge_checks(account), *judge_conditions(account)]
    return worst_first(found)


def judge_regime(account: dict[str, Any]) -> Finding:
    """Say which lane binds, how long both are, and how much of the other is hidden."""
    found, regime = account["quantities"], account["regime"]
    step, host, device = found["T"], _host(account), account["device_ms"] or {}
    given = {"step_ms": step["ms"], "host_ms": host.get("ms"), "device_ms": device.get("ms")}
    given |= {"hidden_ms": account["hidden_ms"], "residual_pct": account["residual_pct"]}
    for key in [key for key, value in given.items() if value is None]:
        given[f"{key}_reason"] = "not measured, or it does not count"
    said: dict[str, Any] = {"step": step_said(account), "host": number(host.get("ms"), "ms")}
    said |= {"device": number(device.get("ms"), "ms")}
    said["by"] = words.both(f"ledger_by_{account['device_by']}") if account["device_by"] else words.NONE
    for name, one in (("host", host), ("device", device)):
        said[f"{name}_pct"] = number(round(100 * one["ms"] / step["ms"]) if one.get("ms") is not None else None, "%")
    if account["device_upper"]:
        said["device"] = words.both("at_most", ms=said["device"])
    variant = "ledger_cpu" if account["subject"]["device"] == "cpu" else "ledger"
    if regime == "device_bound" and variant == "ledger" and not known(host):
        variant = "ledger_alone"
    return finding(BOUND[regime], numbers=given, variant=variant, **said, why=why(account))


def _host(account: dict[str, Any]) -> dict[str, Any]:
    """Return the host's part: the twin's step, on a CPU without what of it belongs to the operators (as the lane says).

    There host and operators follow one another, so that what both hold may not count twice.
    """
    twin = account["quantities"].get("H") or {}
    if account["subject"]["device"] != "cpu":
        return twin
    lane: dict[str, Any] = next((row for row in account["host_lane"] if row["name"] == "python_dispatch"), {})
    return lane if lane.get("ms") is not None else twin


def absent(ended: list[dict[str, Any]]) -> dict[str, str] | None:
    """Return how taking the step apart ended, where that was before its time was known; None for a good end or none."""
    bad = [row for row in ended[-1:] if row.get("status") != "OK"]
    return words.both("ledger_not_taken", status=bad[0].get("status"), words=bad[0].get("words")) if bad else None


def step_said(account: dict[str, Any]) -> dict[str, str]:
    """Return the time of the step in words, with its texts and context where it is not the step of one text."""
    ms, subject = number(account["quantities"]["T"]["ms"], "ms"), account["subject"]
    if (subject.get("batch") or 1) == 1:
        return dict.fromkeys(words.LANGUAGES, ms)
    return words.both("ledger_texts", ms=ms, texts=subject["batch"], context=f"{subject['context']:,}")


def why(account: dict[str, Any]) -> dict[str, str]:
    """Return the first check that keeps a step undecided, in both languages."""
    named = {one["name"]: one for one in account["checks"]}
    wanted = [named[name] for name in ("twin", "firm") if name in named and named[name]["passed"] is False]
    open_ = [named[n] for n in ("operators", "one_way", "twin", "firm") if n in named and named[n]["passed"] is None]
    holes = [named["operators"]] if named.get("operators", {}).get("passed") is False else []
    failed = [*wanted, *holes, *open_] if account["subject"]["device"] != "cpu" else [*wanted, *open_]
    return failed[0]["said"] if failed else {"en": "no reason was recorded", "zh": "没有记录原因"}


def judge_launches(account: dict[str, Any]) -> list[Finding]:
    """Say what launching takes of the step, where it could be told apart from Python."""
    rows = {row["name"]: row for row in account["host_lane"]}
    launch, python = rows["launch"], rows["python_dispatch"]
    count = (account["launches"] or {}).get("count")
    if launch["ms"] is None or python["ms"] is None or not count:
        return []
    given = {"launch_ms": launch["ms"], "python_ms": python["ms"], "launches": count}
    given["us_a_launch"] = 1000 * launch["ms"] / count
    said: dict[str, Any] = {"launch": number(launch["ms"], "ms"), "python": number(python["ms"], "ms")}
    said |= {"step": step_said(account), "us": number(given["us_a_launch"], "us")}
    return [finding("LAUNCH_AND_PYTHON", numbers=given, n=count, **said)]


def judge_conditions(account: dict[str, Any]) -> list[Finding]:
    """Say it when other processes used the processor while the step was measured, and when fewer texts than were asked
    for fit into memory."""
    others, asked, found = account["others_cpu_pct"], account.get("texts_asked"), []
    if others and others > timing.OTHERS_PCT:
        found.append(finding("OTHER_WORK", numbers={"others_cpu_pct": others, "others_cpu_max_pct": others}))
    if asked:
        numbers = {"texts": account["subject"]["batch"], "texts_asked": asked}
        found.append(finding("FEWER_TEXTS", numbers=numbers, context=f"{account['subject']['context']:,}"))
    return found


def judge_checks(account: dict[str, Any]) -> list[Finding]:
    """Say every check that did not pass, with its own words."""
    failed = [one for one in account["checks"] if one["passed"] is False and one["name"] in FAILED]
    return [finding(FAILED[one["name"]], numbers=one["numbers"], said=one["said"]) for one in failed]
