"""A made-up `generation` section and a copy of the made-up run folder, for the tests of the page."""

import shutil
import sys
import types
from pathlib import Path

import pandas as pd
import pytest
from bs4 import BeautifulSoup

from rocmlab import figures, findings, plots, report, results, sections
from rocmlab.sections import Figure, Section, Table

RUN = Path(__file__).parent / "data" / "run"

FRAME = pd.DataFrame(
    [
        ("short factual", 14.1, 13.9, 14.4, 24.9, 24.1, 25.3, 1.77),
        ("summarization", 13.8, 13.5, 14.2, 25.6, 24.8, 26.0, 1.86),
        ("reasoning", 14.0, 13.8, 14.1, 25.2, 24.6, 25.9, 1.80),
        ("code generation", 14.2, 14.0, 14.5, 25.0, 24.4, 25.7, 1.76),
        ("long form", 13.9, 13.6, 14.1, None, None, None, None),
    ],
    columns=[
        "prompt",
        *(f"CPU_tok_s{end}" for end in ("", "_low", "_high")),
        *(f"GPU_tok_s{end}" for end in ("", "_low", "_high")),
        "GPU/CPU_ratio",
    ],
).assign(
    **{
        "GPU_tok_s_reason": [None] * 4 + ["the kernel died <here>"],
        "GPU/CPU_ratio_reason": [None] * 4 + ["no GPU value"],
    }
)

FOOTER = figures.footer_text(
    card="AMD Radeon RX 6700 XT (gfx1031)",
    model="made-up model",
    dtype="float16 against float32",
    batch=1,
    n=6,
    date="2026-11-28T19:04:11",
)


def long_form() -> pd.DataFrame:
    """The same numbers, one row a prompt and arm."""
    parts = []
    for arm, dtype in (("CPU", "float32"), ("GPU", "float16")):
        ends = {f"{arm}_tok_s{end}": f"decode_tok_s{end}" for end in ("", "_low", "_high")}
        parts.append(FRAME[["prompt", *ends]].rename(columns=ends).assign(arm=f"{arm}, {dtype}"))
    return pd.concat(parts, ignore_index=True)


def bars():
    figure, ax = figures.canvas(4.2)
    plots.paired_bars(
        ax,
        long_form(),
        category="prompt",
        arm="arm",
        value="decode_tok_s",
        unit="tok/s",
        ratio_of=("GPU, float16", "CPU, float32"),
    )
    figures.footer(figure, FOOTER)
    return figure


def samples() -> pd.DataFrame:
    rows = []
    for place, prompt in enumerate(FRAME["prompt"]):
        for process in range(3):
            for repeat in range(6):
                wave = ((repeat * 7 + place * 3 + process * 5) % 11 - 5) / 10
                rows.append((prompt, process, 25 + wave - (3 if process == 1 else 0)))
    return pd.DataFrame(rows, columns=["prompt", "process", "decode_tok_s"])


def dots():
    figure, ax = figures.canvas(3.8)
    plots.strip(ax, samples(), category="prompt", value="decode_tok_s", unit="tok/s", process="process", arm="GPU")
    figures.footer(figure, FOOTER)
    return figure


def broken():
    raise ValueError("no such column")


def texts(figure) -> list[str]:
    """Return every text that a figure shows."""
    figure.canvas.draw()
    return [t.get_text() for t in figure.findobj(lambda a: hasattr(a, "get_text") and a.get_visible()) if t.get_text()]


def generation(run: Path) -> Section:
    """A section as notebook 03's provider would make it, with invented numbers."""
    slow = findings.finding("UNKNOWN_CONTENT", file="generation.jsonl", kinds="nothing")
    return Section(
        notebook="03",
        question=sections.question("03"),
        findings=[slow],
        tables=[
            Table(
                "speed",
                {"en": "Decode rate, median with its 95% interval.", "zh": "decode 速度，中位数及 95% 区间。"},
                FRAME,
                labels={"prompt": {"en": "prompt", "zh": "提示词"}},
                notes=[{"en": "CPU in float32, GPU in float16.", "zh": "CPU 用 float32，GPU 用 float16。"}],
            )
        ],
        figures=[
            Figure(
                "ratio",
                bars,
                {"en": "Bars: the GPU writes 25 tok/s, the CPU 14", "zh": "条形图：GPU 每秒 25 个 token，CPU 14 个"},
                {"en": "Decode rate of each prompt.", "zh": "每个提示词的 decode 速度。"},
            ),
            Figure(
                "samples",
                dots,
                {"en": "Dots: one of three processes is 3 tok/s slower", "zh": "散点：三个进程之一慢 3 tok/s"},
                {"en": "Every sample, in the order of measurement.", "zh": "所有样本，按测量顺序排列。"},
            ),
            Figure("broken", broken, {"en": "never drawn", "zh": "画不出来"}, {"en": "never", "zh": "没有"}),
        ],
        how={
            "en": "CPU and GPU took turns in one process, `ABBA`.",
            "zh": "CPU 和 GPU 在同一进程里交替测量，顺序为 `ABBA`。",
        },
        answers={"slow": slow},
        provenance=["made-up model", "float16"],
    )


def provide(patch, **sections_of) -> None:
    """Let each `n03=section_function` speak for its notebook, beside the real section of 01."""
    modules = {"01": "environment"}
    for name, section in sections_of.items():
        modules[name[1:]] = f"made_up_{name}"
        patch.setitem(sys.modules, f"rocmlab.sections.made_up_{name}", types.SimpleNamespace(section=section))
    patch.setattr(sections, "MODULES", modules)


def copy(folder: Path) -> Path:
    """Copy the made-up run where a test may write."""
    target = folder / "gfx1031"
    shutil.copytree(RUN, target)
    return target


def change_birth(run: Path, **changes) -> None:
    """Change parts of run.json."""
    results.write_json(run / "run.json", {**results.birth(run), **changes})


def built(folder: Path) -> Path:
    """Return a copy of the made-up run with its pages."""
    with pytest.MonkeyPatch.context() as patch:
        provide(patch, n03=generation)
        run = copy(folder)
        report.build(run)
    return run


def soup(path: Path) -> BeautifulSoup:
    """Return a page to look into."""
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
