"""Charts: what stands in them equals the table."""

import page_case
import pandas as pd
import pytest
from matplotlib.patches import Rectangle
from page_case import texts

from rocmlab import figures, plots


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


def test_one_arm_draws_without_a_ratio():
    figure, ax = figures.canvas()
    frame = page_case.long_form()
    frame = frame[frame["arm"].str.startswith("CPU")]
    plots.paired_bars(ax, frame, category="prompt", arm="arm", value="decode_tok_s", unit="tok/s", ratio_of=None)
    assert len(bars_of(ax)) == 5 and not any("×" in text for text in texts(figure))


def test_nothing_measured_still_draws():
    figure, ax = figures.canvas()
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
    _, ax = figures.canvas()
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
    figure, ax = figures.canvas()
    plots.series(ax, frame, x="batch", value="decode_tok_s", unit="tok/s", by="arm", log_x=True)
    plots.ceiling(ax, 235, "memory roof 235 tok/s")
    said = texts(figure)
    assert {"GPU", "CPU", "memory roof 235 tok/s", "1", "2", "4", "8"} <= set(said)
    assert pd.isna(ax.lines[0].get_ydata()[2])
    assert ax.get_ylim()[0] == 0 and ax.get_ylim()[1] > 235
