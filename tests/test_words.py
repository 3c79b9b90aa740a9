"""Numbers, units and the table of page words."""

import math
import string

import pandas as pd
import pytest

from rocmlab import tables, words
from rocmlab.timing import Interval


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (33.204, "ms", "33.2 ms"),
        (1.8, "×", "1.80×"),
        (99.96, "", "100"),
        (999.6, "", "1,000"),
        (3367.2, "tok/s", "3,370 tok/s"),
        (1620, "", "1,620"),
        (596049920, "", "596,049,920"),
        (0.0123456, "s", "0.0123 s"),
        (0.0000019, "", "1.90e-06"),
        (0.0, "ms", "0 ms"),
        (-1.834, "ms", "-1.83 ms"),
        (62.0, "%", "62.0%"),
        (8573157376, "B", "7.98 GiB"),
        (512, "B", "512 B"),
        (None, "ms", "–"),
        (math.nan, "ms", "–"),
        (math.inf, "", "–"),
        (2.5e12, "", "2.50e+12"),
    ],
)
def test_numbers(value, unit, text):
    assert words.number(value, unit) == text


@pytest.mark.parametrize(
    ("column", "name", "unit"),
    [
        ("decode_tok_s", "decode", "tok/s"),
        ("ttft_ms", "TTFT", "ms"),
        ("copy_gb_s", "copy", "GB/s"),
        ("gb_s", "", "GB/s"),
        ("mbu_pct", "MBU", "%"),
        ("wall_s", "wall", "s"),
        ("train_images_s", "train", "images/s"),
        ("prompt", "prompt", ""),
        ("repeats", "repeats", ""),
    ],
)
def test_units_come_from_the_column_s_name(column, name, unit):
    assert words.unit_of(column) == (name, unit)


def test_durations():
    assert [words.seconds(s) for s in (None, 0.84, 48.2, 725)] == ["–", "0.840 s", "48 s", "12 min 5 s"]
    assert words.seconds(725, "zh") == "12 分 5 秒"


def test_both_languages_say_the_same_things():
    for key, wording in words.table().items():
        assert set(wording) == set(words.LANGUAGES), key
        fields = [sorted(f for _, f, _, _ in string.Formatter().parse(wording[lang]) if f) for lang in words.LANGUAGES]
        assert fields[0] == fields[1], key
        assert all(wording[lang].strip() for lang in words.LANGUAGES), key


FRAME = pd.DataFrame(
    {
        "op": ["mm | wide", "add", "sdpa"],
        "time_ms": [1.2345, 0.5, None],
        "time_ms_low": [1.2, None, None],
        "time_ms_high": [1.3, None, None],
        "time_ms_reason": [None, None, "crashed"],
        "calls": [1234, 5, 6],
        "on_gpu": [True, False, None],
    }
)


def test_cells():
    made = tables.grid(FRAME, "en", {"op": {"en": "operator", "zh": "算子"}})
    assert made.heads == [("operator", ""), ("time", "ms"), ("calls", ""), ("on GPU", "")]
    assert made.numeric == [False, True, True, False]
    assert [[cell.plain for cell in row] for row in made.rows] == [
        ["mm | wide", "1.23 (1.20–1.30)", "1,234", "yes"],
        ["add", "0.500", "5", "no"],
        ["sdpa", "–", "6", "–"],
    ]
    assert made.reasons == ["no value: crashed", "not measured, no reason recorded"]


def test_an_interval_brings_its_ends_and_says_when_they_are_a_range():
    frame = pd.DataFrame(
        {"rate_tok_s": [Interval(30.18, 29.84, 30.61, 9, True), Interval(17.2, 17.0, 17.3, 3, False), None]}
    )
    made = tables.grid(frame)
    assert made.numeric == [True]
    assert [row[0].plain for row in made.rows] == ["30.2 (29.8–30.6)", "17.2 (range 17.0–17.3)", "–"]
    assert tables.grid(frame, "zh").rows[1][0].plain == "17.2 (范围 17.0–17.3)"


def test_three_ways_to_write_a_table():
    made = tables.grid(FRAME[["op", "time_ms", "time_ms_reason"]], "zh", {"op": {"en": "operator", "zh": "算子"}})
    assert tables.as_markdown(made).splitlines()[:3] == [
        "| 算子 | time (ms) |",
        "| :--- | ---: |",
        "| mm \\| wide | 1.23 |",
    ]
    assert tables.as_text(made).splitlines() == [
        "算子       time [ms]",
        "mm | wide       1.23",
        "add            0.500",
        "sdpa               –",
    ]
    html = tables.as_html(made)
    assert (
        '<td class="num" style="text-align:right" title="没有数值：crashed" aria-label="没有数值：crashed">–</td>'
        in html
    )


def test_text_in_a_table_cannot_become_markup():
    made = tables.grid(pd.DataFrame({"name": ["<img src=x>"], "why_reason": ["&"]}))
    assert "<img" not in tables.as_html(made) and "&lt;img src=x&gt;" in tables.as_html(made)


def test_an_empty_table():
    made = tables.grid(pd.DataFrame({"name": [], "time_ms": []}))
    assert tables.as_text(made) == "name  time [ms]"
