"""12: so why is it slow: which suspects are supported, and by how many ms a token?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.ticker import FuncFormatter, NullLocator

from rocmlab import (
    best_remedy,
    figures,
    hypotheses,
    ledger_tables,
    results,
    suspects_baseline,
    verdict_judges,
    waterfall,
    words,
)
from rocmlab import clues as clues_of
from rocmlab.clues import Clues
from rocmlab.sections import Figure, Section, Table, Text, question, snapshot
from rocmlab.speed_roofs import Roofs
from rocmlab.suspects import NOT_APPLICABLE, REFUTED, SUPPORTED, Verdict


def section(run: Path) -> Section:
    """Return the verdicts, the two roofs, the waterfall, the everyday answers and the discarded suspects."""
    clues = clues_of.of_run(run)
    if not clues.operators and not any(clues.rows.values()):
        return Section("12", question("12"), missing=words.both("verdict_nothing"))
    found, roofs = hypotheses.judge(clues), suspects_baseline.roofs(clues)
    made = Section("12", question("12"), how=words.both("how_12"))
    artefact = next(one for one in found if one.suspect == "artefact")
    slow = verdict_judges.answer_slow(clues, found) if artefact.verdict != SUPPORTED else None
    first = slow or verdict_judges.still_open(clues, found)
    answer = first if slow or first["variant"] else None  # open, but injected delays say what it most likely is
    made.answers = {name: one for name, one in (("slow", answer), ("faster", best_remedy.judge(clues))) if one}
    made.findings = [first, *verdict_judges.judge(clues, found, roofs)]
    wrong = [one for one in made.findings if one["code"] == "VERDICT_WRONG_NUMBERS"]
    if wrong:
        made.answers["works"] = wrong[0]
    made.discarded = [verdict_judges.told("SUSPECT_REFUTED", one) for one in found if one.verdict == REFUTED]
    made.tables = [
        Table("hypotheses", words.both("hypotheses"), hypothesis_table(found), labels=LABELS),
        Table("reversals", words.both("verdict_reversals"), reversal_table(found), labels=LABELS),
    ]
    _add_figures(made, clues, roofs, run)
    return made


def _add_figures(made: Section, clues: Clues, roofs: Roofs | None, run: Path) -> None:
    groups = waterfall.parts(clues.account) if clues.regime != "undecided" else []
    foot = footer(run, clues)
    if groups:
        shown = ("ledger_device",) if clues.on_cpu else ("ledger_host", "ledger_device")
        given: dict[str, Any] = {"decided": clues.binds("host") is not None, "on_cpu": clues.on_cpu}
        ending = "_cpu" if clues.on_cpu else "" if given["decided"] else "_mixed"
        caption = words.both(f"figure_waterfall{ending}")
        alt = alt_waterfall(groups, clues.on_cpu)
        made.figures.append(Figure("waterfall", lambda: waterfall.draw(groups, foot, **given), alt, caption))
        made.tables += [one for one in ledger_tables.tables(clues.account or {}) if one.name in shown]
        made.lead = "waterfall"
    if roofs:
        made.figures.append(
            Figure("roofs-figure", lambda: draw_roofs(roofs, foot), alt_roofs(roofs), words.both("figure_roofs"))
        )
        made.tables.append(Table("roofs", words.both("verdict_roofs"), roof_table(roofs), labels=LABELS))
    no_roofs = words.both("reason_cpu_subject" if clues.on_cpu else "reason_no_roofs")
    no_ledger = verdict_judges.undecided_why(clues, "reason_no_ledger")
    made.absent = dict.fromkeys(("waterfall", "ledger_host", "ledger_device"), no_ledger)
    made.absent |= {"roofs": no_roofs, "roofs-figure": no_roofs}
    if clues.on_cpu:
        made.absent["ledger_host"] = words.both("reason_cpu_subject")


# ---- tables


def hypothesis_table(found: list[Verdict]) -> pd.DataFrame:
    """Return one row a suspect: verdict, ms and share of the step, evidence grade, evidence."""
    lines = []
    for one in found:
        line: dict[str, Any] = {"verdict_suspect": one.name, "verdict_verdict": words.both(f"verdict_{one.verdict}")}
        line |= {"verdict_ms": one.span.ms if one.span else None, "verdict_ms_reason": _no_ms(one)}
        if one.span and one.span.high > one.span.low:
            line |= {"verdict_ms_low": one.span.low, "verdict_ms_high": one.span.high}
        line |= {"verdict_share_pct": one.share_pct, "verdict_share_pct_reason": _no_share(one)}
        grade = one.grade if one.verdict in (SUPPORTED, REFUTED) or one.span else None
        line |= {"verdict_grade": grade, "verdict_grade_reason": words.both("verdict_no_grade")}
        lines.append(line | {"verdict_evidence": one.evidence})
    return pd.DataFrame(lines)


def reversal_table(found: list[Verdict]) -> pd.DataFrame:
    """Return one row a suspect that can exist here: verdict, what would reverse it, and the records that were used."""
    lines = []
    for one in found:
        if one.verdict != NOT_APPLICABLE:
            line: dict[str, Any] = {
                "verdict_suspect": one.name,
                "verdict_verdict": words.both(f"verdict_{one.verdict}"),
            }
            line |= {"verdict_reversal": one.reversal, "verdict_records": ", ".join(one.records) or None}
            lines.append(line | {"verdict_records_reason": words.both("verdict_not_here")})
    columns = ["verdict_suspect", "verdict_verdict", "verdict_reversal", "verdict_records"]
    return pd.DataFrame(lines, columns=[*columns, "verdict_records_reason"])


def _no_ms(one: Verdict) -> Text:
    return one.no_ms or words.both("verdict_undecided_ms")


def _no_share(one: Verdict) -> Text:
    if one.span and one.suspect == "new_shapes":
        return words.both("verdict_outside")
    return words.both("verdict_no_step") if one.span else _no_ms(one)


def roof_table(roofs: Roofs) -> pd.DataFrame:
    """Return one row a side: bytes a token, bandwidth, the roof they make, the rate measured and the share reached."""
    return pd.DataFrame(
        [
            {
                "verdict_side": f"{name}, {side.dtype}", "verdict_moved_gb": side.bytes_a_token / 1e9,
                "verdict_bandwidth_gb_s": side.gb_s, "verdict_roof_tok_s": side.roof_tok_s,
                "verdict_measured_tok_s": side.tok_s, "verdict_measured_tok_s_low": side.tok_s_low,
                "verdict_measured_tok_s_high": side.tok_s_high, "verdict_reached_pct": side.efficiency_pct,
            }
            for name, side in (("GPU", roofs.gpu), ("CPU", roofs.cpu))
        ]
    )  # fmt: skip


# ---- figures


@figures.styled
def draw_roofs(roofs: Roofs, foot: str) -> Any:
    """Draw each side on one scale of tok/s: what it writes, and the roof that its memory sets."""
    figure, ax = figures.canvas(2.3)
    for y, (name, side) in enumerate((("GPU", roofs.gpu), ("CPU", roofs.cpu))):
        role = figures.ROLES[name]
        ax.plot([side.tok_s, side.roof_tok_s], [y, y], color=role.colour, linewidth=2, alpha=0.35)
        ax.plot([side.tok_s], [y], role.marker, color=role.colour, markersize=8)
        ax.plot([side.roof_tok_s] * 2, [y - 0.22, y + 0.22], color=role.text, linewidth=2)
        for x, text, place in ((side.tok_s, "measured", 1), (side.roof_tok_s, "roof", -1)):
            ax.annotate(f"{text} {words.number(x)}", (x, y), xytext=(0, 11 * place), textcoords="offset points",
                        ha="center", va="bottom" if place > 0 else "top", color=role.text, fontsize=8.5)  # fmt: skip
    rates = [one for side in (roofs.gpu, roofs.cpu) for one in (side.tok_s, side.roof_tok_s)]
    ax.set_xscale("log")
    ax.set_xlim(min(rates) / 2.2, max(rates) * 2.2)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_ylim(1.62, -0.62)
    ax.set_yticks([0, 1], [f"GPU,\n{roofs.gpu.dtype}", f"CPU,\n{roofs.cpu.dtype}"])
    ax.tick_params(axis="y", length=0, labelcolor=figures.INK)
    ax.grid(axis="x")
    ax.set_xlabel("decode [tok/s], logarithmic")
    figures.footer(figure, foot)
    return figure


def alt_waterfall(groups: list[waterfall.Group], on_cpu: bool) -> Text:
    """Say the waterfall in words."""
    step = words.number(groups[0].step_ms, "ms")
    return {
        lang: words.word("alt_waterfall", lang, step=step, values=waterfall.told(groups, lang, on_cpu))
        for lang in words.LANGUAGES
    }


def alt_roofs(roofs: Roofs) -> Text:
    """Say both sides in words."""
    values = {name: words.number(getattr(roofs, name).tok_s, "tok/s") for name in ("gpu", "cpu")}
    values |= {f"{name}_roof": words.number(getattr(roofs, name).roof_tok_s, "tok/s") for name in ("gpu", "cpu")}
    return words.both("alt_roofs", **values)


def footer(run: Path, clues: Clues) -> str:
    """Return what travels with every picture of this section."""
    birth, host = results.birth(run), snapshot(run).get("host") or {}
    mine, asked = (clues.account or {}).get("subject") or {}, birth.get("asked")
    notice = "CPU run, no GPU measured" if clues.on_cpu else ""
    if clues.on_cpu and asked not in (None, "auto", "cpu"):
        notice = f"CPU run, {asked} was asked for and is not here"
    if (clues.account or {}).get("device_upper"):
        notice = "device time is an upper bound"
    card = (birth.get("subject") or {}).get("name") or host.get("cpu") or "device unknown"
    n = ((clues.account or {}).get("quantities") or {}).get("T", {}).get("n")
    return figures.footer_text(
        card=str(card), model=str(mine.get("model_spec") or ""), dtype=clues.dtype, batch=mine.get("batch"), n=n,
        date=str(birth.get("started") or ""), notice=notice,
    )  # fmt: skip


NAMES = (
    "suspect", "verdict", "ms", "share_pct", "grade", "evidence", "records", "reversal", "side",
    "moved_gb", "bandwidth_gb_s", "roof_tok_s", "measured_tok_s", "reached_pct",
)  # fmt: skip
ENDINGS = ("_tok_s", "_gb_s", "_gb", "_pct")


def _heading(name: str) -> Text:
    bare = next((name.removesuffix(end) for end in ENDINGS if name.endswith(end)), name)
    return words.both(f"column_verdict_{bare}")


LABELS = {f"verdict_{name}": _heading(name) for name in NAMES}
