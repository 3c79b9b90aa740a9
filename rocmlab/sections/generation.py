"""03: how much faster than the CPU does the GPU write text?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from rocmlab import figures, plots, reference, results, speed, speedup, texts, timing, words
from rocmlab.findings import Finding, finding
from rocmlab.sections import Figure, Section, Table, Text, question, snapshot

SIDES = {"cpu": "CPU", "gpu": "GPU"}
SHOWN_CHARACTERS = 280  # of each text: enough to see whether it is sense


def section(run: Path) -> Section:
    """Return the article's table, the other tables, the figures and the findings of notebook 03."""
    rows, written = results.rows(run, "generation"), results.rows(run, "text")
    processes = results.rows(run, "processes")
    frame = speed.table(rows)
    if speed.steady(frame).empty and not written and not processes:
        return Section("03", question("03"), missing=words.both("reason_no_records", notebook="03"))
    found = speedup.judge(rows, written, processes)
    made = Section("03", question("03"), findings=found, how=words.both("how_03"))
    if written:
        made.tables.append(Table("texts", words.both("texts"), text_table(written), labels=TEXT_LABELS))
    if not speed.steady(frame).empty:
        _add_speed(made, frame, rows, run)
    made.answers = {name: one for name, one in (("works", _wrong(found)), ("slow", _slow(frame, found))) if one}
    return made


def _add_speed(made: Section, frame: pd.DataFrame, rows: list[dict[str, Any]], run: Path) -> None:
    first, foot = frame.iloc[0], footer(run, frame)
    dtypes = " / ".join(f"{SIDES[arm]} {_dtype(frame, arm)}" for arm in speed.main_arms(frame))
    made.provenance = [str(first["model_spec"]), dtypes]
    made.tables[:0] = [
        Table("by_prompt", words.both("by_prompt"), speed.by_prompt(frame), labels=LABELS),
        Table("measures", words.both("measures"), beside(measure_table(frame, rows), frame, run), labels=LABELS),
        Table("by_visit", words.both("by_visit"), speed.by_visit(frame), labels=LABELS),
        Table("by_process", words.both("by_process"), speed.by_process(frame), labels=LABELS),
    ]
    side = speed.by_dtype(frame)
    if len(side):
        made.tables.insert(2, Table("by_dtype", words.both("by_dtype"), side.drop(columns="median"), labels=LABELS))
    made.figures = [
        Figure("speed", lambda: draw_speed(frame, foot), alt_speed(frame), words.both("figure_speed")),
        *(_samples(frame, arm, foot) for arm in speed.main_arms(frame)),
    ]


def measure_table(frame: pd.DataFrame, rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the measures with their names written out, each with its unit."""
    table = speed.measures(frame, rows)
    named = table.assign(measure=table["measure"].map(lambda name: words.both(f"measure_{name}")))
    if "gpu" in speed.main_arms(frame):
        return named
    return named.assign(gpu_reason=named["measure"].map(lambda _: words.both("generation_no_gpu")))


def beside(table: pd.DataFrame, frame: pd.DataFrame, run: Path) -> pd.DataFrame:
    """Return the measures with the rates of every reference run of the same model shape under them, in grey."""
    others = reference.rows(frame.iloc[0]["model_spec"], but=run.name)
    return pd.concat([table, pd.DataFrame(others)], ignore_index=True) if others else table


def _dtype(frame: pd.DataFrame, arm: str) -> str:
    return str(speed.steady(frame).query("arm == @arm")["dtype"].iloc[0])


# ---- figures


def arm_name(frame: pd.DataFrame, arm: str) -> str:
    """Return "GPU, float16": an arm is never shown without its dtype."""
    return f"{SIDES[arm]}, {_dtype(frame, arm)}"


def bars(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row a prompt and arm: median decode rate with its interval, for the paired bars."""
    lines = []
    for prompt, group in speed.steady(frame).groupby("prompt_id", sort=False):
        for arm in speed.main_arms(frame):
            found = timing.median_interval(list(group[group["arm"] == arm]["decode_tok_s"].dropna()))
            line: dict[str, Any] = {"prompt": str(prompt).replace("_", " "), "arm": arm_name(frame, arm)}
            line["decode_tok_s"] = found.median if found else None
            line |= {"decode_tok_s_low": found.low, "decode_tok_s_high": found.high} if found else {}
            lines.append(line)
    return pd.DataFrame(lines)


def draw_speed(frame: pd.DataFrame, foot: str) -> Any:
    """Draw decode rates by prompt: CPU and GPU in pairs with their ratio, or the CPU alone."""
    arms = [arm_name(frame, arm) for arm in speed.main_arms(frame)]
    ratio_of = (arms[1], arms[0]) if len(arms) == 2 else None
    figure, ax = figures.canvas(0.9 + 0.42 * len(arms) * frame["prompt_id"].nunique())
    plots.paired_bars(
        ax, bars(frame), category="prompt", arm="arm", value="decode_tok_s", unit="tok/s", ratio_of=ratio_of
    )
    figures.footer(figure, foot)
    return figure


def alt_speed(frame: pd.DataFrame) -> Text:
    """Say the bars in words."""
    told = [
        f"{row['prompt']} {row['arm']}: {words.number(row['decode_tok_s'], 'tok/s')}"
        for row in bars(frame).to_dict("records")
    ]
    return words.both("alt_speed", values="; ".join(told))


def _samples(frame: pd.DataFrame, arm: str, foot: str) -> Figure:
    def draw() -> Any:
        chosen = speed.steady(frame).query("arm == @arm").assign(prompt=lambda f: f["prompt_id"].str.replace("_", " "))
        figure, ax = figures.canvas(3.2)
        plots.strip(
            ax, chosen, category="prompt", value="decode_tok_s", unit="tok/s", process="process", arm=SIDES[arm]
        )
        figures.footer(figure, f"{SIDES[arm]} decode rate, every sample · {foot}")
        return figure

    samples = speed.steady(frame).query("arm == @arm")["decode_tok_s"].dropna()
    values = {"side": SIDES[arm], "n": len(samples)}
    values |= {"low": words.number(samples.min()), "high": words.number(samples.max())}
    return Figure(f"samples-{arm}", draw, words.both("alt_samples", **values), words.both("figure_samples", **values))


def footer(run: Path, frame: pd.DataFrame) -> str:
    """Return what travels with every picture of this section."""
    birth = results.birth(run)
    subject = birth.get("subject") or {}
    asked = birth.get("asked")
    on_cpu = "gpu" not in speed.main_arms(frame)
    notice = "CPU run, no GPU measured" if on_cpu else ""
    if on_cpu and asked not in (None, "auto", "cpu"):
        notice = f"CPU run, {asked} was asked for and is not here"
    host = snapshot(run).get("host") or {}
    card = subject.get("name") or host.get("cpu") or "device unknown"
    dtypes = " / ".join(dict.fromkeys(_dtype(frame, arm) for arm in speed.main_arms(frame)))
    n = len(speed.steady(frame)) // len(speed.main_arms(frame))
    model = str(frame["model_spec"].iloc[0])
    return figures.footer_text(
        card=str(card), model=model, dtype=dtypes, batch=1, n=n, date=str(birth.get("started") or ""), notice=notice
    )


# ---- texts


def text_table(written: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the beginning of each text, where it first differs from the CPU's, and the largest gap in logits."""
    lines = []
    for one in written:
        wrong, apart = texts.wrong_step(one), texts.first_divergence(one)
        line: dict[str, Any] = {"prompt": one["prompt_id"], "text": _short(one["subject"]["text"])}
        line["first_difference"] = words.both("none_differs") if apart is None else apart
        gaps = [gap for gap in one.get("gaps_logits") or [] if gap is not None]
        line["largest_gap_logits"] = max(gaps) if gaps else None
        line["verdict"] = words.both("text_wrong") if wrong is not None else words.both("text_right")
        lines.append(line)
    return pd.DataFrame(lines)


def _short(text: str) -> str:
    joined = " ".join(text.split())
    return joined if len(joined) <= SHOWN_CHARACTERS else joined[: SHOWN_CHARACTERS - 4] + " ..."


# ---- answers


def _wrong(found: list[Finding]) -> Finding | None:
    """Return what contradicts "it works": wrong text, else a measuring process that died."""
    by_code = {one["code"]: one for one in found}
    return by_code.get("WRONG_TEXT") or by_code.get("PROCESS_ENDED")


def _slow(frame: pd.DataFrame, found: list[Finding]) -> Finding | None:
    """Return what these records alone can say about "why is it slow": the ratio, the bytes a second, and no more."""
    if speed.steady(frame).empty:
        return None
    arm = speed.main_arms(frame)[-1]
    chosen = speed.steady(frame).query("arm == @arm")
    prompt = next(
        (one for one in found if one["code"].startswith("PROMPT_") and one["words"]["side"] == SIDES[arm]), None
    )
    numbers = {"decode_tok_s": float(chosen["decode_tok_s"].median()), "gb_s": float(chosen["gb_s"].median())}
    variant = {"PROMPT_NO_EFFECT": "not_the_prompt", "PROMPT_MATTERS": "prompt"}.get(prompt["code"] if prompt else "")
    return finding("SLOW_NOT_EXPLAINED", numbers=numbers, variant=variant, side=SIDES[arm])


LABELS = {
    name: words.both(f"column_{name}")
    for name in ("prompt", "prompt_tokens", "arm", "ratio", "process", "runs_on", "measure", "cpu", "gpu", "dtype")
}
LABELS |= {f"{visit}_tok_s": words.both(f"column_{visit}_tok_s") for visit in ("cold", "first", "steady")}
LABELS |= {f"{arm}_decode_tok_s": words.both(f"column_{arm}_decode_tok_s") for arm in ("cpu", "gpu")}
TEXT_LABELS = LABELS | {
    name: words.both(f"column_{name}") for name in ("text", "first_difference", "largest_gap_logits", "verdict")
}
