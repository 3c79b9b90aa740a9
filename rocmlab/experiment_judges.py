"""What did the experiments show: did predictions hold, which remedy helps, what binds, is the model too small? Pure.

`judge(rows, foretold)` takes the records of one run and returns findings; each can come out more than one way.
"""

from __future__ import annotations

import statistics
from typing import Any

from rocmlab import changes, experiments, remedies, words
from rocmlab.findings import Finding, finding, worst_first
from rocmlab.words import number

HOLDS_SHARE = 0.75  # of the predictions, within their score
FEWEST = 4  # predictions below which nothing is said about them
WIDER_FREE = 1.15  # a model twice as wide that takes no longer than this costs nothing more
WIDER_PAID = 1.5
FOLLOWS, HIDDEN = 0.6, 0.25  # of an injected delay that shows in the step
VISIT_COSTS = 1.3  # times the second visit
ROW_SLOW = 0.9  # another way over the same weights, in no more of the time than this


def judge(rows: list[dict[str, Any]], foretold: list[dict[str, Any]]) -> list[Finding]:
    """Return every finding of the experiments, worst first; [] when none ran."""
    if not rows:
        return []
    by_name = {row["name"]: row for row in rows}
    found = [*judge_remedies(rows), *judge_predictions(rows, foretold), *judge_ends(rows)]
    found += [*judge_size(by_name), *judge_delays(by_name), *judge_visits(by_name), *judge_one_row(by_name)]
    return worst_first(found)


def label(name: str) -> dict[str, str]:
    """What an experiment is called; a name of another version stays as it is."""
    known = changes.CATALOGUE.get(name)
    return known.label if known else {"en": name, "zh": name}


def _labels(names: list[str]) -> dict[str, str]:
    return {lang: ", ".join(label(name)[lang] for name in names) for lang in words.LANGUAGES}


def _seen(by_name: dict[str, dict[str, Any]], name: str) -> float | None:
    found = experiments.observed(by_name.get(name) or {})
    return found.median if found else None


# ---- remedies


def judge_remedies(rows: list[dict[str, Any]]) -> list[Finding]:
    """Name the best remedy, or say that none helps, or that none could be measured; wrong ones are named."""
    ranked = remedies.rank(rows)
    measured = [one for one in ranked if one["gain_ratio"]]
    found = [_wrong(one) for one in measured if one["sound"] is False]
    best = remedies.best(rows)
    if best:
        return [_found(best), *found]
    if not measured:
        if ranked:
            found.append(finding("REMEDIES_NOT_MEASURED", numbers={"remedies_tried": len(ranked)}))
        return found
    right = [one for one in measured if one["sound"] is not False]
    if not right:
        return found
    top = right[0]
    numbers = {"best_gain_ratio": top["gain_ratio"], "remedies_measured": len(right)}
    code = "NO_REMEDY_HELPS"
    if not top["enough"] or top["gain_ratio"] >= remedies.HELPS:
        code = "REMEDIES_UNDECIDED"
    return [finding(code, numbers=numbers, what=label(top["name"])), *found]


def _found(best: dict[str, Any]) -> Finding:
    keys = ("gain_ratio", "gain_ratio_low", "gain_ratio_high", "decode_tok_s", "usual_tok_s", "compile_s", "memory_gib")
    numbers = {f"remedy_{key}": best.get(key) for key in keys}
    numbers |= {key: best.get(key) for key in ("logits_error", "logits_error_baseline", "logits_max_abs")}
    said = {"what": label(best["name"]), "rate": number(best["decode_tok_s"]), "usual": number(best["usual_tok_s"])}
    said |= {"gain": number(best["gain_ratio"]), "error": number(best.get("logits_error"))}
    said |= {"own": number(best.get("logits_error_baseline")), "most": number(best.get("logits_max_abs"))}
    variant = None if best["sound"] else "unchecked"
    return finding("REMEDY_FOUND", numbers=numbers, variant=variant, **said)


def _wrong(one: dict[str, Any]) -> Finding:
    numbers = {"logits_error": one["logits_error"], "logits_max_abs": one["logits_max_abs"]}
    return finding("REMEDY_WRONG", numbers=numbers, what=label(one["name"]))


# ---- predictions


def judge_predictions(rows: list[dict[str, Any]], foretold: list[dict[str, Any]]) -> list[Finding]:
    """Say whether three quarters held and beat "no change" in total; then every miss, with its numbers."""
    lines = experiments.score(rows, foretold)
    total = experiments.totals(lines)
    numbers = {"predictions": total["n"], "predictions_held": total["hits"]}
    numbers |= {"prediction_error": total["error"], "no_change_error": total["naive_error"]}
    numbers |= {"predictions_telling": total["telling"], "predictions_telling_held": total["telling_hits"]}
    if total["n"] < FEWEST:
        return [finding("PREDICTIONS_TOO_FEW", numbers=numbers)]
    holds = total["hits"] >= HOLDS_SHARE * total["n"] and total["error"] < total["naive_error"]
    said = {"ours": number(total["error"]), "naive": number(total["naive_error"])}
    found = [finding("PREDICTIONS_HOLD" if holds else "PREDICTIONS_MISS", numbers=numbers, **said)]
    return found + [_missed(one) for one in lines if not one["hit"]]


def _missed(line: dict[str, Any]) -> Finding:
    keys = ("predicted_ratio", "observed_ratio", "error", "allowed")
    return finding(
        "PREDICTION_MISSED",
        numbers={key: line[key] for key in keys},
        what=label(line["name"]),
        why=line.get("why") or "",
        predicted=number(line["predicted_ratio"]),
        observed=number(line["observed_ratio"]),
        room=number(line["allowed"]),
    )


# ---- how they ended


def judge_ends(rows: list[dict[str, Any]]) -> list[Finding]:
    """Name experiments that ended their process or reached their limit."""
    bad = [row for row in rows if row.get("status") in ("CRASH", "TIMEOUT")]
    if not bad:
        return []
    return [finding("EXPERIMENTS_ENDED", numbers={"ended": len(bad)}, what=_labels([row["name"] for row in bad]))]


# ---- questions


def judge_size(by_name: dict[str, dict[str, Any]]) -> list[Finding]:
    """Is the model too small for this device? A wider one that takes no longer says so."""
    times = {name: _seen(by_name, name) for name in ("width_x2", "width_x4")}
    known = {name: ratio for name, ratio in times.items() if ratio is not None}
    if not known:
        return []
    name, wider = next(iter(known.items()))
    row = by_name[name]
    numbers = {"wider_ratio": wider, "wider_bytes_ratio": (row.get("prediction_from") or {}).get("bytes_times")}
    if wider <= WIDER_FREE:
        code = "MODEL_TOO_SMALL"
    else:
        code = "MODEL_NOT_TOO_SMALL" if wider >= WIDER_PAID else "MODEL_SIZE_UNDECIDED"
    return [finding(code, numbers=numbers, what=label(name), wider=number(wider))]


def judge_delays(by_name: dict[str, dict[str, Any]]) -> list[Finding]:
    """Which lane binds: the share of a delay on the host, and of one on the device inside its slack, that shows."""
    host, device = (_share(by_name.get(name)) for name in ("host_delay", "device_delay_hidden"))
    if host is None:
        return []
    numbers = {"host_delay_shown": host, "device_delay_shown": device}
    variant: str | None
    if device is None:
        variant = "cpu" if (by_name["host_delay"].get("device") == "cpu") else "host_only"
    elif host >= FOLLOWS and device <= HIDDEN:
        variant = "host"
    elif device >= FOLLOWS and host <= HIDDEN:
        variant = "device"
    else:
        variant = "both" if host >= FOLLOWS and device >= FOLLOWS else None
    return [finding("INJECTED_DELAYS", numbers=numbers, variant=variant)]


def _share(row: dict[str, Any] | None) -> float | None:
    """Return the share of what was injected by which the step became longer."""
    seen = experiments.observed(row or {})
    dose = ((row or {}).get("given") or {}).get("dose")
    return (seen.median - 1) / dose if row and seen is not None and dose else None


def judge_visits(by_name: dict[str, dict[str, Any]]) -> list[Finding]:
    """Does a first visit of a length cost more, and is it cuDNN's attention that charges for it?"""
    usual, without = (_seen(by_name, name) for name in ("first_visit", "first_visit_no_cudnn"))
    if usual is None:
        return []
    row = by_name["first_visit"]
    extra = statistics.median(row["changed_samples_ms"]) - statistics.median(row["baseline_samples_ms"])
    numbers = {"first_visit_ratio": usual, "first_visit_extra_ms": extra, "first_visit_no_cudnn_ratio": without}
    if usual < VISIT_COSTS:
        variant = "same"
    elif without is None:
        variant = None
    else:
        variant = "cudnn" if without - 1 < 0.25 * (usual - 1) else "other"
    return [finding("FIRST_VISIT_OPERATOR", numbers=numbers, variant=variant)]


def judge_one_row(by_name: dict[str, dict[str, Any]]) -> list[Finding]:
    """On a CPU: is torch's product of one row slow, so that another way over the same weights takes less time?

    That no way tried is faster does not make it fast: whether it reaches the memory's speed, notebook 06 tells.
    """
    cases = {name: _seen(by_name, name) for name in ("batch_2", "rows_padded", "weights_transposed")}
    known = {name: ratio for name, ratio in cases.items() if ratio is not None}
    if not known or by_name[next(iter(known))].get("device") != "cpu":
        return []
    name = min(known, key=lambda one: known[one])
    numbers = {f"{key}_ratio": ratio for key, ratio in cases.items()}
    code = "ONE_ROW_PRODUCT_SLOW" if known[name] <= ROW_SLOW else "ONE_ROW_PRODUCT_FINE"
    return [finding(code, numbers=numbers, what=label(name), ratio=number(known[name]))]
