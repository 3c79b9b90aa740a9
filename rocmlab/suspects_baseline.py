"""Suspects outside the step: the CPU that the GPU is compared with, the measuring itself, and wrong numbers. Pure.

Each takes the clues and returns a Verdict. The CPU's part is in the ratio, not in ms of the GPU's step.
"""

from __future__ import annotations

import statistics
from typing import Any

from rocmlab import curves, evidence, roof, shape_judges, speed, speed_roofs, texts, words, yardstick_judges
from rocmlab.clues import Clues, Span
from rocmlab.findings import Finding
from rocmlab.rates import is_number
from rocmlab.speed_roofs import Roofs
from rocmlab.suspects import SHARE, Verdict, ms, not_applicable, refuted, supported, undecided
from rocmlab.suspects_host import of_decode

AGREE = 1.25  # times: T moves by up to a fifth from process to process, and three notebooks take three processes


def roofs(clues: Clues) -> Roofs | None:
    """Return the two-sided roofline of this run, None where a part of it was not measured."""
    rows, cpu = clues.table("generation"), clues.table("ceiling_cpu")
    return speed_roofs.of_rows(rows, clues.table("ceiling"), cpu, clues.peak_gb_s)


def _cpu(clues: Clues, suspect: str, strong: bool) -> Verdict:
    if clues.on_cpu:
        return not_applicable(suspect, "no_ratio")
    found = roofs(clues)
    records = ("generation", "ceiling_cpu")
    if found is None:
        return undecided(suspect, "03", "04", records=records)
    spoilt = roof.disturbed(clues.table("ceiling_cpu"))
    state = speed_roofs.state(found.cpu)
    told: dict[str, Any] = {"reached": f"{found.cpu.efficiency_pct:.0f}%", "dtype": found.cpu.dtype}
    told |= {"rate": words.number(found.cpu.tok_s, "tok/s"), "roof": words.number(found.cpu.roof_tok_s, "tok/s")}
    told |= {"ratio": words.number(found.ratio, "×"), "of_roofs": words.number(found.of_roofs, "×")}
    told["bandwidth"] = words.number(found.cpu.gb_s, "GB/s")
    kept: dict[str, Any] = {"records": records, "grade": "D", "no_ms": words.both("verdict_in_the_ratio")}
    if spoilt is not None:
        return undecided(suspect, "04", wording="disturbed", pct=f"{spoilt:.0f}%", **kept)
    if state == "between":
        return undecided(suspect, "03", wording="between", **told, **kept)
    return (supported if (state == "near") is strong else refuted)(suspect, **told, **kept)


def strong_cpu(clues: Clues) -> Verdict:
    """Judge whether the ratio is small because the CPU is good: it uses most of its memory's speed."""
    return _cpu(clues, "strong_cpu", strong=True)


def weak_cpu(clues: Clues) -> Verdict:
    """Judge whether the ratio flatters the GPU: torch's CPU path stays far below its own roof, or below what another
    engine makes of the same weights."""
    found, other = _cpu(clues, "weak_cpu", strong=False), yardstick(clues)
    if other is None or clues.on_cpu:
        return found
    told: dict[str, Any] = {"times": words.number(other["numbers"]["times"], "×"), "engine": other["words"]["engine"]}
    kept: dict[str, Any] = {"records": ("yardstick",), "grade": "D", "no_ms": words.both("verdict_in_the_ratio")}
    if other["code"] == "YARDSTICK_FASTER":
        return supported("weak_cpu", "supported_by_engine", **told, **kept)
    return refuted("weak_cpu", "refuted_by_engine", **told, **kept)


def yardstick(clues: Clues) -> Finding | None:
    """Return how another engine stands beside torch on this CPU with the same bytes; None where that is not decided."""
    told = yardstick_judges.judge(clues.table("yardstick"))
    decided = ("YARDSTICK_FASTER", "YARDSTICK_EQUAL", "YARDSTICK_SLOWER")
    return next((one for one in told if one["code"] in decided and one["words"]["side"] == "CPU"), None)


# ---- the measuring


def artefact(clues: Clues) -> Verdict:
    """Judge whether the slowness is made by the measuring: impossible rates, dear stamps, other programs, or
    notebooks that do not agree on the step."""
    kept: dict[str, Any] = {"records": ("generation", "lengths", "stamps", "ceiling", "step"), "grade": "D"}
    kept |= {"step_ms": clues.step.ms if clues.step else None, "no_ms": words.both("verdict_no_single_time")}
    share, busy, stamp = _impossible(clues), _others(clues), _stamp(clues)
    if share is not None:
        return supported("artefact", "impossible", share=f"{share:.0f}%", **kept)
    if busy is not None and busy > roof.SPOILS_PCT:
        return supported("artefact", "others", pct=f"{busy:.0f}%", **kept)
    if stamp and stamp[0].low >= SHARE * stamp[1]:
        return supported("artefact", "stamps", span=stamp[0], ms=ms(stamp[0]), step=ms(stamp[1]), **kept)
    steps = _steps(clues)
    if len(steps) < 2:
        return undecided("artefact", "03", "04", **kept)
    told: dict[str, Any] = {"count": len(steps), "low": ms(min(steps.values())), "high": ms(max(steps.values()))}
    if max(steps.values()) > AGREE * min(steps.values()):
        return undecided("artefact", *sorted(steps), wording="apart", **told, **kept)
    looked = [
        name for name, one in (("rates", clues.roof.gb_s), ("others", busy), ("stamps", stamp)) if one is not None
    ]
    listed = {lang: words.word("list_comma", lang).join(words.word(f"verdict_looked_{one}", lang) for one in looked)
              for lang in words.LANGUAGES}  # fmt: skip
    more = {lang: words.word("verdict_looked", lang, names=listed[lang]) if looked else "" for lang in words.LANGUAGES}
    return refuted("artefact", span=Span(0.0, 0.0, 0.0), looked=more, **told, **kept)


def _impossible(clues: Clues) -> float | None:
    """Return the share of the roof in percent where the step moves its bytes faster than the memory can."""
    head: dict[str, Any] = next((r for r in clues.table("lengths") if r.get("kind") == "hand"), {})
    frame, limit = curves.steady(clues.table("lengths")), clues.roof.gb_s
    moved = curves.bytes_a_token(head, float(frame["context"].min())) if len(frame) else None
    if not moved or not limit or frame["tpot_ms"].dropna().empty:
        return None
    short = frame[frame["context"] == frame["context"].min()]["tpot_ms"].dropna()
    if short.empty:
        return None
    share = 100 * moved / statistics.median(short) / 1e6 / limit
    return share if share > 105 else None


def _others(clues: Clues) -> float | None:
    """Return the share of the processor that other programs used while the step was timed, in the worst of 03, 04, 05
    and the ledger: one quiet notebook is no excuse for another."""
    found = []
    for name in ("lengths", "batches", "generation", "step"):
        shares = [float(r["others_cpu_pct"]) for r in clues.table(name) if is_number(r.get("others_cpu_pct"))]
        found += [statistics.median(shares)] if shares else []
    return max(found, default=None)


def _stamp(clues: Clues) -> tuple[Span, float] | None:
    """Return (cost of a stamp, step without) in ms a token, as the model is."""
    for line in curves.stamp_costs(clues.table("stamps")).to_dict("records"):
        if line["case"] == "as_it_is":
            cost, step = line["cost_pct"], line["unstamped_ms"].median
            return Span(*(step * end / 100 for end in (cost.median, cost.low, cost.high))), step
    return None


def _steps(clues: Clues) -> dict[str, float]:
    """Return the steady step in ms by notebook, each from processes of its own: 03, 04 and the ledger of 11."""
    found: dict[str, float] = {}
    frame = speed.table(clues.table("generation"))
    mine = speed.steady(frame)
    written = mine[mine["arm"] == ("cpu" if clues.on_cpu else "gpu")]["tpot_ms"].dropna()
    if len(written):
        found["03"] = statistics.median(written)
    lengths = curves.steady(clues.table("lengths"))
    short = lengths[lengths["length"] == lengths["length"].min()]["tpot_ms"].dropna()
    if len(short):
        found["04"] = statistics.median(short)
    if clues.step and clues.texts == 1:  # of several texts together it is another step than that of 03 and 04
        found["11"] = clues.step.ms
    return found


# ---- the numbers


def wrong_numbers(clues: Clues) -> Verdict:
    """Judge whether what comes out is right: the text against the CPU's, operators against float64, 06's values."""
    kept: dict[str, Any] = {"records": ("text", "operators", "shapes"), "no_ms": words.both("verdict_no_speed")}
    written = [one for one in clues.table("text") if one.get("gaps_logits") or texts.wrong_step(one) is not None]
    bad_texts = [one["prompt_id"] for one in written if texts.wrong_step(one) is not None]
    mine = of_decode(clues)
    values = [row for row in mine if evidence.verdict(row) in ("WRONG_VALUE", "NAN")]
    off = [row for row in clues.table("shapes") if _off(row)]
    if bad_texts or off or values:
        names = [*bad_texts, *(str(row.get("op")) for row in values), *(str(row.get("name")) for row in off)]
        return supported("wrong_numbers", names=", ".join(dict.fromkeys(names)), **kept)
    right = [row for row in mine if evidence.verdict(row) in evidence.SOUND]
    if not written and not right:
        return undecided("wrong_numbers", "02", "03", **kept)
    return refuted("wrong_numbers", texts=len(written), operators=len(right), **kept)


def _off(row: dict[str, Any]) -> bool:
    return isinstance(row.get("value"), dict) and shape_judges.is_wrong(row["value"])
