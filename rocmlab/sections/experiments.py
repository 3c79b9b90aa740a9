"""11: which change makes decode faster, and did we predict by how much?"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pandas as pd

from rocmlab import (
    changes,
    experiment_judges,
    experiments,
    figures,
    ledger,
    ledger_judges,
    ledger_tables,
    plots,
    remedies,
    results,
    sensor_judges,
    words,
    yardstick_judges,
)
from rocmlab.findings import Finding, finding
from rocmlab.sections import Figure, Section, Table, Text, question
from rocmlab.sections.prefill_decode import footer
from rocmlab.timing import Interval

SHOWN = 12  # remedies in the figure
RANGE = (0.02, 50.0)  # of a ratio that a figure shows
SHORT = {"fused_rmsnorm": "fused RMSNorm", "merged_linears": "merged QKV, gate/up", "graph": "graph replay"}


def section(run: Path) -> Section:
    """Return predictions beside observations, the ranking of remedies, both figures and the findings of notebook 11."""
    rows, foretold = results.rows(run, "experiments"), results.rows(run, "predictions")
    account, engines = ledger.of_run(run), results.rows(run, "yardstick")
    why = None if account else ledger_judges.absent(results.rows(run, "step_ended"))
    if not rows and not foretold and not account and not why:
        return Section("11", question("11"), missing=words.both("reason_no_records", notebook="11"))
    found = experiment_judges.judge(rows, foretold)
    made = Section("11", question("11"), findings=[*ledger_judges.judge(account), *found], how=words.both("how_11"))
    made.findings += yardstick_judges.judge(engines, results.rows(run, "lengths")) if engines else []
    made.findings += judge_sensors(rows, results.rows(run, "step"))
    head: dict[str, Any] = next((row for row in rows or foretold if row.get("model_spec")), {})
    made.provenance = [str(part) for part in (head.get("model_spec"), head.get("dtype")) if part]
    made.answers = _answers(found)
    shown = ("ledger_quantities", "ledger_checks")
    if why:
        made.findings.insert(0, finding("STEP_NOT_TAKEN_APART", why=why))
        made.absent |= dict.fromkeys(shown, why)
    made.tables = [one for one in ledger_tables.tables(account) if one.name in shown] if account else []
    if foretold:
        foreseen = words.both("experiments_foretold")
        made.tables.append(Table("experiments_foretold", foreseen, foretold_table(foretold), labels=LABELS))
    if any(row.get("status") == "OK" for row in engines):
        frame = yardstick_judges.table(engines)
        made.tables.append(Table("yardstick", words.both("yardstick_table"), frame, labels=yardstick_judges.LABELS))
    elif engines:
        made.absent["yardstick"] = dict.fromkeys(words.LANGUAGES, str(engines[-1].get("reason") or ""))
    lines = experiments.score(rows, foretold)
    ranked = remedies.rank(rows)
    if rows:
        made.tables.append(
            Table("experiments_scored", words.both("experiments_scored"), scored(rows, lines), labels=LABELS)
        )
        made.tables.append(
            Table("experiments_remedies", words.both("experiments_remedies"), ranking(ranked), labels=LABELS)
        )
    foot = footer(run, rows or foretold)
    if lines:
        made.figures.append(
            Figure("experiments_predicted", lambda: draw_predicted(lines, foot), alt_predicted(lines),
                   words.both("figure_experiments_predicted"))
        )  # fmt: skip
    else:
        made.absent["experiments_predicted"] = words.both("experiments_none_scored")
    good = [one for one in ranked if one["gain_ratio"] and one["sound"] is not False]
    if good:
        made.figures.append(
            Figure("experiments_gains", lambda: draw_remedies(good, foot), alt_remedies(good),
                   words.both("figure_experiments_gains"))
        )  # fmt: skip
    else:
        made.absent["experiments_gains"] = words.both("experiments_none_gained")
    return made


def judge_sensors(rows: list[dict[str, Any]], steps: list[dict[str, Any]]) -> list[Finding]:
    """Say when the step slowed down while the ledger was measured, or heat or memory stood in the way of a change."""
    whole: list[float] = next((row["samples_ms"] for row in steps if row.get("quantity") == "T"), [])
    beside: list[Any] = next((row["sensors"] for row in steps if row.get("sensors")), [])
    found = sensor_judges.faults(beside, whole, "decode step")
    told = {one["code"] for one in found}
    later = sensor_judges.faults([row.get("sensor") for row in rows], op="experiments")
    return found + [one for one in later if one["code"] not in told]


def _answers(found: list[Finding]) -> dict[str, Finding]:
    codes = ("REMEDY_FOUND", "NO_REMEDY_HELPS")
    best = next((one for one in found if one["code"] in codes), None)
    return {"faster": best} if best else {}


# ---- tables


def foretold_table(foretold: list[dict[str, Any]]) -> pd.DataFrame:
    """Return what was predicted before anything ran, and why."""
    lines = []
    for row in foretold:
        why = row.get("prediction_why") or row.get("predicted_ratio_reason")
        line = {"experiment": experiment_judges.label(row["name"]), "predicted_ratio": row.get("predicted_ratio")}
        lines.append(line | {"predicted_ratio_reason": row.get("predicted_ratio_reason"), "why": why})
    return pd.DataFrame(lines, columns=["experiment", "predicted_ratio", "predicted_ratio_reason", "why"])


def scored(rows: list[dict[str, Any]], lines: list[dict[str, Any]]) -> pd.DataFrame:
    """Return each experiment: predicted and observed change, what was allowed, and whether it held; or how it ended."""
    by_name = {line["name"]: line for line in lines}
    made = []
    for row in rows:
        seen, line = experiments.observed(row), by_name.get(row["name"])
        held = words.both("experiments_hit" if line["hit"] else "experiments_miss") if line else None
        made.append(
            {
                "experiment": experiment_judges.label(row["name"]),
                "status": row.get("status"),
                "predicted_ratio": row.get("predicted_ratio"),
                "predicted_ratio_reason": row.get("predicted_ratio_reason"),
                "observed_ratio": seen,
                "observed_ratio_reason": _short(row.get("reason")),
                "allowed": line["allowed"] if line else None,
                "held": held,
            }
        )
    return pd.DataFrame(made)


def ranking(ranked: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the remedies, best first, with gain, rate, costs and the error of their logits; or why there is none."""
    lines = []
    for one in ranked:
        gain = None
        if one["gain_ratio"]:
            ends = one["gain_ratio"], one["gain_ratio_low"], one["gain_ratio_high"]
            gain = Interval(*ends, n=one["n"], enough=one["enough"])
        why = _short(one.get("reason"))
        status = words.both("experiments_wrong") if one["sound"] is False else one["status"]
        line = {"remedy": experiment_judges.label(one["name"]), "status": status, "gain_ratio": gain}
        line |= {"gain_ratio_reason": why, "decode_tok_s": one["decode_tok_s"], "compile_s": one["compile_s"]}
        line |= {"memory_gib": one["memory_gib"], "logits_error": one["logits_error"]}
        line |= {"memory_gib_reason": words.both("experiments_no_memory")}
        line |= {"compile_s_reason": words.both("experiments_no_compile")}
        line |= {"own_error": one["logits_error_baseline"]}
        line |= {f"{name}_reason": _short(one["logits_reason"]) for name in ("logits_error", "own_error")}
        lines.append(line | {"how": _how(one), "how_reason": words.both("experiments_no_how")})
    return pd.DataFrame(lines)


def _how(one: dict[str, Any]) -> Text | None:
    """Return how to have a remedy that helps here; None for another, and for one of another version."""
    known = remedies.helps(one) and one["name"] in changes.CATALOGUE
    return words.both(f"remedy_how_{one['name']}") if known else None


def _short(reason: Any) -> Any:
    if not isinstance(reason, str):
        return reason
    lines = [line for line in reason.splitlines() if line.strip()]
    return lines[-1][:160] if lines else None


# ---- figures


def _name(name: str) -> str:
    return SHORT.get(name) or words.pick(experiment_judges.label(name), "en")


def points(lines: list[dict[str, Any]]) -> pd.DataFrame:
    """Return predicted and observed ratio of each scored experiment, sorted by what was observed."""
    ordered = sorted(lines, key=lambda one: one["observed_ratio"])
    keys = ("predicted_ratio", "observed_ratio", "observed_ratio_low", "observed_ratio_high", "hit")
    return pd.DataFrame([{"experiment": _name(one["name"])} | {key: one[key] for key in keys} for one in ordered])


@figures.styled
def draw_predicted(lines: list[dict[str, Any]], foot: str) -> Any:
    """Draw, for each experiment, the predicted step beside the observed one on a line of "times as long"; "no change"
    is the upright line at 1."""
    frame = points(lines)
    figure, ax = figures.canvas(1.4 + 0.3 * len(frame))
    roles = figures.roles(["GPU", "CPU"])
    for place, line in enumerate(frame.to_dict("records")):
        ends = [line["predicted_ratio"], line["observed_ratio"]]
        colour = figures.RULE if line["hit"] else figures.MUTED
        ax.plot(ends, [place, place], color=colour, linewidth=1.2, zorder=1)
        ax.plot(ends[1], place, marker="o", color=roles["GPU"].colour, markersize=6, linestyle="")
        ax.plot(
            ends[0], place, marker="D", markerfacecolor="white", markeredgecolor=roles["CPU"].colour, markersize=6,
            linestyle="",
        )  # fmt: skip
    low, high = (
        min(RANGE[1], max(RANGE[0], end))
        for end in (
            min(frame["predicted_ratio"].min(), frame["observed_ratio"].min(), 0.8),
            max(frame["predicted_ratio"].max(), frame["observed_ratio"].max(), 1.25),
        )
    )
    ax.set_xscale("log")
    ax.set_xlim(low / 1.15, high * 1.15)
    ticks = [t for t in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if low / 1.15 <= t <= high * 1.15]
    ax.set_xticks(ticks, [f"{t:g}×" for t in ticks])
    ax.minorticks_off()
    missed = [" (missed)" if not hit else "" for hit in frame["hit"]]
    wide = figure.get_figwidth() > figures.NARROW_IN
    names = [textwrap.fill(f"{n}{m}", 36 if wide else 20) for n, m in zip(frame["experiment"], missed, strict=True)]
    ax.set_yticks(range(len(frame)), names, fontsize=8)
    ax.tick_params(axis="y", length=0, labelcolor=figures.INK)
    ax.set_ylim(len(frame) - 0.4, -0.9)
    ax.axvline(1.0, color=figures.ROLES["ceiling"].colour, linestyle="--", linewidth=1.3, zorder=0)
    ax.annotate("no change", (1.0, -0.75), xytext=(3, 0), textcoords="offset points", fontsize=8.5, color=figures.MUTED,
                va="center")  # fmt: skip
    ax.set_xlabel("time of a step, changed / as it is")
    ax.grid(axis="x")
    figures.footer(figure, foot)
    return figure


def draw_remedies(ranked: list[dict[str, Any]], foot: str) -> Any:
    """Draw tok/s of the loop as it is and with each remedy, the best first."""
    frame = bars(ranked)
    arms = list(dict.fromkeys(frame["arm"]))
    figure, ax = figures.canvas(1.3 + 0.5 * len(set(frame["remedy"])))
    plots.paired_bars(
        ax, frame, category="remedy", arm="arm", value="decode_tok_s", unit="tok/s",
        ratio_of=(arms[0], arms[1]) if len(arms) == 2 else None,
    )  # fmt: skip
    figures.footer(figure, foot)
    return figure


def bars(ranked: list[dict[str, Any]]) -> pd.DataFrame:
    """Return two bars a remedy: with it, and the same loop as it is, measured beside it."""
    found = []
    for one in ranked[:SHOWN]:
        for arm, key in (("changed", "decode_tok_s"), ("as-is", "usual_tok_s")):
            found.append({"remedy": _name(one["name"]), "arm": arm, "decode_tok_s": one[key]})
    return pd.DataFrame(found)


def alt_predicted(lines: list[dict[str, Any]]) -> Text:
    """Say predicted and observed ratios in words."""
    told = [
        f"{_name(one['name'])}: {words.number(one['predicted_ratio'])} / {words.number(one['observed_ratio'])}"
        for one in lines
    ]
    return words.both("alt_experiments_predicted", values="; ".join(told))


def alt_remedies(ranked: list[dict[str, Any]]) -> Text:
    """Say the rates in words."""
    told = [f"{_name(one['name'])}: {words.number(one['decode_tok_s'], 'tok/s')}" for one in ranked[:SHOWN]]
    return words.both("alt_experiments_gains", values="; ".join(told))


NAMES = (
    "experiment", "predicted_ratio", "observed_ratio", "allowed", "held", "status", "why", "remedy", "gain_ratio",
    "decode_tok_s", "compile_s", "memory_gib", "logits_error", "own_error", "how",
)  # fmt: skip
LABELS = {name: words.both(f"experiments_column_{name}") for name in NAMES}
