# ruff: noqa: E501 (records are as long as they are)
"""`rocmlab read` on measurement records: the cases, and others of the same kinds with other numbers."""

import json
import math
import random

import cases
import pytest
from cases import answer

from rocmlab import findings, readers, texts

GENERATION = {
    "schema": "rocmlab-generation-1",
    "prompt_tokens": 100,
    "max_new_tokens": 41,
    "new_tokens": 41,
    "t_start_s": 2.0,
    "t_first_token_s": 2.25,
    "t_end_s": 4.25,
}


def test_a_generation(tmp_path):
    found = answer(tmp_path, GENERATION)
    assert (found["kind"], found["verdict"]) == ("generation", "OK")
    assert found["numbers"]["decode_tok_s"] == 20.0
    assert found["numbers"]["tpot_ms"] == 50.0
    assert found["numbers"]["prompt_per_ttft_tok_s"] == 400.0
    assert found["numbers"]["e2e_tok_s"] == pytest.approx(41 / 2.25)


def test_an_early_end_counts_what_was_written(tmp_path):
    found = answer(tmp_path, GENERATION | {"max_new_tokens": 500})
    assert (found["verdict"], found["status"]) == ("STOPPED_EARLY", "warn")
    assert found["numbers"]["decode_tok_s"] == 20.0


def test_missing_times_are_null_with_reasons(tmp_path):
    found = answer(tmp_path, {"schema": "rocmlab-generation-1", "new_tokens": "many"})
    assert found["numbers"]["decode_tok_s"] is None
    assert found["numbers"]["decode_tok_s_reason"]
    assert "unknown" in found["sentence"]


@pytest.mark.parametrize(
    ("times", "codes"),
    [
        ({"with_sync": [2.0], "no_sync": [0.001]}, ["IMPOSSIBLE_RATE"]),
        ({"with_sync": [2.0], "no_sync": [1.99]}, []),
        ({"with_sync": [0.01]}, ["IMPOSSIBLE_RATE"]),
        ({"with_sync": [2.0, "x", None, -1]}, []),
        ({}, []),
    ],
)
def test_rates_above_the_peak_are_impossible(tmp_path, times, codes):
    record = {"schema": "rocmlab-timings-2", "op": "mm", "flop": 10_000_000_000, "peak_tflops": 20.0} | times
    assert [f["code"] for f in answer(tmp_path, record)["findings"]] == codes


def test_without_a_peak_nothing_is_called_impossible(tmp_path):
    record = {"schema": "rocmlab-timings-2", "op": "mm", "flop": 10**10, "no_sync": [0.001], "with_sync": [2.0]}
    found = answer(tmp_path, record)
    assert found["findings"] == []
    assert found["numbers"]["tflops"] == pytest.approx(5.0)


def test_a_ratio_of_equal_dtypes_is_fine_and_of_unknown_ones_is_not(tmp_path):
    sides = {"cpu": {"dtype": "float16", "decode_tok_s": 10.0}, "gpu": {"dtype": "float16", "decode_tok_s": 25.0}}
    found = answer(tmp_path, {"schema": "rocmlab-speedup-1", **sides})
    assert (found["verdict"], found["numbers"]["ratio"]) == ("OK", 2.5)
    del sides["cpu"]["dtype"]
    assert answer(tmp_path, {"schema": "rocmlab-speedup-1", **sides})["verdict"] == "NOT_LIKE_FOR_LIKE"


def test_a_ratio_over_nothing_is_null(tmp_path):
    found = answer(tmp_path, {"schema": "rocmlab-speedup-1", "cpu": {"decode_tok_s": 0}, "gpu": {"decode_tok_s": 3}})
    assert found["numbers"]["ratio"] is None
    assert found["numbers"]["ratio_reason"]


def test_nan_anywhere_is_named_and_never_a_number(tmp_path):
    text = '{"schema": "rocmlab-result-1", "case": "x", "ms": 1.5, "rate": NaN, "deep": {"a": [1, -Infinity]}}'
    found = answer(tmp_path, text)
    assert (found["kind"], found["verdict"], found["numbers"]["not_a_number"]) == ("result", "NOT_A_NUMBER", 2)
    assert found["numbers"]["rate"] is None
    assert found["numbers"]["ms"] == 1.5
    assert "deep.a[1]" in found["sentence"]


PATHS = {
    "schema": "rocmlab-greedy-check-1",
    "cpu_float32": {"token_ids": [1, 2, 3, 4]},
    "gpu_flash": {"token_ids": [1, 2, 3, 4], "logits_finite": True, "tok_s": 50.0},
    "gpu_math": {"token_ids": [1, 2, 3, 4], "logits_finite": True, "tok_s": 40.0},
}


def test_right_paths_keep_their_speed(tmp_path):
    found = answer(tmp_path, PATHS)
    assert (found["verdict"], found["numbers"]) == ("OK", {"flash_tok_s": 50.0, "math_tok_s": 40.0})
    assert "flash, math" in found["sentence"]


@pytest.mark.parametrize(
    ("tokens", "code"), [([], "TEXT_NOT_COMPARED"), ([1, 2], "WRONG_TEXT"), (None, "TEXT_NOT_COMPARED")]
)
def test_a_path_with_fewer_tokens_has_no_speed(tmp_path, tokens, code):
    short = PATHS | {"gpu_flash": {"token_ids": tokens, "logits_finite": True, "tok_s": 50.0}}
    found = answer(tmp_path, short)
    assert (found["verdict"], found["numbers"]["flash_tok_s"]) == (code, None)


def test_without_a_reference_nothing_is_called_right(tmp_path):
    assert answer(tmp_path, {k: v for k, v in PATHS.items() if k != "cpu_float32"})["verdict"] == "TEXT_NOT_COMPARED"


def test_a_record_with_gaps_is_judged_as_the_page_does(tmp_path):
    import made

    rounding = made.text(gaps=[0.0, 0.0, 0.01, 0.0], subject={"token_ids": [5, 6, 9, 8]})
    assert answer(tmp_path, rounding)["findings"][0]["code"] == "TEXT_RIGHT"
    wrong = made.text(gaps=[0.0, 0.0, 9.0, 0.0], subject={"token_ids": [5, 6, 9, 8]})
    assert answer(tmp_path, wrong)["verdict"] == "WRONG_TEXT"


def test_tables_of_records_are_judged(tmp_path):
    import made

    def table(rows):
        stamp = {"run": "r", "notebook": "03", "attempt": "1"}
        return answer(tmp_path, "\n".join(json.dumps(stamp | row) for row in rows), "rows.jsonl")

    assert [f["code"] for f in table(made.study())["findings"]][:1] == ["NOT_LIKE_FOR_LIKE"]
    assert "SPEEDUP" in [f["code"] for f in table(made.study())["findings"]]
    assert table([made.text(logits_finite=False, first_nonfinite_step=1)])["verdict"] == "WRONG_TEXT"
    died = [{"what": "generation 0", "status": "TIMEOUT", "words": "still running after 5 s, ended"}]
    assert table(died)["verdict"] == "PROCESS_ENDED"
    odd = made.generation(token_stamps_s=[1, "x"], t_end_s="x", prompt_tokens="many")
    assert table([odd, odd])["verdict"] == "RECORDS_ODD"


def test_a_wrong_path_loses_its_speed_and_the_right_one_is_named(tmp_path):
    wrong = PATHS | {"gpu_flash": {"token_ids": [1, 9, 9, 9], "logits_finite": True, "tok_s": 50.0}}
    found = answer(tmp_path, wrong)
    assert (found["verdict"], found["numbers"]["first_wrong_step"]) == ("WRONG_TEXT", 1)
    assert found["numbers"]["flash_tok_s"] is None
    assert found["numbers"]["math_tok_s"] == 40.0
    assert "Use math" in found["advice"]


def test_all_paths_wrong_recommends_none(tmp_path):
    broken = {"token_ids": [1, 2, 3, 4], "logits_finite": False, "first_nonfinite_step": 3}
    found = answer(tmp_path, PATHS | {"gpu_flash": broken, "gpu_math": broken})
    assert found["numbers"]["first_wrong_step"] == 3
    assert "Use" not in found["advice"]


def test_an_unknown_schema_lists_the_known_ones(tmp_path):
    found = answer(tmp_path, {"schema": "rocmlab-generation-99"})
    assert (found["kind"], found["verdict"]) == ("unknown", "UNKNOWN_SCHEMA")
    assert "rocmlab-generation-1" in found["advice"]


@pytest.mark.parametrize("text", ["", "\x00\x01", "[1, 2", "plain prose", "{" * 5000, "\ufeff{}", "[]", "null", '"x"'])
def test_foreign_or_damaged_content_is_unknown_and_never_an_exception(tmp_path, text):
    assert answer(tmp_path, text, "x.txt")["kind"] == "unknown"


def test_every_case_of_single_records(shared):
    names = ("tim-01", "tim-02", "tim-03", "tim-09", "nb-06", "att-03")
    entries = {k: v for k, v in cases.expected(shared, "AB").items() if k.startswith(names)}
    assert len(entries) == len(names)
    wrong = {name: cases.differences(shared / "cases" / name, entry) for name, entry in entries.items()}
    assert not {name: found for name, found in wrong.items() if found}


# ---- values of odd types: never an exception, never Infinity, never a claim


ODD = (
    *(None, 5, -1, 0, True, "x", [], {}, [None], {"a": None}, {"en": 1}, [1, "x", None, {}]),
    *(1e308, -1e308, 5e-324, 10**400, math.inf, math.nan),
)
SWEEP_ITEMS = [{"batch": b, "decode_step_ms": 10.0 + b} for b in (1, 2, 8)]
SWEEP_ITEMS.append({"batch": 64, "error": "out of memory", "memory": {"asked_gib": 1.0, "free_gib": 0.5}})
RECORDS = (
    GENERATION | {"batch": 2, "row_tokens": [41, 30]},
    {"schema": "rocmlab-timings-1", "op": "mm", "unit": "ms", "calls": [5.0] * 20 + [9.0] * 10,
     "sensor": [{"call": 0, "temp_c": 40, "sclk_mhz": 2500}, {"call": 29, "temp_c": 99, "sclk_mhz": 2000}]},
    {"schema": "rocmlab-timings-2", "op": "mm", "flop": 10**10, "peak_tflops": 20.0, "with_sync": [2.0], "no_sync": [0.01]},
    {"schema": "rocmlab-speedup-1", "cpu": {"dtype": "float16", "decode_tok_s": 10.0}, "gpu": {"dtype": "float16", "decode_tok_s": 25.0}},
    {"schema": "rocmlab-sdpa-probe-1", "arch": "gfx1031", "env": {"TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL": "1"}, "shape": {"q_len": 8},
     "forced": {"FLASH_ATTENTION": {"ok": False, "error": "no"}, "MATH": {"ok": True, "median_ms": 2.0}}, "default": {"ok": True, "median_ms": 2.1}},
    {"schema": "rocmlab-result-1", "ms": 1.5, "rate": None, "rate_reason": "no clock"},
    PATHS,
    {"schema": "rocmlab-batch-sweep-1", "model": "m", "dtype": "float16", "weight_bytes": 10**9, "peak_gb_s": 200.0, "prompt_tokens": 64,
     "new_tokens_each": 16, "kv_bytes_a_position": 1000, "kernel_launches_per_step": 300, "items": SWEEP_ITEMS},
)  # fmt: skip


def damaged(value, rng):
    """Return a record with one value at a random depth replaced."""
    if isinstance(value, (dict, list)) and value and rng.random() < 0.8:
        place = rng.choice([key for key in value if key != "schema"] if isinstance(value, dict) else range(len(value)))
        copy = dict(value) if isinstance(value, dict) else list(value)
        copy[place] = damaged(value[place], rng)
        return copy
    return rng.choice(ODD)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record["schema"])
def test_odd_values_never_raise_and_the_answer_is_valid_json(tmp_path, record):
    rng = random.Random(record["schema"])
    for lang in ("en", "zh") * 40:
        odd = {"schema": record["schema"]}
        for _ in range(rng.choice((1, 1, 2, 4))):
            changed = damaged(record | odd, rng)
            odd = changed | {"schema": record["schema"]} if isinstance(changed, dict) else odd
        path = tmp_path / "odd.json"
        path.write_text(json.dumps(odd), encoding="utf-8")
        found = readers.answer(path, lang)
        json.dumps(found, allow_nan=False)
        numbers = found["numbers"]
        unexplained = [key for key, value in numbers.items() if value is None and not numbers.get(f"{key}_reason")]
        assert not unexplained, odd


def test_a_rate_that_is_no_number_gives_no_ratio_and_says_why(tmp_path):
    sides = {"cpu": {"dtype": "float16", "decode_tok_s": 10.0}, "gpu": {"dtype": "float16", "decode_tok_s": []}}
    numbers = answer(tmp_path, {"schema": "rocmlab-speedup-1", **sides})["numbers"]
    assert (numbers["ratio"], numbers["cpu_tok_s"], numbers["gpu_tok_s"]) == (None, 10.0, None)
    assert numbers["gpu_tok_s_reason"] and numbers["ratio_reason"]
    assert (
        answer(tmp_path, {"schema": "rocmlab-speedup-1", "cpu": sides["cpu"], "gpu": "x"})["numbers"]["ratio"] is None
    )


def test_a_product_beyond_every_float_is_null_in_the_answer_and_in_its_finding(tmp_path):
    record = {"schema": "rocmlab-timings-2", "flop": 1e308, "peak_tflops": 20.0, "with_sync": [1e-9]}
    found = answer(tmp_path, record)
    assert found["numbers"]["peak_pct"] is None and found["numbers"]["peak_pct_reason"]
    (one,) = found["findings"]
    assert one["numbers"]["over_peak"] is None or math.isfinite(one["numbers"]["over_peak"])
    assert "inf" not in one["sentence"].split()


def test_a_whole_number_beyond_every_float_is_named(tmp_path):
    found = answer(tmp_path, {"schema": "rocmlab-generation-1", "new_tokens": 10**400, "t_start_s": 0, "t_end_s": 1})
    assert (found["verdict"], found["numbers"]["new_tokens"]) == ("NOT_A_NUMBER", None)


def test_without_the_cpu_s_tokens_no_path_is_called_right(tmp_path):
    found = answer(tmp_path, PATHS | {"cpu_float32": 7})
    assert (found["verdict"], found["status"]) == ("TEXT_NOT_COMPARED", "unknown")
    assert found["numbers"]["flash_tok_s"] is None and found["numbers"]["flash_tok_s_reason"]
    broken = PATHS["gpu_flash"] | {"logits_finite": False, "first_nonfinite_step": 2}
    found = answer(tmp_path, PATHS | {"cpu_float32": 7, "gpu_flash": broken})
    assert [f["code"] for f in found["findings"]] == ["WRONG_TEXT", "TEXT_NOT_COMPARED"]
    assert "agrees with the CPU" not in found["sentence"] and "every path" not in found["sentence"]
    assert answer(tmp_path, {"schema": "rocmlab-greedy-check-1"})["verdict"] == "TEXT_NOT_COMPARED"


def test_a_text_of_odd_types_is_judged_without_an_exception():
    whole = {"prompt_id": "a", "dtype": "float16", "max_abs_logit": 20.0, "gaps_logits": [0.0, 0.01], "model": "m",
             "cpu_float32": {"token_ids": [1, 2]}, "subject": {"token_ids": [1, 2]}, "first_nonfinite_step": None}  # fmt: skip
    assert [f["code"] for f in texts.judge_text([whole])] == ["TEXT_RIGHT"]
    for key in set(whole) - {"prompt_id"}:
        for odd in ODD:
            findings.paragraph(texts.judge_text([whole | {key: odd}]))
    assert texts.wrong_step(whole | {"gaps_logits": [0.0, "x"]}) == 1
    assert texts.wrong_step(whole | {"gaps_logits": [0.0, 0.0, math.nan]}) == 2
    assert texts.wrong_step(whole | {"gaps_logits": [0.0, 1e9], "max_abs_logit": 10**400}) == 1


# ---- a first call that compiles, and a result that is wrong as a whole only


CALLS = [9000.0, 40.0, 10.1, 10.0, 9.9, 10.0, 10.2, 9.8, 10.0, 10.0]


def test_a_first_call_that_compiles_is_no_speed(tmp_path):
    record = {"schema": "rocmlab-timings-1", "unit": "ms", "op": "gru", "calls": CALLS, "new_shape_first_call": 8000.0}
    found = answer(tmp_path, record)
    assert (found["verdict"], found["status"]) == ("COMPILE_ON_FIRST_CALL", "warn")
    assert found["numbers"]["median_ms"] == 10.0 and found["numbers"]["steady_calls"] == 8
    assert found["numbers"]["first_call_ms"] == 9000.0 and found["numbers"]["new_shape_first_call_ms"] == 8000.0
    assert found["numbers"]["second_process_first_call_ms"] is None
    assert found["numbers"]["second_process_first_call_ms_reason"]
    assert "911" not in found["sentence"]  # the mean of all ten


@pytest.mark.parametrize("calls", [CALLS[2:], [900.0, *CALLS[2:]], [2000.0, *[1500.0] * 9], [9000.0, 10.0], []])
def test_a_usual_first_call_is_no_finding(tmp_path, calls):
    found = answer(tmp_path, {"schema": "rocmlab-timings-1", "unit": "ms", "op": "gru", "calls": calls})
    assert "COMPILE_ON_FIRST_CALL" not in [one["code"] for one in found["findings"]]


def pieces(whole, chunks, random=None):
    part = {"nan_count": 0, "inf_count": 0, "max_abs_err_vs_cpu": 1e-5}
    record = {"schema": "rocmlab-chunk-check-1", "op": "bmm", "dtype": "float32"}
    record |= {"shape": {"rows": 300000, "k": 256, "n": 64}, "whole": part | whole, "chunks_50k_rows": part | chunks}
    return record if random is None else record | {"random_input_same_shape": part | random}


@pytest.mark.parametrize(
    ("record", "verdict"),
    [
        (pieces({"nan_count": 7, "max_abs_err_vs_cpu": None}, {}, {}), "WRONG_RESULT_BY_SIZE"),
        (pieces({"inf_count": 7}, {}), "WRONG_RESULT_BY_SIZE"),
        (pieces({"max_abs_err_vs_cpu": 90.0}, {}, {}), "WRONG_RESULT_BY_SIZE"),
        (pieces({"nan_count": 7}, {"nan_count": 7}, {}), "WRONG_VALUE"),
        (pieces({}, {}, {}), "OK"),
        (pieces({"max_abs_err_vs_cpu": 3e-4}, {}, {}), "OK"),
    ],
)
def test_wrong_as_a_whole_and_right_in_pieces(tmp_path, record, verdict):
    found = answer(tmp_path, record)
    assert (found["kind"], found["verdict"]) == ("chunk_check", verdict)


def test_exit_codes_are_said_by_platform(tmp_path):
    items = [{"platform": "windows", "returncode": 139}, {"platform": "linux", "returncode": 139}, {"returncode": "x"}]
    found = answer(tmp_path, {"schema": "rocmlab-exit-codes-1", "items": items})
    assert (found["kind"], found["verdict"], found["numbers"]["items"]) == ("exit_codes", "CRASH", 2)
    assert [one["code"] for one in found["findings"]] == ["CRASH", "ERROR"]
    assert "segmentation fault" in found["sentence"] and "exit code 139" in found["sentence"]
