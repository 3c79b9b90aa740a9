"""Charts: what stands in them equals the table, and every machine draws them the same way."""

import re

import page_case
import pandas as pd
import pytest
from matplotlib.patches import Rectangle

from rocmlab import plots


def texts(figure) -> list[str]:
    figure.canvas.draw()
    return [t.get_text() for t in figure.findobj(lambda a: hasattr(a, "get_text") and a.get_visible()) if t.get_text()]


def bars_of(ax) -> list[Rectangle]:
    return [patch for patch in ax.patches if isinstance(patch, Rectangle)]


def test_bars_have_the_table_s_lengths_and_start_at_zero():
    figure = page_case.bars()
    ax = figure.axes[0]
    drawn = sorted(round(bar.get_width(), 1) for bar in bars_of(ax))
    assert drawn == sorted([14.1, 13.8, 14.0, 14.2, 13.9, 24.9, 25.6, 25.2, 25.0])
    assert all(bar.get_x() == 0 for bar in bars_of(ax)) and ax.get_xlim()[0] == 0


def test_values_ratios_and_gaps_are_written_out():
    said = texts(page_case.bars())
    for text in ("14.1", "24.9", "1.77×", "1.86×", "1.80×", "1.76×", "not measured", "CPU, float32", "GPU, float16"):
        assert text in said
    assert said.count("not measured") == 1 and sum("×" in text for text in said) == 4
    assert "decode [tok/s]" in said


def test_roles_have_fixed_colours():
    given = plots.roles(["CPU, float32", "GPU, float16", "GPU, float32", "other"])
    assert given["CPU, float32"].colour == "#0072B2" and given["GPU, float16"].colour == "#D55E00"
    assert len({role.colour for role in given.values()}) == 4
    for role in (*plots.ROLES.values(), *plots.OTHERS):
        assert contrast(role.text) >= 4.5


def contrast(colour: str) -> float:
    """WCAG contrast against white."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)


def test_one_arm_draws_without_a_ratio():
    figure, ax = plots.canvas()
    frame = page_case.long_form()
    frame = frame[frame["arm"].str.startswith("CPU")]
    plots.paired_bars(ax, frame, category="prompt", arm="arm", value="decode_tok_s", unit="tok/s", ratio_of=None)
    assert len(bars_of(ax)) == 5 and not any("×" in text for text in texts(figure))


def test_nothing_measured_still_draws():
    figure, ax = plots.canvas()
    frame = pd.DataFrame({"prompt": ["a", "b"], "arm": ["GPU", "GPU"], "decode_tok_s": [None, None]})
    plots.paired_bars(ax, frame, category="prompt", arm="arm", value="decode_tok_s", unit="tok/s", ratio_of=None)
    assert texts(figure).count("not measured") == 2 and not bars_of(ax)


def test_a_strip_shows_every_sample_in_order_and_the_medians():
    figure = page_case.dots()
    ax = figure.axes[0]
    dots = [line for line in ax.lines if line.get_linestyle() == "None"]
    assert len(dots) == 5 * 3
    frame = page_case.samples()
    first = frame[(frame["prompt"] == "short factual") & (frame["process"] == 0)]["decode_tok_s"].tolist()
    assert list(dots[0].get_ydata()) == first
    assert list(dots[0].get_xdata()) == sorted(dots[0].get_xdata())
    medians = [line.get_ydata()[0] for line in ax.lines if line.get_linestyle() == "-"]
    assert medians[0] == pytest.approx(pd.Series(first).median())
    assert {dot.get_markerfacecolor() for dot in dots} == {"#D55E00", "white"}


def test_small_noise_looks_small():
    _, ax = plots.canvas()
    frame = pd.DataFrame({"prompt": ["a"] * 6, "decode_tok_s": [25.0, 25.01, 24.99, 25.0, 25.02, 24.98]})
    plots.strip(ax, frame, category="prompt", value="decode_tok_s", unit="tok/s")
    low, high = ax.get_ylim()
    assert high - low >= 0.29 * 25


def test_a_series_names_its_lines_keeps_gaps_and_shows_the_ceiling():
    frame = pd.DataFrame(
        {
            "batch": [1, 2, 4, 8] * 2,
            "arm": ["GPU"] * 4 + ["CPU"] * 4,
            "decode_tok_s": [30.0, 59.0, None, 230.0, 17.0, 20.0, 21.0, 21.5],
        }
    )
    frame["decode_tok_s_low"], frame["decode_tok_s_high"] = frame["decode_tok_s"] * 0.9, frame["decode_tok_s"] * 1.1
    figure, ax = plots.canvas()
    plots.series(ax, frame, x="batch", value="decode_tok_s", unit="tok/s", by="arm", log_x=True)
    plots.ceiling(ax, 235, "memory roof 235 tok/s")
    said = texts(figure)
    assert {"GPU", "CPU", "memory roof 235 tok/s", "1", "2", "4", "8"} <= set(said)
    assert pd.isna(ax.lines[0].get_ydata()[2])
    assert ax.get_ylim()[0] == 0 and ax.get_ylim()[1] > 235


def test_the_footer_carries_what_a_picture_needs():
    text = plots.footer_text(
        card="Card (gfx1031)", model="m", dtype="float16", batch=1, n=6, date="2026-11-28T01:02:03", notice="CPU run"
    )
    assert text == "CPU run · Card (gfx1031) · m · float16 · batch 1 · n = 6 · 2026-11-28"
    assert page_case.FOOTER in [said.replace("\u00a0", " ") for said in texts(page_case.bars())]


def test_files_are_the_same_on_every_drawing(tmp_path):
    once = [path.read_bytes() for path in plots.save(page_case.bars(), tmp_path / "a", "bars")]
    again = [path.read_bytes() for path in plots.save(page_case.bars(), tmp_path / "b", "bars")]
    assert once == again
    svg = (tmp_path / "a" / "bars.svg").read_text(encoding="utf-8")
    assert "<text" not in svg and "short factual" not in re.sub(r"<!--.*?-->", "", svg)  # letters are outlines
    assert plots.save(page_case.bars(), tmp_path, "only", ("png",)) == [tmp_path / "only.png"]


def test_narrow_figures_fit_a_phone_with_nothing_cut_off():
    with plots.narrow():
        figures = [page_case.bars(), page_case.dots()]
    for figure in figures:
        figure.canvas.draw()
        assert figure.get_figwidth() == plots.NARROW_IN
        box = figure.get_tightbbox()
        assert box.x0 > -0.02 and box.x1 < plots.NARROW_IN + 0.02
    assert page_case.bars().get_figwidth() == plots.WIDE_IN


def test_drawing_leaves_the_user_s_settings_alone():
    import matplotlib

    before = dict(matplotlib.rcParams)
    page_case.bars()
    assert dict(matplotlib.rcParams) == before
