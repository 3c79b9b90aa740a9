"""So why is it slow? Judges of notebook 12, pure: clues and verdicts on the suspects in, answers and findings out."""

from __future__ import annotations

from typing import Any

from rocmlab import everyday, experiment_judges, ledger_judges, suspects, words
from rocmlab.clues import Clues
from rocmlab.findings import Finding, finding
from rocmlab.speed_roofs import Roofs
from rocmlab.suspects import SUPPORTED, UNDECIDED, Text, Verdict

ALONE = 0.8  # of a delay on the host that shows: where the device binds it hides
MUCH = 0.10  # of the step: more than this unexplained is said with the parts
NEEDED = ("03", "04", "06", "11")  # what a verdict mostly rests on, to name where nothing is decided


def answer_slow(clues: Clues, found: list[Verdict]) -> Finding | None:
    """Return the answer to "why is it slow" where the ledger decides it, None where it does not."""
    step, device = clues.step, clues.device_ms
    host, floor = clues.quantity("H"), clues.part("device", "memory_floor")
    if step is None or device is None or clues.regime == "undecided":
        return None
    lane = None if clues.on_cpu or clues.regime == "mixed" else clues.regime.removesuffix("_bound")
    said: dict[str, Any] = {"step": suspects.ms(step), "device": suspects.ms(device), "host": suspects.ms(host)}
    said |= {"floor": suspects.ms(floor), "roof": words.number(clues.roof.gb_s, "GB/s")}
    said |= {"share": suspects.pct(device.ms / step.ms), "parts": parts_of(clues, found, lane)}
    if (clues.account or {}).get("device_upper"):
        said |= {key: words.both("at_most", ms=said[key]) for key in ("device", "share")}
    said["bytes"] = words.both("verdict_bytes", floor=said["floor"]) if floor else ""
    texts = clues.texts
    said["what"] = words.both("verdict_a_token") if texts == 1 else words.both("verdict_a_step", texts=f"{texts:,}")
    numbers: dict[str, Any] = {"step_ms": step.ms, "host_ms": host.ms if host else None, "device_ms": device.ms}
    numbers |= {"residual_pct": (clues.account or {}).get("residual_pct"), "floor_ms": floor.ms if floor else None}
    numbers |= {f"{key}_reason": "not measured" for key, value in numbers.items() if value is None}
    strong = {one.suspect for one in found if one.verdict == SUPPORTED}
    at_roof = "bandwidth" in strong and "clocks" not in strong  # the roof of a memory that is clocked down is no roof
    if at_roof and floor and clues.regime != "host_bound":
        return finding("VERDICT_AT_ROOF", numbers=numbers, **said | {"share": suspects.pct(floor.ms / step.ms)})
    code = "VERDICT_CPU" if clues.on_cpu else f"VERDICT_{clues.regime.upper()}"
    return finding(code, numbers=numbers, **said)


def parts_of(clues: Clues, found: list[Verdict], lane: str | None) -> Text:
    """Return the supported parts of a lane (None: of any) with their ms, in brackets, and what is unexplained where
    that is much; "" where there is nothing to name. What lies within other parts stands apart, never beside them."""
    lanes = (lane, "either") if lane else ("host", "device", "either")
    table = suspects.table()["suspects"]
    mine = [one for one in found if one.verdict == SUPPORTED and one.span and one.share_pct and not one.is_limit]
    mine = [one for one in mine if table[one.suspect]["lane"] in lanes]
    named = [(one.name, suspects.ms(one.span), table[one.suspect]) for one in mine]
    parts = [(name, _at_most(ms, entry)) for name, ms, entry in named if not entry.get("within")]
    inside = [(name, _at_most(ms, entry)) for name, ms, entry in named if entry.get("within")]
    left = clues.part("residual", "residual")
    if left and clues.step and abs(left.ms) > MUCH * clues.step.ms:
        parts.append((words.both("waterfall_residual"), _at_most(suspects.ms(left), {})))
    made = {}
    for lang in words.LANGUAGES:
        plain, within = (_parts(each, lang) for each in (parts, inside))
        told = words.word("verdict_parts_within", lang, parts=plain, within=within) if plain and within else ""
        made[lang] = words.word("verdict_parts", lang, parts=told or plain or within) if plain or within else ""
    return made


def _at_most(ms: str, entry: dict[str, Any]) -> Text:
    return words.both("verdict_at_most", value=ms) if entry.get("at_most") else dict.fromkeys(words.LANGUAGES, ms)


def _parts(parts: list[tuple[Text, Text]], lang: str) -> str:
    given = [{"name": words.pick(name, lang), "ms": ms[lang]} for name, ms in parts]
    each = [words.word("verdict_part", lang, **one) for one in given]
    return words.word("list_semicolon" if any("," in one for one in each) else "list_comma", lang).join(each)


def still_open(clues: Clues, found: list[Verdict]) -> Finding:
    """Say that the step's cause is not decided, why, what injected delays say instead, and which notebooks would."""
    why = undecided_why(clues, "verdict_ledger_missing")
    made_up = [one for one in found if one.suspect == "artefact" and one.verdict == SUPPORTED]
    if made_up:
        why = {lang: said.rstrip(".。") for lang, said in made_up[0].evidence.items()}
    missing = [one for one in found if one.verdict == UNDECIDED]
    notebooks = sorted({n for one in missing for n in one.decided_by}) or list(NEEDED)
    lane, share = (None, None) if made_up else delayed(clues)
    said = {"why": why, "notebooks": _listed(notebooks), "share": suspects.pct(share)}
    return finding("VERDICT_OPEN", numbers={"delay_shown": share} if lane else {}, variant=lane, **said)


def undecided_why(clues: Clues, missing: str) -> Text:
    """Return why the ledger decides nothing: the check that failed, how its process ended, else the word `missing`."""
    if clues.step is None:
        return ledger_judges.absent(clues.table("step_ended")) or words.both(missing)
    return ledger_judges.why(clues.account or {})


def delayed(clues: Clues) -> tuple[str | None, float | None]:
    """Return the lane that a delay injected on it shows to bind, and the share of the delay that showed; the step of 11
    has one text, so nothing where that which was taken apart has more."""
    rows = {row["name"]: row for row in clues.table("experiments") if row.get("name")}
    found = experiment_judges.judge_delays(rows) if clues.texts == 1 and not clues.on_cpu else []
    if not found:
        return None, None
    numbers = found[0]["numbers"]
    lane = found[0]["variant"]
    if lane == "host_only" and numbers["host_delay_shown"] >= ALONE:
        lane = "host"
    return (lane, numbers[f"{lane}_delay_shown"]) if lane in ("host", "device") else (None, None)


def judge(clues: Clues, found: list[Verdict], roofs: Roofs | None) -> list[Finding]:
    """Return the findings beside the answer: supported suspects, what is open, the residual, the ratio, everyday."""
    made = []
    for one in found:
        if one.verdict == SUPPORTED and one.suspect == "wrong_numbers":
            made.append(told("VERDICT_WRONG_NUMBERS", one))
        elif one.verdict == SUPPORTED:
            made.append(told("SUSPECT_LIMIT" if one.is_limit else "SUSPECT_SUPPORTED", one))
    if clues.account and clues.regime != "undecided":
        made += [one for one in ledger_judges.judge_checks(clues.account) if one["code"] == "RESIDUAL_LARGE"]
    if roofs:
        made.append(_ratio(roofs))
    missing = [one for one in found if one.verdict == UNDECIDED]
    if missing:
        names = _joined([one.name for one in missing], "list_semicolon")
        numbers = {"count": len(missing), "total": len(found)}
        notebooks = _listed(sorted({n for one in missing for n in one.decided_by}))
        made.append(finding("SUSPECTS_UNDECIDED", numbers=numbers, names=names, notebooks=notebooks))
    return made + everyday.judge(clues, found)


def told(code: str, one: Verdict) -> Finding:
    """Return a finding about one suspect: its name, its share of the step, its evidence and what would reverse it."""
    numbers = {"share_ms": one.span.ms if one.span else None, "share_pct": one.share_pct}
    numbers = {f"{one.suspect}_{key}": value for key, value in numbers.items() if value is not None}
    return finding(code, numbers=numbers, name=one.name, evidence=one.evidence, reversal=one.reversal)


def _ratio(roofs: Roofs) -> Finding:
    numbers = {"ratio": roofs.ratio, "ratio_of_roofs": roofs.of_roofs, "ratio_within_reach": roofs.within_reach}
    numbers |= {"gpu_efficiency_pct": roofs.gpu.efficiency_pct, "cpu_efficiency_pct": roofs.cpu.efficiency_pct}
    said = {"ratio": words.number(roofs.ratio, "×"), "of_roofs": words.number(roofs.of_roofs, "×")}
    said |= {"reach": words.number(roofs.within_reach, "×")}
    said |= {side: words.number(getattr(roofs, side).efficiency_pct, "%") for side in ("gpu", "cpu")}
    return finding("RATIO_ROOFS", numbers=numbers, variant=None if roofs.why == "undecided" else roofs.why, **said)


def _joined(texts: list[Text], by: str = "list_comma") -> Text:
    return {lang: words.word(by, lang).join(words.pick(t, lang) for t in texts) for lang in words.LANGUAGES}


def _listed(names: list[str]) -> Text:
    return _joined([dict.fromkeys(words.LANGUAGES, name) for name in names])
