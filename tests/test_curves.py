"""Tables, fits and judges of notebooks 04 and 05, from records whose right reading is known; sections and readers."""

import random
from pathlib import Path

import cases
import pytest
import sweeps
from cases import answer
from spoken import codes, only, said

from rocmlab import batch_judges, curve_judges, curves, findings, results, roof, sweep, words
from rocmlab.sections import batch_sweep, prefill_decode

MEASURED = roof.Roof(500.0, "measured")
NONE = roof.Roof(None, "none", {"en": "nothing was measured", "zh": "没有测量"})


# ---- tables of lengths


def test_the_table_by_length():
    table = curves.by_length(sweeps.lengths(a_ms=20.0, b_us=1.0), 500.0).set_index("length_tokens")
    assert list(table.index) == [100, 500, 2000]  # the cold call is no length
    line = table.loc[500]
    assert line["prefill_ms"].median == pytest.approx(50.0)
    assert line["ttft_ms"].median == pytest.approx(51.0)
    assert line["prefill_tok_s"] == pytest.approx(10_000)
    assert line["tpot_ms"].median == pytest.approx(20.5055, rel=1e-3) and line["tpot_ms"].enough
    assert line["itl_p50_ms"] == pytest.approx(20.5, rel=0.01)
    # weights once, 505.5 positions read and one written
    assert line["gb_s"] == pytest.approx((1e9 + 1e5 * 506.5) / 20.5055 / 1e6, rel=1e-3)
    assert line["mbu_pct"] == pytest.approx(line["gb_s"] / 5)


@pytest.mark.parametrize(("per_token_ms", "code"), [(0.1, "PREFILL_GROWS"), (0.001, "PREFILL_FLAT")])
def test_prefill_grows_with_the_prompt_or_does_not(per_token_ms, code):
    rows = sweeps.lengths()
    for row in rows:
        row["t_prefill_s"] = (20 + per_token_ms * row.get("length", 0)) / 1000
    found = curve_judges.judge_prefill(rows)
    assert codes(found) == [code]
    assert found[0]["numbers"]["prefill_growth"] == pytest.approx(
        (20 + 2000 * per_token_ms) / (20 + 100 * per_token_ms)
    )
    assert "2000" in said(found[0])


def prefills(**rounds):
    """Steady rounds with a prefill of 100 and of 2000 tokens in ms each."""
    pairs = zip(rounds["short"], rounds["long"], strict=True)
    return [
        sweeps.text(length, 20.0, block=block, t_prefill_s=ms / 1000)
        for block, pair in enumerate(pairs)
        for length, ms in zip((100, 2000), pair, strict=True)
    ]


# Rounds of a real card: in the median 24.5 and 28.3 ms, 15% apart; calm rounds of it are a quarter apart.
NOISY_ROUNDS = {"short": (23.2, 28.0, 25.8, 33.5, 22.5, 22.9), "long": (28.2, 28.2, 40.1, 29.8, 28.3, 28.2)}


@pytest.mark.parametrize(
    ("rounds", "code", "variant"),
    [
        (NOISY_ROUNDS, "PREFILL_UNDECIDED", None),
        ({"short": (20.0, 40.0) * 3, "long": (22.0, 44.0) * 3}, "PREFILL_FLAT", "throughout"),
        ({"short": (20.0, 40.0) * 3, "long": (27.0, 54.0) * 3}, "PREFILL_GROWS", None),
        ({"short": (20.0,) * 3, "long": (60.0,) * 3}, "PREFILL_UNDECIDED", "few"),
    ],
)
def test_prefill_is_compared_round_by_round(rounds, code, variant):
    """A machine that halves its speed from round to round moves both lengths: their ratio stays."""
    (found,) = curve_judges.judge_prefill(prefills(**rounds))
    assert (found["code"], found["variant"]) == (code, variant)
    if rounds is NOISY_ROUNDS:
        assert found["numbers"]["prefill_growth_low"] == pytest.approx(29.8 / 33.5)
        assert found["numbers"]["prefill_growth_high"] == pytest.approx(40.1 / 25.8)
        assert "0.89 to 1.55" in said(found) and "0.89" in findings.say(found, "zh")["sentence"]


def test_without_a_ceiling_mbu_is_null_with_the_reason():
    line = curves.by_length(sweeps.lengths(), None, "not measured here").iloc[0]
    assert line["mbu_pct"] is None and line["mbu_pct_reason"] == "not measured here"
    assert line["gb_s"] > 0


def test_a_length_that_did_not_fit_keeps_its_line_with_reasons():
    rows = [*sweeps.lengths(), sweeps.text(8000, 1.0, visit="first", error="CUDA out of memory")]
    line = curves.by_length(rows, 500.0).iloc[-1]
    assert line["length_tokens"] == 8000 and line["tpot_ms"] is None and line["tpot_ms_reason"]
    assert codes(curve_judges.judge_memory(rows)) == ["LENGTH_LIMIT"]


def test_the_context_of_a_text_is_its_middle():
    """A text of 11 tokens after 100 reads 100 positions at first and 111 in the end: 105.5 on average."""
    assert set(curves.steady(sweeps.lengths())["context"]) == {105.5, 505.5, 2005.5}


def test_further_processes_are_not_pooled_with_the_first():
    """Times move between processes: the table, the fit and the gaps are the first one's, the others stand beside it."""
    own = sweeps.lengths(a_ms=20.0, b_us=0.0)
    other = [row | {"process": 1} for row in sweeps.lengths(a_ms=60.0, b_us=0.0)]
    line = curves.by_length([*own, *other], None).iloc[0]
    assert line["tpot_ms"].n == 6 and line["tpot_ms"].median == pytest.approx(20.0)
    assert line["itl_p99_ms"] < 21 and len(curves.gaps_ms([*own, *other], 100)) == 60
    assert curves.line(curves.steady([*own, *other])).a_ms == pytest.approx(20.0)
    assert [one.median for one in curves.by_process([*own, *other])["tpot_ms"]] == pytest.approx([20.0, 60.0])


def test_visits_are_columns_and_never_averaged():
    line = curves.by_visit(sweeps.lengths(a_ms=20.0, b_us=0.0, first_extra_ms=40.0)).iloc[0]
    assert line["itl_first_ms"] == pytest.approx(60.0)
    assert line["itl_second_ms"] == pytest.approx(20.0)
    assert line["itl_steady_ms"].median == pytest.approx(20.0)
    assert line["ttft_first_ms"] == pytest.approx(11.0)


def test_percentiles_of_the_gaps_see_one_slow_token():
    rows = sweeps.lengths(a_ms=20.0, b_us=0.0, jitter=(1.0,))
    slow = rows[3]
    slow["token_stamps_s"] = [*slow["token_stamps_s"][:-1], slow["token_stamps_s"][-1] + 0.5]
    line = curves.by_length(rows, None).iloc[0]
    assert line["itl_p50_ms"] == pytest.approx(20.0)
    assert line["itl_p99_ms"] > 400


# ---- the fit


def test_the_fit_finds_the_line_that_was_planted():
    fit = curves.line(curves.steady(sweeps.lengths(a_ms=20.0, b_us=2.5)))
    assert (fit.a_ms, fit.b_us) == (pytest.approx(20.0, rel=0.01), pytest.approx(2.5, rel=0.05))
    assert fit.b_low_us < 2.5 < fit.b_high_us and fit.residual_pct < 1


def test_the_interval_of_the_slope_holds_the_truth_as_often_as_it_says():
    draw, held = random.Random(5), 0
    for _ in range(60):
        jitter = tuple(draw.gauss(1, 0.01) for _ in range(6))
        rows = sweeps.lengths(a_ms=20.0, b_us=1.0, jitter=jitter)
        for row in rows:  # each text scatters by itself
            if row.get("visit") == "steady":
                row["t_end_s"] = row["t_first_token_s"] + (row["t_end_s"] - row["t_first_token_s"]) * draw.gauss(
                    1, 0.01
                )
        fit = curves.line(curves.steady(rows))
        held += fit.b_low_us <= 1.0 <= fit.b_high_us
    assert held >= 50


def test_two_lengths_are_no_line():
    assert curves.line(curves.steady(sweeps.lengths(contexts=(100, 500)))) is None


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        (sweeps.lengths(a_ms=20.0, b_us=5.0), "CONTEXT_COSTS"),
        (sweeps.lengths(a_ms=20.0, b_us=0.01), "CONTEXT_NO_EFFECT"),
        (sweeps.lengths(a_ms=20.0, b_us=-0.1), "CONTEXT_NO_EFFECT"),
        (sweeps.lengths(a_ms=20.0, b_us=0.2, jitter=(0.85, 1.15, 0.9, 1.1, 0.95, 1.05)), "CONTEXT_UNDECIDED"),
    ],
)
def test_the_context_costs_or_does_not(rows, code):
    assert codes(curve_judges.judge_context(rows, MEASURED)) == [code]


@pytest.mark.parametrize("visits", [1, 3, 5])
def test_a_slope_of_few_texts_has_no_interval_and_decides_nothing(visits):
    """One text a length drawn again is the same text: its interval would be as wide as nothing."""
    rows = sweeps.lengths(a_ms=20.0, b_us=5.0, jitter=(1.0,) * visits)
    (found,) = curve_judges.judge_context(rows, MEASURED)
    assert (found["code"], found["variant"]) == ("CONTEXT_UNDECIDED", "few") and "steady_visits" in said(found)
    assert codes(curve_judges.judge_context(sweeps.lengths(b_us=5.0, jitter=(1.0,) * 6), MEASURED)) == ["CONTEXT_COSTS"]


def test_the_interval_of_the_slope_ends_where_its_exact_distribution_does():
    """Only the longest context scatters: 17 texts, so its median drawn again lies between the 5th and the 13th of them
    (see test_timing.py), and the slope follows that median alone."""
    import pandas as pd

    texts = [(100.0, 20.0)] * 17 + [(500.0, 20.0)] * 17 + [(2000.0, 20.0 + n) for n in range(1, 18)]
    fit = curves.line(pd.DataFrame(texts, columns=["context", "tpot_ms"]))
    mean = (100 + 500 + 2000) / 3
    a_ms_of_the_last = (2000 - mean) / sum((x - mean) ** 2 for x in (100, 500, 2000))
    assert fit.b_us == pytest.approx(1000 * 9 * a_ms_of_the_last) and fit.enough
    assert [fit.b_low_us, fit.b_high_us] == pytest.approx([1000 * n * a_ms_of_the_last for n in (5, 13)])


def test_the_slope_agrees_with_the_normal_equations():
    """Least squares written out: b = sum (x - mx)(y - my) / sum (x - mx)^2, a = my - b mx."""
    rows = sweeps.lengths(a_ms=20.0, b_us=2.5, contexts=(100, 300, 900, 2000))
    for row in rows:
        if row.get("length") == 900:  # off the line, so that the fit is no identity
            row["t_end_s"] += 0.01
    frame = curves.steady(rows)
    medians = frame.groupby("context")["tpot_ms"].median()
    xs, ys = list(medians.index), list(medians)
    mean_x, mean_y = sum(xs) / 4, sum(ys) / 4
    pairs = list(zip(xs, ys, strict=True))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in pairs) / sum((x - mean_x) ** 2 for x in xs)
    fit = curves.line(frame)
    assert fit.b_us == pytest.approx(1000 * slope) and fit.a_ms == pytest.approx(mean_y - slope * mean_x)
    worst = max(abs(y / (mean_y + slope * (x - mean_x)) - 1) for x, y in pairs)
    assert fit.residual_pct == pytest.approx(100 * worst) and fit.n == 24


def test_percentiles_are_those_of_linear_interpolation():
    """p of n sorted values lies at place p (n - 1), between its two neighbours."""
    gaps = [1.0, 2.0, 4.0, 8.0, 16.0]
    row = sweeps.text(100, 1.0)
    stamps = [0.0]
    for gap in gaps:
        stamps.append(stamps[-1] + gap / 1000)
    row["token_stamps_s"] = stamps
    line = curves.by_length([row], None).iloc[0]
    assert [line[f"itl_p{p}_ms"] for p in (50, 90, 99)] == pytest.approx([4.0, 8 + 0.6 * 8, 8 + 0.96 * 8])


def test_a_length_whose_process_ended_is_not_said_to_lack_memory():
    rows = [*sweeps.lengths(), sweeps.text(8000, 1.0, visit="first")]
    assert "ended" in curves.by_length(rows, 500.0).iloc[-1]["tpot_ms_reason"]["en"]
    full = [*sweeps.lengths(), sweeps.text(8000, 1.0, visit="first", error="out of memory")]
    assert "memory" in curves.by_length(full, 500.0).iloc[-1]["tpot_ms_reason"]["en"]


def test_a_jump_is_no_line():
    rows = sweeps.lengths(a_ms=20.0, b_us=0.0, contexts=(100, 500, 1000, 2000))
    for row in rows:
        if row.get("length") == 1000:
            row["t_end_s"] = row["t_first_token_s"] + 3 * (row["t_end_s"] - row["t_first_token_s"])
    assert codes(curve_judges.judge_context(rows, MEASURED)) == ["CONTEXT_NOT_A_LINE"]


def test_the_slope_is_compared_with_reading_the_cache_once():
    found = curve_judges.judge_context(sweeps.lengths(a_ms=20.0, b_us=5.0), MEASURED)[0]
    assert found["numbers"]["cache_read_us_a_position"] == pytest.approx(0.2)  # 100 kB at 500 GB/s
    assert found["words"]["times"] == pytest.approx(25, rel=0.05)
    assert "25" in said(found)
    without = curve_judges.judge_context(sweeps.lengths(a_ms=20.0, b_us=5.0), NONE)[0]
    assert "cache once" not in said(without)


# ---- phases, visits, ways, stamps


def test_prefill_and_decode_are_said_with_the_share_of_the_ceiling_and_its_kind():
    found = curve_judges.judge_phases(sweeps.lengths(a_ms=20.0, b_us=0.0), MEASURED)[0]
    assert found["numbers"]["decode_tok_s"] == pytest.approx(50.0, rel=0.01)
    assert "10." in said(found) and "measured ceiling" in said(found)
    assert "实测上限" in findings.say(found, "zh")["sentence"]
    stated = curve_judges.judge_phases(sweeps.lengths(), roof.Roof(500.0, "stated"))[0]
    assert "stated peak" in said(stated)
    bare = curve_judges.judge_phases(sweeps.lengths(), NONE)[0]
    assert bare["numbers"]["mbu_pct"] is None and bare["numbers"]["mbu_pct_reason"] == "nothing was measured"


def test_a_rate_five_percent_above_the_measured_ceiling_is_impossible():
    found = curve_judges.judge_phases(sweeps.lengths(a_ms=1.7, b_us=0.0), MEASURED)
    assert codes(found) == ["IMPOSSIBLE_RATE"] and "synchronise" in said(found[0])
    near = curve_judges.judge_phases(sweeps.lengths(a_ms=2.0, b_us=0.0, contexts=(10, 20, 30)), MEASURED)
    assert codes(near) == ["PREFILL_AND_DECODE"]
    over = sweeps.lengths(a_ms=1.94, b_us=0.0, contexts=(10, 20, 30))  # 1 GB and 2 MB of cache: 103.3% of 500 GB/s
    assert codes(curve_judges.judge_phases(over, MEASURED)) == ["PREFILL_AND_DECODE"]
    stated = curve_judges.judge_phases(over, roof.Roof(500.0, "stated"))
    assert codes(stated) == ["IMPOSSIBLE_RATE"], "a peak that the maker states cannot be passed at all"


def test_a_rate_that_is_impossible_at_a_long_context_only_is_seen():
    """100 kB a position: 2 ms a token are 100% of 500 GB/s at no context, and 140% at 4,000 positions."""
    found = curve_judges.judge_phases(sweeps.lengths(a_ms=2.0, b_us=0.0, contexts=(10, 400, 4000)), MEASURED)
    assert codes(found) == ["IMPOSSIBLE_RATE"]
    assert found[0]["numbers"]["roof_pct"] == pytest.approx(100 * (1e9 + 1e5 * 4006.5) / 2.0 / 1e6 / 500, rel=1e-3)


def test_first_visits_that_cost_and_that_do_not():
    found = curve_judges.judge_visits(sweeps.lengths(a_ms=20.0, b_us=0.0, first_extra_ms=40.0))[0]
    assert found["code"] == "FIRST_VISIT_SLOW" and found["words"]["extra"] == pytest.approx(40.0)
    assert codes(curve_judges.judge_visits(sweeps.lengths())) == ["FIRST_VISIT_SAME"]


def late(row, token, by_ms):
    """Let one token of a text, and so all behind it, come later."""
    row["token_stamps_s"] = [one + by_ms / 1000 * (at >= token) for at, one in enumerate(row["token_stamps_s"])]
    row["t_end_s"] = row["token_stamps_s"][-1]


def test_a_one_off_gap_of_a_first_visit_is_named_apart_and_costs_no_token():
    """Ten gaps of 60 ms of which one is 400 ms longer: the mean would be 100."""
    rows = sweeps.lengths(a_ms=20.0, b_us=0.0, first_extra_ms=40.0)
    for row in (one for one in rows if one.get("visit") == "first"):
        late(row, 4, 400.0)
    (found,) = curve_judges.judge_visits(rows)
    assert found["words"]["first"] == pytest.approx(60.0) and found["words"]["extra"] == pytest.approx(40.0)
    assert found["variant"] == "one_off" and "460 ms" in said(found)
    alone = sweeps.lengths(a_ms=20.0, b_us=0.0)
    late(next(one for one in alone if one.get("visit") == "first"), 4, 400.0)
    assert codes(curve_judges.judge_visits(alone)) == ["FIRST_VISIT_SAME"], "one long gap is no cost of a token"


def test_the_cost_of_a_first_visit_is_the_middle_of_the_differences_of_each_length():
    """52 - 22, 110 - 30 and 95 - 60 ms: 35 in the middle. Medians of unlike lengths would say 95 - 30."""
    steps, extra = {100: 22.0, 500: 30.0, 2000: 60.0}, {100: 30.0, 500: 80.0, 2000: 35.0}
    rows = [
        sweeps.text(length, step + (extra[length] if visit == "first" else 0.0), visit=visit, block=None)
        for length, step in steps.items()
        for visit in ("first", "second")
    ]
    (found,) = curve_judges.judge_visits(rows)
    assert found["words"] | {"side": ""} == {"first": pytest.approx(95.0), "usual": pytest.approx(60.0),
                                             "extra": pytest.approx(35.0), "side": ""}  # fmt: skip


def test_first_visits_that_noise_slows_at_some_lengths_only_are_no_finding():
    rows = sweeps.lengths(a_ms=20.0, b_us=0.0)
    for row in rows:
        if row.get("visit") == "first" and row["length"] != 100:
            row |= {"token_stamps_s": [], "t_end_s": row["t_end_s"] + 0.4}
    assert curve_judges.judge_visits(rows) == []
    assert curve_judges.judge_visits(sweeps.lengths(a_ms=20.0, first_extra_ms=-10.0)) == []  # nor a second one by luck


@pytest.mark.parametrize(
    ("hand", "generate", "variant"), [(20.0, 21.0, None), (21.0, 20.0, "faster"), (20.0, 20.0, "same")]
)
def test_generate_beside_the_loop_can_come_out_three_ways(hand, generate, variant):
    found = curve_judges.judge_ways(sweeps.ways(hand, generate))[0]
    assert found["variant"] == variant
    assert found["numbers"]["generate_extra_pct"] == pytest.approx(100 * (generate / hand - 1), abs=0.01)


def test_few_pairs_decide_nothing():
    assert curve_judges.judge_ways(sweeps.ways(20.0, 25.0, blocks=3))[0]["variant"] == "few"
    assert curve_judges.judge_ways([]) == []


def test_the_cost_of_a_stamp_where_the_host_binds_and_where_the_device_does():
    rows = sweeps.stamps("as_it_is", 20.05, 20.0, 19.9) + sweeps.stamps("device_bound", 47.0, 32.0, 19.0)
    table = curves.stamp_costs(rows).set_index("case")
    assert table.loc["as_it_is", "cost_pct"].median == pytest.approx(0.25)
    assert table.loc["device_bound", "cost_pct"].median == pytest.approx(46.9, abs=0.1)
    assert list(table["bound_by"]) == ["host", "device"]
    found = curve_judges.judge_stamps(rows)
    assert [one["variant"] for one in found] == ["host", "device"]
    dear = curve_judges.judge_stamps(sweeps.stamps("as_it_is", 22.0, 20.0, 19.9))
    assert dear[0]["variant"] == "host_dear"
    assert curve_judges.judge_stamps(sweeps.stamps("as_it_is", 20.0, 20.0, 20.0, "cpu"))[0]["variant"] == "cpu"


# ---- may the numbers be believed?


def test_two_states_between_processes_are_named():
    rows = sweeps.lengths(a_ms=20.0, b_us=0.0)
    rows += [sweeps.text(100, 28.0 + block / 100, process=1, block=block) for block in range(6)]
    found = only(curve_judges.judge(rows, [], MEASURED), "TWO_STATES")
    assert found["variant"] is None
    assert (found["words"]["slow"], found["words"]["fast"]) == (
        pytest.approx(35.7, abs=0.1),
        pytest.approx(50, abs=0.1),
    )
    assert "TWO_STATES" not in codes(curve_judges.judge(sweeps.lengths(), [], MEASURED))


def test_two_processes_that_agree_are_two_lines_of_a_table():
    rows = [*sweeps.lengths(b_us=0.0), *(sweeps.text(100, 20.1, process=1, block=block) for block in range(6))]
    table = curves.by_process(rows)
    assert list(table["process"]) == [0, 1] and table["tpot_ms"].iloc[1].median == pytest.approx(20.1)


def test_other_work_load_and_ends_of_processes_are_named():
    rows = sweeps.lengths()
    rows[-1]["others_cpu_pct"] = 37.0
    rows = [row | {"load": {"load_1min": 9.0, "cores": 2}} for row in rows]
    ended = [{"status": "OK", "words": ""}, {"status": "CRASH", "words": "ended by SIGSEGV"}]
    found = codes(curve_judges.judge(rows, [], MEASURED, ended))
    assert {"OTHER_WORK", "LOADED_AT_START", "PROCESS_ENDED"} <= set(found)
    assert not {"OTHER_WORK", "LOADED_AT_START", "PROCESS_ENDED"} & set(
        codes(curve_judges.judge(sweeps.lengths(), [], MEASURED))
    )


def test_a_ramp_in_the_gaps_is_named():
    rows = sweeps.lengths(a_ms=20.0, b_us=0.0)
    first = next(r for r in rows if r.get("visit") == "steady" and r["length"] == 100)
    stamps, now = [first["t_first_token_s"]], first["t_first_token_s"]
    for step in range(10):
        now += (20.0 + 0.9 * (10 - step)) / 1000
        stamps.append(now)
    first |= {"token_stamps_s": stamps, "t_end_s": now}
    assert "CLOCK_RAMP" in codes(curve_judges.judge(rows, [], MEASURED))


def test_nothing_measured_gives_nothing():
    assert curve_judges.judge([], [], NONE) == []


# ---- batches


FLAT = {1: 20.0, 2: 20.2, 4: 20.1, 8: 20.5, 32: 21.0}


def test_the_table_by_batch():
    table = sweep.by_batch(sweeps.batches(FLAT | {64: "out of memory: CUDA out of memory"}), 500.0).set_index("batch")
    assert table.loc[8, "step_ms"].median == pytest.approx(20.5 * 1.007)
    assert table.loc[8, "decode_tok_s"].median == pytest.approx(8000 / (20.5 * 1.007))
    # weights once; for each of 8 rows 105 positions read and one written
    assert table.loc[8, "gb_s"] == pytest.approx((1e9 + 8 * 1e5 * 106) / (20.5 * 1.007) / 1e6)
    assert table.loc[8, "roof_pct"] == pytest.approx(table.loc[8, "gb_s"] / 5)
    assert table.loc[64, "step_ms"] is None and "out of memory" in table.loc[64, "step_ms_reason"]


def test_a_machine_that_changes_its_speed_meanwhile_does_not_bend_the_curve():
    rows = sweeps.batches(FLAT, slow={1: 1.7, 2: 1.7, 32: 1.7})
    record = sweep.sweep(rows, 100, 500.0, "measured")
    steps = {item["batch"]: item["decode_step_ms"] for item in record["items"]}
    assert {batch: steps[batch] / steps[1] for batch in steps} == pytest.approx({b: ms / 20 for b, ms in FLAT.items()})
    table = sweep.by_batch(rows, 500.0).set_index("batch")
    assert table.loc[2, "step_ms"].median == pytest.approx(1.7 * 20.2 * 1.007)  # as it was measured
    assert table.loc[2, "times_batch_1"].median == pytest.approx(1.01)
    assert codes(batch_judges.judge_scatter(rows, "GPU")) == ["NOISY"]
    assert batch_judges.judge_scatter(sweeps.batches(FLAT), "GPU") == []


def judged(steps, roof_gb_s=500.0, kind="measured"):
    return batch_judges.judge(sweep.sweep(sweeps.batches(steps), 100, roof_gb_s, kind))


def test_flat_and_far_below_the_roof_is_a_fixed_cost_and_names_no_cause():
    numbers, found = judged(FLAT)
    assert codes(found) == ["FIXED_COST_PER_STEP"]
    assert numbers["roof_pct"] == pytest.approx(10.1, abs=0.1) and numbers["step_growth"] == pytest.approx(1.05)
    assert numbers["step_rises_from_batch"] is None and numbers["step_rises_from_batch_reason"]
    words_ = said(found[0])
    assert "measured ceiling of 500" in words_ and "cannot tell" in words_


def test_flat_and_near_the_roof_is_bandwidth():
    assert codes(judged(FLAT, 60.0)[1]) == ["BANDWIDTH_BOUND"]
    assert codes(judged(FLAT, 60.0, "stated")[1]) == ["BANDWIDTH_BOUND"]


@pytest.mark.parametrize(
    ("steps", "roof_gb_s", "variant"),
    [
        (FLAT, 120.0, "between"),
        ({1: 20.0, 2: 39.0, 4: 80.0}, 500.0, "rises"),
        (FLAT, None, "no_roof"),
        ({2: 20.0, 4: 20.0}, 500.0, "no_batch_1"),
        ({1: 20.0, 2: 20.0}, 500.0, "short"),
    ],
)
def test_neither_is_undecided_and_says_why(steps, roof_gb_s, variant):
    found = judged(steps, roof_gb_s)[1]
    assert (codes(found), found[0]["variant"]) == (["UNDECIDED"], variant)
    assert found[0]["status"] == "unknown"


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ({1: 20.0, 2: 39.0, 4: 80.0}, "grows by half or more from the next batch on"),
        ({1: 20.0, 2: 29.0, 4: 80.0}, "grows by less than half up to batch 2"),
    ],
)
def test_where_a_step_begins_to_grow_is_said_in_words(steps, said):
    assert f"a step, which {said}, takes" in findings.say(judged(steps, 500.0)[1][0])["sentence"]


@pytest.mark.parametrize(
    ("steps", "to"), [({1: 20, 2: 29, 4: 80}, 2), ({1: 20, 2: 21, 4: 29, 8: 40}, 4), ({1: 20, 2: 39, 4: 21, 8: 80}, 1)]
)
def test_up_to_a_batch_means_all_batches_below_it_too(steps, to):
    """Growth of less than half, 30 ms: a batch of 4 that is quick again does not make 2 quick."""
    assert judged(steps)[1][0]["words"]["flat_to"] == to
    assert curves.flat_to({1: 20.0}, 1.5) == 1


def test_a_prefill_that_is_quick_again_at_a_longer_prompt_is_not_flat_up_to_there():
    rows = sweeps.lengths(contexts=(100, 500, 2000))
    for row in rows:
        row["t_prefill_s"] = {100: 0.02, 500: 0.06, 2000: 0.021}.get(row.get("length"), 0.02)
    assert codes(curve_judges.judge_prefill(rows)) == []  # neither flat throughout, nor longer in the end
    assert curves.flat_to({100: 20.0, 500: 60.0, 2000: 21.0}, 1.25) == 100


def test_a_step_faster_than_the_roof_allows_is_impossible():
    assert codes(judged(FLAT, 47.0)[1]) == ["IMPOSSIBLE_RATE"]
    assert codes(judged(FLAT, 49.5)[1]) == ["BANDWIDTH_BOUND"]  # within 5% of a measured ceiling
    assert codes(judged(FLAT, 49.5, "stated")[1]) == ["IMPOSSIBLE_RATE"]


@pytest.mark.parametrize(
    ("steps", "rises"),
    [(FLAT, None), ({1: 20, 2: 21, 4: 26, 8: 50}, 4), ({1: 20, 2: 30, 4: 21, 8: 22}, None), ({2: 20, 4: 90}, None)],
)
def test_the_batch_from_which_the_step_rises(steps, rises):
    assert batch_judges.rises_from(steps) == rises


MEMORY = {"asked_gib": 1.9, "free_gib": 1.12, "allocated_gib": 6.21, "reserved_unused_gib": 0.31}


@pytest.mark.parametrize(
    ("memory", "variant", "word"),
    [
        (MEMORY, "short", "real shortage"),
        (MEMORY | {"reserved_unused_gib": 1.5}, "fragmented", "fragmented"),
        ({"asked_gib": 9.0, "free_gib": 3.0}, "host", "9.00 GiB"),
        (None, None, "no rate"),
    ],
)
def test_a_lack_of_memory_is_explained(memory, variant, word):
    rows = sweeps.batches(FLAT) + sweeps.batches({64: "out of memory: HIP out of memory"}, memory=memory)
    rows += sweeps.batches({128: "not tried: batch 64 did not fit before"})
    numbers, found = batch_judges.judge(sweep.sweep(rows, 100, 500.0, "measured"))
    limit = only(found, "BATCH_LIMIT")
    assert limit["variant"] == variant and word in said(limit) and "64, 128" in said(limit)
    assert numbers["batch_64_tok_s"] is None and numbers["batch_64_tok_s_reason"]
    assert numbers["largest_batch"] == 32


def test_a_batch_that_ended_its_process_is_broken_not_a_limit():
    rows = sweeps.batches(FLAT | {64: "the process ended: ended by SIGSEGV"})
    found = batch_judges.judge(sweep.sweep(rows, 100, 500.0, "measured"))[1]
    assert "BATCH_FAILED" in codes(found) and "BATCH_LIMIT" not in codes(found)


def test_batches_that_were_not_reached_are_neither_broken_nor_out_of_memory():
    rows = sweeps.batches(FLAT | {64: "no time: the limit of 60 s was reached"})
    found = batch_judges.judge(sweep.sweep(rows, 100, 500.0, "measured"))[1]
    assert codes(found) == ["FIXED_COST_PER_STEP", "BATCH_NO_TIME"] and "64" in said(found[1])


@pytest.mark.parametrize(
    ("steps", "roof_gb_s", "refuted"),
    [
        (FLAT, 500.0, ["NOT_BANDWIDTH", "NOT_ARITHMETIC"]),
        (FLAT, 60.0, ["NOT_ARITHMETIC"]),
        ({1: 20.0, 2: 40.0, 8: 160.0}, 500.0, ["NOT_BANDWIDTH"]),
        ({1: 20.0, 2: 40.0, 8: 160.0}, None, []),
        ({2: 20.0}, 500.0, []),
    ],
)
def test_what_a_sweep_refutes(steps, roof_gb_s, refuted):
    record = sweep.sweep(sweeps.batches(steps), 100, roof_gb_s, "measured")
    assert codes(batch_judges.discarded(record)) == refuted


@pytest.mark.parametrize(
    ("steps", "variant"), [(FLAT, "free"), ({1: 20.0, 2: 25.0, 4: 30.0}, "cheap"), ({1: 20.0, 2: 39.0}, "dear")]
)
def test_what_a_second_request_would_cost(steps, variant):
    found = batch_judges.second_request({"items": [{"batch": b, "decode_step_ms": ms} for b, ms in steps.items()]})
    assert found["variant"] == variant
    assert ("cost you nothing" in said(found)) == (variant == "free")
    items = [
        {"batch": 1, "decode_step_ms": 20.0},
        {"batch": 2, "decode_step_ms": 20.0, "times_low": 0.7, "times_high": 1.6},
    ]
    assert batch_judges.second_request({"items": items})["variant"] == "unsure"
    assert batch_judges.second_request({"items": [{"batch": 2, "decode_step_ms": 1.0}]}) is None


def test_padding_that_costs_and_that_does_not():
    plain, padded = sweeps.batches({4: 20.0}, alone_ms=20.0), sweeps.batches({4: 26.0}, padded=True, alone_ms=20.0)
    for row in padded:
        row["real_prompt_tokens"] = 250
    found = batch_judges.judge_padding(plain + padded)[0]
    assert found["variant"] is None and found["numbers"]["padded_share_pct"] == pytest.approx(37.5)
    assert "30%" in said(found)
    for row in padded:
        row["decode_step_ms"] *= 1 if row["kind"] == "anchor" else 20 / 26
    assert batch_judges.judge_padding(plain + padded)[0]["variant"] == "same"
    assert batch_judges.judge_padding(plain) == []


def test_padding_whose_interval_reaches_into_the_other_costs_nothing_that_is_shown():
    plain, padded = sweeps.batches({4: 20.0}, alone_ms=20.0), sweeps.batches({4: 21.0}, padded=True, alone_ms=20.0)
    for row in (one for one in [*plain, *padded] if one["kind"] == "item"):
        row["decode_step_ms"] *= 1 + 0.1 * (row["pass"] % 2)  # a tenth up at every other pass; padding adds a twentieth
    (found,) = batch_judges.judge_padding(plain + padded)
    assert found["variant"] == "same" and found["numbers"]["padded_over_batch_1"] > 1.05


def test_padding_is_longer_only_where_the_whole_quotient_is():
    """The interval of the one ends where that of the other begins, and the medians are a quarter apart."""
    plain, padded = sweeps.batches({4: 20.0}, alone_ms=20.0), sweeps.batches({4: 20.0}, padded=True, alone_ms=20.0)
    for rows, times in ((plain, (0.8, 0.8, 0.8, 1.05, 1.05, 1.05)), (padded, (1.06, 1.06, 1.06, 1.3, 1.3, 1.3))):
        for row in (one for one in rows if one["kind"] == "item" and one["pass"]):
            row["decode_step_ms"] *= times[row["pass"] - 1]
    (found,) = batch_judges.judge_padding(plain + padded)
    assert found["variant"] == "same"
    assert found["numbers"]["padding_extra_low_pct"] == pytest.approx(100 * (1.06 / 1.05 - 1), abs=0.5)
    assert "1% to 6" in said(found)


def test_a_batch_without_its_anchor_has_no_step_in_the_record():
    rows = [row for row in sweeps.batches(FLAT) if row.get("beside") != 32]
    record = sweep.sweep(rows, 100, 500.0, "measured")
    assert "error" in record["items"][-1] and "decode_step_ms" in record["items"][-2]


@pytest.mark.parametrize(("wide", "code"), [((19.0, 21.0), "FIXED_COST_PER_STEP"), ((6.0, 21.0), "UNDECIDED")])
def test_a_step_that_scatters_into_another_verdict_is_undecided(wide, code):
    record = sweep.sweep(sweeps.batches(FLAT), 100, 500.0, "measured")
    record["items"][0] |= {"decode_step_low_ms": wide[0], "decode_step_high_ms": wide[1]}
    assert codes(batch_judges.judge(record)[1]) == [code]


def test_a_slow_first_pass_is_named():
    assert codes(batch_judges.judge_first_pass(sweeps.batches(FLAT, first_extra_ms=40.0), "GPU")) == [
        "FIRST_VISIT_SLOW"
    ]
    assert batch_judges.judge_first_pass(sweeps.batches(FLAT), "GPU") == []
    mixed = sweeps.batches({1: 20.0, 2: 20.0}, first_extra_ms=90.0) + sweeps.batches({4: 20.0}, first_extra_ms=1.0)
    assert batch_judges.judge_first_pass(mixed, "GPU") == []


def test_a_first_pass_is_judged_by_its_median_step_and_shape_by_shape():
    """40 ms more for every batch; one step of the first pass of batch 1 took 400 ms, the mean of which says 105."""
    rows = sweeps.batches({1: 20.0, 2: 21.0, 128: 90.0}, first_extra_ms=40.0)
    for row in (one for one in rows if one["kind"] == "item"):
        steps = [row["decode_step_ms"]] * 8
        if row["batch"] == 1 and row["visit"] == "first":
            steps[3] = 400.0
        row |= {"step_ms": steps, "decode_step_ms": sum(steps) / 8}
    (found,) = batch_judges.judge_first_pass(rows, "GPU")
    assert found["words"]["extra"] == pytest.approx(40.0, abs=0.7) and found["words"]["first"] < 131
    assert found["variant"] == "one_off" and "400 ms" in said(found)
    assert sweep.by_batch(rows)["first_visit_ms"].iloc[0] == pytest.approx(60.0)


@pytest.mark.parametrize(
    "record",
    [
        {}, {"items": None}, {"items": [1, None, {}, {"batch": "x"}]}, {"items": [{"batch": 1, "decode_step_ms": -3}]},
        {"items": [{"batch": 1, "decode_step_ms": 0}, {"batch": 4, "decode_step_ms": 5}]},
        {"items": [{"batch": 1, "decode_step_ms": 5}], "weight_bytes": "big", "peak_gb_s": 0},
    ],
)  # fmt: skip
def test_odd_sweeps_are_undecided_and_never_raise(record):
    numbers, found = batch_judges.judge(record)
    assert found[0]["code"] == "UNDECIDED" and said(found[0])
    assert all(numbers.get(f"{key}_reason") for key, value in numbers.items() if value is None)


# ---- files


SWEEP = {"schema": "rocmlab-batch-sweep-1", "model": "M", "dtype": "float16", "weight_bytes": 2_000_000_000}


def test_a_sweep_file_of_another_card(tmp_path):
    items = [{"batch": b, "decode_step_ms": 50.0 + b / 10} for b in (1, 2, 4, 8, 16)]
    found = answer(
        tmp_path, SWEEP | {"peak_gb_s": 224.0, "items": [*items, {"batch": 64, "error": "CUDA out of memory"}]}
    )
    assert (found["kind"], found["verdict"]) == ("batch_sweep", "FIXED_COST_PER_STEP")
    assert found["numbers"]["gb_s"] == pytest.approx(2000 / 50.1)
    assert found["numbers"]["batch_64_tok_s"] is None
    assert "out of memory at batch 64" in found["sentence"].lower()
    assert codes(found["findings"]) == ["FIXED_COST_PER_STEP", "BATCH_LIMIT"]


def test_a_series_file_that_throttles(tmp_path):
    calls = [10.0] * 30 + [10.0 + i / 15 for i in range(30)] + [12.0] * 30
    record = {"schema": "rocmlab-timings-1", "op": "mm", "unit": "ms", "calls": calls}
    assert answer(tmp_path, record)["verdict"] == "SLOWS_DOWN"
    hot = [{"call": 0, "temp_c": 45}, {"call": 89, "temp_c": 88}]
    found = answer(tmp_path, record | {"sensor": hot})
    assert found["verdict"] == "THROTTLING" and found["numbers"]["slower_pct"] == pytest.approx(20.0)


LINES = (
    "Vulkan  : 40.00 tok/sec, 512 tokens, 0.50s to first token, Stop reason: EOS Token Found\n"
    "CPU     : 8.00 tok/sec, 512 tokens, 9.00s to first token, Stop reason: EOS Token Found\n"
    "ROCm 7  : 30.00 tok/sec, 512 tokens, 0.20s to first token, Stop reason: User Stopped\n"
)


def test_application_lines_with_a_winner_for_each_phase(tmp_path):
    found = answer(tmp_path, LINES, "chat.txt")
    assert (found["kind"], found["verdict"]) == ("tool_output", "DIFFERENT_BOTTLENECKS")
    numbers = found["numbers"]
    assert (numbers["tokens"], numbers["cpu_tok_s"], numbers["rocm_7_ttft_s"]) == (512, 8.0, 0.2)
    assert numbers["rocm_7_ttft_shorter_pct"] == pytest.approx(60.0)
    assert numbers["rocm_7_decode_slower_pct"] == pytest.approx(25.0)


@pytest.mark.parametrize(
    "text",
    [
        "A: 40.0 tok/sec, 10 tokens, 0.5s to first token\nB: 20.0 tok/sec, 10 tokens, 0.9s to first token\n",
        "A: 40.0 tok/sec, 10 tokens, 0.50s to first token\nB: 39.5 tok/sec, 10 tokens, 0.49s to first token\n",
        "37.52 tok/sec • 1,204 tokens • 0.31s to first token • Stop reason: EOS Token Found\n",
    ],
)
def test_application_lines_without_two_winners_are_only_read(tmp_path, text):
    found = answer(tmp_path, text, "chat.txt")
    assert (found["kind"], found["verdict"]) == ("tool_output", "OK")
    assert "first token" in found["sentence"]


def test_different_counts_of_tokens_stay_apart(tmp_path):
    text = "A: 40.0 tok/sec, 10 tokens, 0.5s to first token\nA: 20.0 tok/sec, 12 tokens, 0.9s to first token\n"
    numbers = answer(tmp_path, text, "chat.txt")["numbers"]
    assert (numbers["a_tokens"], numbers["a_2_tokens"]) == (10, 12)
    assert "tokens" not in numbers


def test_every_case_of_these_kinds(shared):
    entries = cases.expected(shared, "C")
    assert len(entries) >= 5
    wrong = {name: cases.differences(shared / "cases" / name, entry) for name, entry in entries.items()}
    assert not {name: found for name, found in wrong.items() if found}


# ---- sections


def run_of(tmp_path: Path) -> Path:
    run = results.start("04", str(tmp_path))
    run.append("lengths", sweeps.lengths(first_extra_ms=40.0) + sweeps.ways(20.0, 20.4))
    run.append("stamps", sweeps.stamps("as_it_is", 20.05, 20.0, 19.9))
    run.append("ceiling", sweeps.bandwidth({256: (900.0, 900.0), 512: (480.0, 500.0), 1024: (480.0, 500.0)}))
    rows = (
        sweeps.batches(FLAT)
        + sweeps.batches({4: 22.0}, padded=True, alone_ms=20.0)
        + sweeps.batches({1: 22.0, 8: 23.0}, context=400)
    )
    run.append("batches", rows + sweeps.batches({64: "out of memory: CUDA out of memory"}))
    return tmp_path


def test_the_section_of_04_shows_every_table_and_figure(tmp_path):
    made = prefill_decode.section(run_of(tmp_path))
    names = {"by_length", "by_first_visit", "by_way", "by_process_04", "stamp_costs", "bandwidth"}
    assert {table.name for table in made.tables} == names
    assert {figure.name for figure in made.figures} == {"tpot", "prefill", "itl", "bandwidth-figure"}
    for figure in made.figures:
        assert figure.draw() is not None and all(figure.alt[lang] for lang in words.LANGUAGES)
    assert {"PREFILL_AND_DECODE", "FIRST_VISIT_SLOW", "GENERATE_COSTS", "STAMP_COST"} <= set(codes(made.findings))


def test_the_section_of_05_answers_why_it_is_slow_and_speaks_to_a_user(tmp_path):
    made = batch_sweep.section(run_of(tmp_path))
    assert made.answers["slow"]["code"] == "FIXED_COST_PER_STEP"
    assert made.answers["slow"]["numbers"]["roof_pct"] == pytest.approx(10.1, abs=0.1)
    assert "cost you nothing" in said(only(made.findings, "SECOND_REQUEST"))
    assert {"BATCH_LIMIT", "PADDING"} <= set(codes(made.findings))
    assert len(made.tables[0].frame) == 9
    assert all(figure.draw() is not None for figure in made.figures)
    assert "measured" in made.tables[0].notes[0]["en"]


def test_sections_without_records_say_why(tmp_path):
    assert prefill_decode.section(tmp_path).missing and batch_sweep.section(tmp_path).missing


def test_a_section_of_failed_processes_only_says_so(tmp_path):
    run = results.start("05", str(tmp_path))
    run.append("batches_ended", {"status": "ERROR", "words": "boom"})
    run.append("lengths_ended", {"status": "ERROR", "words": "boom"})
    for made in (batch_sweep.section(tmp_path), prefill_decode.section(tmp_path)):
        assert codes(made.findings) == ["PROCESS_ENDED"]
        assert not made.answers
