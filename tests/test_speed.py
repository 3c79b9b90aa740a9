"""Rates from arithmetic; tables and judges from made-up records whose right reading is known."""

import made
import pytest
from spoken import codes

from rocmlab import findings, rates, speed, speedup, texts


def only(found, code):
    return next(one for one in found if one["code"] == code)


# ---- rates


def test_rates_of_one_generation():
    record = {"t_start_s": 1.0, "t_first_token_s": 1.5, "t_end_s": 5.5, "new_tokens": 81, "prompt_tokens": 200}
    found = rates.rates(record)
    assert found["ttft_s"] == 0.5
    assert found["tpot_ms"] == 50.0
    assert found["decode_tok_s"] == 20.0
    assert found["prompt_per_ttft_tok_s"] == 400.0
    assert found["e2e_tok_s"] == 18.0


@pytest.mark.parametrize("missing", ["t_first_token_s", "t_end_s", "new_tokens"])
def test_a_missing_part_gives_null_with_a_reason_and_never_zero(missing):
    record = {"t_start_s": 0.0, "t_first_token_s": 0.5, "t_end_s": 4.5, "new_tokens": 81, "prompt_tokens": 9}
    found = rates.rates(record | {missing: None})
    assert found["decode_tok_s"] is None
    assert found["decode_tok_s_reason"]


def test_one_token_has_no_decode_rate():
    assert rates.rates(made.generation(new_tokens=1))["decode_tok_s"] is None


def test_batch_counts_in_rates_of_tokens_but_not_in_tpot():
    found = rates.rates(made.generation(tok_s=10.0, batch=4))
    assert found["decode_tok_s"] == pytest.approx(40.0)
    assert found["tpot_ms"] == pytest.approx(100.0)


def test_bytes_a_second_are_weights_over_tpot():
    frame = speed.table([made.generation(tok_s=30.0)])
    assert frame["gb_s"].iloc[0] == pytest.approx(30.0)


# ---- tables


def test_tables_of_a_whole_study():
    rows = made.study(gpu=30.0, cpu=15.0)
    frame = speed.table(rows)
    assert speed.main_arms(frame) == ["cpu", "gpu"]
    prompts = speed.by_prompt(frame)
    assert list(prompts["prompt"]) == ["one", "two", "three"]
    assert prompts["gpu_decode_tok_s"].iloc[1].median == pytest.approx(30.0)
    assert prompts["ratio"].iloc[0].median == pytest.approx(2.0)
    measures = speed.measures(frame, rows).set_index("measure")
    assert measures.loc["itl_p50_ms", "gpu"] == pytest.approx(33.3, abs=0.4)
    assert measures.loc["ttft_ms", "cpu"].median == pytest.approx(100.0)
    assert measures.loc["e2e_tok_s", "gpu"].median == pytest.approx(61 / (0.1 + 60 / 30))
    assert list(speed.by_process(frame)["process"]) == [0, 1]


def test_visits_are_three_columns_and_never_averaged():
    rows = [*made.study(), made.generation("gpu", 5.0, visit="cold"), made.generation("gpu", 15.0, visit="first")]
    visits = speed.by_visit(speed.table(rows)).set_index("arm")
    assert visits.loc["gpu", "cold_tok_s"].median == pytest.approx(5.0)
    assert visits.loc["gpu", "first_tok_s"].median == pytest.approx(15.0)
    assert visits.loc["gpu", "steady_tok_s"].median == pytest.approx(30.0)


# ---- is it faster?


def test_faster():
    found = only(speedup.judge(made.study(gpu=30.0, cpu=15.0), []), "SPEEDUP")
    assert found["numbers"]["ratio"] == pytest.approx(2.0)
    assert "2.00 [2.00, 2.00] times" in findings.say(found)["sentence"]


def test_slower():
    assert "NO_SPEEDUP" in codes(speedup.judge(made.study(gpu=10.0, cpu=15.0), []))


def test_cannot_tell_from_three_pairs():
    assert "SPEEDUP_UNDECIDED" in codes(speedup.judge(made.study(processes=1), []))


def test_cannot_tell_when_the_interval_holds_one():
    rows = made.study(gpu=15.0, cpu=15.0)
    for row, scale in zip(rows, (1, 1.1, 1, 0.9, 1, 1.05, 1, 0.95, 1, 1.02, 1, 0.98), strict=True):
        row["t_end_s"] = row["t_first_token_s"] + (row["t_end_s"] - row["t_first_token_s"]) / scale
    assert "SPEEDUP_UNDECIDED" in codes(speedup.judge(rows, []))


def test_cpu_alone_has_a_rate_and_no_ratio():
    found = speedup.judge(made.study(gpu=None, cpu=15.0), [])
    assert only(found, "CPU_ONLY_RATE")["numbers"]["cpu_decode_tok_s"] == pytest.approx(15.0)
    assert not {"SPEEDUP", "NO_SPEEDUP", "NOT_LIKE_FOR_LIKE"} & set(codes(found))


def test_different_dtypes_without_a_like_pair_are_named():
    found = only(speedup.judge(made.study(), []), "NOT_LIKE_FOR_LIKE")
    assert "float32" in findings.say(found)["sentence"]
    assert "float16" in findings.say(found)["sentence"]


def test_like_for_like_and_best_against_best():
    rows = made.study()
    for repeat in range(6):
        for arm, dtype, tok_s in (
            ("cpu", "float32", 15.0),
            ("gpu", "float16", 30.0),
            ("cpu_bfloat16", "bfloat16", 20.0),
            ("gpu_float32", "float32", 27.0),
        ):
            rows.append(made.generation(arm, tok_s, dtype=dtype, kind="side", block=repeat))
    found = only(speedup.judge(rows, []), "LIKE_FOR_LIKE")
    assert found["numbers"]["like_for_like_ratio"] == pytest.approx(27 / 15)
    assert found["numbers"]["best_against_best_ratio"] == pytest.approx(30 / 20)
    assert found["numbers"]["headline_dtypes_ratio"] == pytest.approx(30 / 15)
    assert "the dtypes of the headline in the same turns 2.00" in findings.say(found)["sentence"]
    assert "NOT_LIKE_FOR_LIKE" not in codes(speedup.judge(rows, []))


# ---- does the prompt matter?


def test_not_the_prompt():
    found = [f for f in speedup.judge(made.study(), []) if f["code"] == "PROMPT_NO_EFFECT"]
    assert {f["words"]["side"] for f in found} == {"CPU", "GPU"}
    assert found[0]["words"]["spread"] == pytest.approx(2.0, abs=0.01)


def test_the_prompt_matters():
    assert "PROMPT_MATTERS" in codes(speedup.judge(made.study(jitter=(0.7, 1.0, 1.2)), []))


def test_prompts_measured_once_cannot_be_told_apart():
    rows = made.study(processes=1, jitter=(0.7, 1.0, 1.2))
    assert "PROMPT_MATTERS" not in codes(speedup.judge(rows, []))
    found = only(speedup.judge(rows, []), "PROMPT_UNDECIDED")
    assert "once" in findings.say(found)["sentence"]


def test_the_prompt_cannot_be_judged_on_a_restless_machine():
    rows = made.study(jitter=(0.9, 1.0, 1.1))
    for row in rows:
        if row["process"] == 1:
            row["t_end_s"] = row["t_first_token_s"] + 1.6 * (row["t_end_s"] - row["t_first_token_s"])
    assert "PROMPT_UNDECIDED" in codes(speedup.judge(rows, []))


# ---- may the numbers be believed?


def test_calm_records_raise_no_warning():
    found = speedup.judge(made.study(), [made.text()])
    assert [f["code"] for f in found if f["status"] == "warn"] == ["NOT_LIKE_FOR_LIKE"]


def test_early_end_counts_real_tokens_only():
    rows = made.study()
    rows[1] = made.generation("gpu", 30.0, new_tokens=31)
    assert only(speedup.judge(rows, []), "STOPPED_EARLY")["numbers"] == {"new_tokens": 31, "max_new_tokens": 61}


def test_other_work_is_named():
    rows = [row | {"others_cpu_pct": 22.0} for row in made.study()]
    assert "22%" in findings.say(only(speedup.judge(rows, []), "OTHER_WORK"))["sentence"]


def test_load_at_start_is_named():
    rows = [row | {"load": {"load_1min": 9.5, "cores": 8}} for row in made.study()]
    assert "LOADED_AT_START" in codes(speedup.judge(rows, []))


def test_two_states_show_only_between_processes():
    rows = [row for p in range(3) for row in made.study(gpu=30.0 if p != 1 else 20.0, processes=1, jitter=(1, 1, 1))]
    for index, row in enumerate(rows):
        row["process"] = index // 6
    for row in list(rows):  # a fourth sample in each process, for a spread inside it
        if row["prompt_id"] == "one":
            rows.append(row | {"block": 9})
    found = only(speedup.judge(rows, []), "TWO_STATES")
    assert (found["words"]["slow"], found["words"]["fast"]) == (pytest.approx(20.0), pytest.approx(30.0))
    assert "TWO_STATES" not in codes(speedup.judge(made.study(processes=3), []))


def slowed(rows, factor, chosen):
    """Make the chosen generations slower by a factor."""
    for row in rows:
        if chosen(row):
            row["t_end_s"] = row["t_first_token_s"] + factor * (row["t_end_s"] - row["t_first_token_s"])
    return rows


def test_two_states_inside_a_process():
    rows = slowed(made.study(processes=6), 1.6, lambda row: row["block"] == row["process"] % 3 and row["arm"] == "gpu")
    found = only(speedup.judge(rows, []), "TWO_STATES")
    assert (found["variant"], found["words"]["n_slow"], found["words"]["n_fast"]) == ("inside", 6, 12)
    assert found["words"]["slow"] == pytest.approx(30 / 1.6, rel=0.02)


def test_a_state_of_one_process_is_not_said_to_change_inside_it():
    rows = slowed(made.study(processes=4), 1.6, lambda row: row["process"] == 2)
    assert only(speedup.judge(rows, []), "TWO_STATES")["variant"] is None


def test_a_prompt_that_is_slower_by_nature_is_no_second_state():
    found = speedup.judge(made.study(processes=4, jitter=(1.0, 0.7, 1.0)), [])
    assert "TWO_STATES" not in codes(found)
    assert "NOISY" not in codes(found)
    assert "PROMPT_MATTERS" in codes(found)


def test_scatter_inside_a_prompt_hides_whether_it_matters():
    rows = made.study(processes=3)
    slowed(rows, 1.4, lambda row: row["process"] == 1)
    slowed(rows, 0.8, lambda row: row["process"] == 2)
    assert "PROMPT_NO_EFFECT" not in codes(speedup.judge(rows, []))


def test_unequal_lengths_decide_nothing():
    rows = [
        row | {"new_tokens": 3, "t_end_s": row["token_stamps_s"][2]} if row["arm"] == "gpu" else row
        for row in made.study()
    ]
    found = codes(speedup.judge(rows, []))
    assert "SPEEDUP_UNDECIDED" in found
    assert "STOPPED_EARLY" in found


def test_other_work_in_one_process_of_three_is_named():
    rows = [row | {"others_cpu_pct": 40.0 if row["process"] == 1 else 0.3} for row in made.study(processes=3)]
    assert only(speedup.judge(rows, []), "OTHER_WORK")["numbers"]["others_cpu_pct"] == 40.0


def test_other_work_that_cannot_be_told_is_said():
    rows = [row | {"others_cpu_pct": None} for row in made.study()]
    assert "OTHER_WORK_UNKNOWN" in codes(speedup.judge(rows, []))


def test_somebody_else_on_the_gpu_is_named():
    load = {"load_1min": 0.1, "cores": 8, "device_memory_bytes": 8 * 2**30, "device_free_bytes": 4 * 2**30}
    found = only(speedup.judge([row | {"load": load} for row in made.study()], []), "GPU_MEMORY_TAKEN")
    assert found["numbers"] == {"device_used_gib": 4.0, "device_memory_gib": 8.0}
    calm = load | {"device_free_bytes": int(7.6 * 2**30)}
    assert "GPU_MEMORY_TAKEN" not in codes(speedup.judge([row | {"load": calm} for row in made.study()], []))


def test_a_card_that_slows_down_over_the_run_is_named():
    rows = made.study(processes=5, jitter=(1, 1, 1))
    slow = iter([1 + 0.02 * step for step in range(15)])
    for row in rows:
        if row["arm"] == "gpu":
            factor = next(slow)
            row["t_end_s"] = row["t_first_token_s"] + factor * (row["t_end_s"] - row["t_first_token_s"])
    found = [f for f in speedup.judge(rows, []) if f["code"] == "SLOWS_DOWN"]
    assert len(found) == 1
    assert "GPU" in findings.say(found[0])["sentence"]


def test_bytes_a_second_count_the_cache_too():
    plain, cached = made.generation(tok_s=30.0), made.generation(tok_s=30.0, kv_bytes_a_position=10_000_000)
    frame = speed.table([plain, cached])
    assert frame["gb_s"].iloc[1] - frame["gb_s"].iloc[0] == pytest.approx(30.0 * 0.01 * (20 + 61 / 2))


def test_noise_is_named_loudly_when_it_is_large():
    def restless(factors):
        rows = made.study(gpu=None, processes=len(factors), jitter=(1, 1, 1))
        for process, factor in enumerate(factors):
            slowed(rows, factor, lambda row, process=process: row["process"] == process)
        return only(speedup.judge(rows, []), "NOISY")

    assert restless([0.88, 0.93, 1.0, 1.08, 1.14])["variant"] is None
    assert restless([0.6, 0.8, 1.0, 1.25, 1.5])["variant"] == "very"


def test_a_slow_first_visit_is_named_and_kept_apart():
    rows = [*made.study(), made.generation("gpu", 10.0, visit="first"), made.generation("cpu", 15.0, visit="first")]
    found = [f for f in speedup.judge(rows, []) if f["code"] == "FIRST_VISIT_SLOW"]
    assert [f["words"]["side"] for f in found] == ["GPU"]
    assert found[0]["words"]["extra"] == pytest.approx(100 - 33.3, abs=0.1)


def test_a_first_text_is_compared_with_the_steady_ones_of_its_process_by_the_median_gap():
    """40, 39 and 41 ms more a token in three processes of different speed; one gap of a first text is 2 s longer."""
    steps = ((0, 20.0, 60.0), (1, 40.0, 79.0), (2, 60.0, 101.0))
    rows = [made.generation("cpu", 1000 / usual, process=p, block=b) for p, usual, _ in steps for b in range(3)]
    first = [made.generation("cpu", 1000 / new, visit="first", process=p) for p, _, new in steps]
    stamps = first[0]["token_stamps_s"]
    first[0] |= {"token_stamps_s": [*stamps[:20], *(one + 2.0 for one in stamps[20:])], "t_end_s": stamps[-1] + 2.0}
    found = only(speedup.judge([*rows, *first], []), "FIRST_VISIT_SLOW")
    assert found["words"]["first"] == pytest.approx(60.0) and found["words"]["usual"] == pytest.approx(20.0)
    assert found["variant"] == "one_off" and found["numbers"]["one_off_ms"] == pytest.approx(2060.0)
    assert "39.0 to 41.0 ms, n = 3" in findings.say(found)["sentence"]


def test_greedy_tokens_that_vary_are_named():
    rows = made.study()
    assert "NOT_REPEATABLE" not in codes(speedup.judge(rows, []))
    rows[-1]["token_ids"] = [9, *rows[-1]["token_ids"][1:]]
    assert "NOT_REPEATABLE" in codes(speedup.judge(rows, []))


def test_a_process_that_crashed_is_named():
    ended = [{"status": "OK", "words": "ended normally"}, {"status": "CRASH", "words": "ended by SIGSEGV"}]
    found = only(speedup.judge(made.study(), [], ended), "PROCESS_ENDED")
    assert "1 of 2" in findings.say(found)["sentence"]


def test_nothing_measured_says_nothing():
    assert speedup.judge([], []) == []


# ---- texts


def test_identical_text_is_right():
    found = speedup.judge([], [made.text(), made.text(prompt_id="two")])
    assert codes(found) == ["TEXT_RIGHT"]
    assert found[0]["numbers"]["texts_identical"] == 2


def test_a_rounding_difference_is_no_fault():
    other = made.text(gaps=[0.0, 0.0, 0.01, 0.0], subject={"token_ids": [5, 6, 9, 8]})
    assert texts.first_divergence(other) == 2
    assert codes(speedup.judge([], [other])) == ["TEXT_RIGHT"]


def test_a_token_far_below_the_best_is_wrong():
    wrong = made.text(gaps=[0.0, 11.5, 3.0, 0.0], subject={"token_ids": [5, 0, 0, 0]})
    found = speedup.judge([], [wrong])
    assert codes(found) == ["WRONG_TEXT"]
    assert found[0]["numbers"]["first_wrong_step"] == 1


def test_equal_tokens_with_broken_logits_are_wrong():
    assert codes(speedup.judge([], [made.text(logits_finite=False, first_nonfinite_step=3)])) == ["WRONG_TEXT"]


def test_tolerance_follows_the_dtype():
    by_dtype = [texts.gap_tolerance(made.text(dtype=dtype)) for dtype in ("float32", "float16", "bfloat16")]
    assert by_dtype == [0.02, pytest.approx(0.156, abs=0.001), pytest.approx(1.25, abs=0.01)]
