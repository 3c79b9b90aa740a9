"""Notebook 09: judges of attention on records whose right reading is known, each way round; inputs, values, section."""

import json
import math
from pathlib import Path

import cases
import numpy as np
import pytest
import torch
from attention_made import HEAD, JITTER, case, charged, study
from cases import answer
from spoken import codes, only, said

from rocmlab import (
    attention,
    attention_frames,
    attention_inputs,
    attention_judges,
    attention_known,
    attention_seen,
    attention_tables,
    isolate,
    results,
    timing,
    words,
)  # fmt: skip
from rocmlab.attention_inputs import Case
from rocmlab.sections import attention as section_of

# ---- which paths are there


@pytest.mark.parametrize(
    ("arch", "says"),
    [
        ("gfx1032", "no variable and no rebuild"),
        ("gfx1101", "set TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL=1"),
        ("sm_70", "messages of the refused paths"),
        (None, "On gfx10 cards"),
    ],
)
def test_math_alone_is_said_with_what_the_target_allows(arch, says):
    rows = study(flash_ms=None, default="math")
    found = only(attention_judges.judge(rows, arch=arch), "SDPA_MATH_ONLY")
    assert says in said(found) and "flash, memory-efficient attention is refused" in said(found)


def test_with_the_switch_on_the_advice_is_not_to_set_it():
    rows = [row | {"switch": "1"} for row in study(flash_ms=None, default="math")]
    assert "although the experimental switch is on" in said(
        only(attention_judges.judge(rows, arch="gfx1101"), "SDPA_MATH_ONLY")
    )


def test_one_fused_path_is_enough_and_no_path_at_all_is_broken():
    assert "SDPA_MATH_ONLY" not in codes(attention_judges.judge(study()))
    none = [case(backend, 64, None) for backend in ("default", "math", "flash")]
    assert attention_judges.judge(none)[0]["code"] == "ATTENTION_NONE"
    assert attention_judges.judge([]) == []


def test_wrong_values_are_broken_whoever_gives_them():
    rows = study()
    assert only(attention_judges.judge(rows), "ATTENTION_RIGHT")["numbers"]["worst_of_tolerance_pct"] == pytest.approx(
        10
    )
    rows[2]["over_tolerance"] = 40.0
    found = only(attention_judges.judge(rows), "ATTENTION_WRONG")
    assert found["numbers"]["wrong_cases"] == 1 and "flash (decode, 64)" in said(found)
    rows[2] |= {"over_tolerance": None, "not_finite": 3}
    assert "ATTENTION_WRONG" in codes(attention_judges.judge(rows))


# ---- which path the default takes


def test_the_default_is_told_by_kernels_then_operators_then_choice_then_time():
    rows = study(default="math")
    row = rows[0]
    tell = lambda: attention_tables.path(row, rows, attention_tables.own(rows))  # noqa: E731
    assert (tell()["path"], tell()["by"], tell()["grade"]) == ("math", "operators", "C")
    rows.append(row | {"what": "kernels", "kernels": ["void pytorch_flash::flash_fwd_kernel<...>"]})
    assert (tell()["path"], tell()["by"], tell()["grade"], tell()["agree"]) == ("flash", "kernels", "A", False)
    rows[-1]["kernels"] = ["cudnn_generated_fort_native_sdpa_sm90_flash_fprop_f16"]
    assert tell()["path"] == "cudnn"
    rows.pop()
    row |= {"path": [], "choice": "FLASH_ATTENTION"}
    assert (tell()["path"], tell()["by"]) == ("flash", "choice")
    row |= {"choice": None}
    assert (tell()["path"], tell()["by"], tell()["grade"]) == ("math", "time", "D")
    row["samples_ms"] = [0.5] * 6  # as far from math as from flash
    assert tell()["path"] is None
    assert "cannot be told" in said(only(attention_judges.judge_default([row]), "ATTENTION_DEFAULT"))


def test_a_default_that_changes_with_the_length_is_told_by_its_spans():
    rows = study(lengths=(64, 128), default="flash") + study(lengths=(256,), default="math")
    assert "decode: flash (64-128), math (256)" in said(only(attention_judges.judge(rows), "ATTENTION_DEFAULT"))


@pytest.mark.parametrize(
    ("default_ms", "samples", "code", "variant"),
    [
        (0.4, None, "ATTENTION_DEFAULT_SLOW", None),
        (0.2, None, "ATTENTION_DEFAULT_FAST", None),
        (0.2, [0.1, 0.5, 0.2, 0.45, 0.15, 0.3], "ATTENTION_DEFAULT_FAST", "undecided"),
    ],
)
def test_a_default_slower_than_a_forced_path_is_named(default_ms, samples, code, variant):
    rows = study(default_ms=default_ms)
    for row in rows:
        if samples and row["backend"] == "default":
            row["samples_ms"] = samples
    found = only(attention_judges.judge_default(rows), code)
    assert found["variant"] == variant


# ---- what the missing path costs


def test_the_gap_is_of_all_layers_and_the_share_of_a_step_with_math_in_it():
    lines = attention_tables.costs(study(), "decode", {64: 20.0, 1000: 30.0})
    assert lines[0]["gap_ms"] == pytest.approx(28 * 0.8)
    assert lines[0]["share_pct"] == pytest.approx(100 * 22.4 / 42.4)
    assert lines[1]["whole_ms"] == 30.0  # 1000 is near 1024
    assert lines[0]["gap_ms_low"] < lines[0]["gap_ms"] < lines[0]["gap_ms_high"]
    far = attention_tables.costs(study(), "decode", {4096: 30.0})
    assert far[0]["share_pct"] is None and far[0]["share_pct_reason"]["en"]


def test_a_prefill_is_of_its_own_length_or_lies_between_its_neighbours():
    rows = study(lengths=(64, 256, 384, 512, 1024))
    lines = attention_tables.costs(rows, "prefill", {128: 200.0, 384: 572.0, 640: 1000.0})
    assert [one["whole_ms"] for one in lines] == [None, 386.0, 572.0, 786.0, None]  # never one of another length
    assert [one["share_pct"] is None for one in lines] == [True, False, False, False, True]
    assert lines[0]["share_pct_reason"] == lines[-1]["whole_ms_reason"] and lines[0]["share_pct_reason"]["zh"]
    assert {one["whole_ms"] for one in attention_tables.costs(rows, "prefill", {})} == {None}


def test_a_call_that_the_host_queues_slower_than_the_device_works_costs_what_the_host_takes():
    rows = [case("default", 64, 0.01, path="flash", host=0.03), case("math", 64, 0.01, host=0.1)]
    rows.append(case("flash", 64, 0.01, path="flash", host=0.03))
    assert attention_tables.costs(rows, "decode")[0]["gap_ms"] == pytest.approx(28 * 0.07, rel=0.01)


# ---- the switch, the mask, K and V


def switched(after_flash, value="1"):
    asked = {"what": "switch", "status": "TRIED", "value": value}
    before = None if value == "1" else 0.2
    rows = [row | {"switch": None} for row in study(flash_ms=before, default="math" if before is None else "flash")]
    other = study(flash_ms=after_flash, default="math" if after_flash is None else "flash")
    return [asked, *rows, *(row | {"switch": value} for row in other)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (switched(None), [("SWITCH_NO_EFFECT", None)]),
        (switched(0.2), [("SWITCH_OPENS_PATHS", None)]),
        (switched(None, "0"), [("SWITCH_OPENS_PATHS", "already_on")]),
        (switched(0.2, "0"), [("SWITCH_NO_EFFECT", None)]),
        ([{"what": "switch", "status": "NOT_APPLICABLE"}, *study()], []),
    ],
)
def test_the_experimental_switch_opens_paths_or_changes_nothing(rows, expected):
    found = attention_judges.judge_switch(rows)
    assert [(one["code"], one["variant"]) for one in found] == expected


def test_wrong_values_behind_the_switch_are_found_too():
    rows = switched(0.2)
    rows[-2]["over_tolerance"] = 9.0
    assert "ATTENTION_WRONG" in codes(attention_judges.judge(rows))


@pytest.mark.parametrize(
    ("ms", "path", "code", "variant"),
    [
        (0.6, "math", "ATTENTION_SETTING_COSTS", "mask"),
        (0.6, "flash", "ATTENTION_SETTING_COSTS", "mask_same_path"),
        (0.2, "flash", "ATTENTION_SETTING_SAME", "mask"),
    ],
)
def test_a_mask_closes_a_path_or_costs_time_or_nothing(ms, path, code, variant):
    masked = case("default", 64, ms, path=path, gqa=False, mask="explicit", usual=False)
    found = only(attention_judges.judge_settings([*study(), masked]), code)
    assert found["variant"] == variant


def test_the_switch_is_tried_on_rocm_only_and_turned_round(monkeypatch):
    monkeypatch.delenv(attention.SWITCH, raising=False)
    gpu = {"device": "cuda:0", "dtype": "float16"}
    assert attention.switch({"torch_version_hip": "7.2"}, gpu)[0] == "1"
    assert attention.switch({"torch_version_hip": None}, gpu)[0] is None
    assert attention.switch({"torch_version_hip": "7.2"}, {"device": "cpu", "dtype": "float32"})[0] is None
    monkeypatch.setenv(attention.SWITCH, "1")
    assert attention.switch({"torch_version_hip": "7.2"}, gpu)[0] == "0"


@pytest.mark.parametrize(
    ("device", "arch", "flash", "cudnn"),
    [
        ("cpu", "the CPU", True, False),
        ("cuda:0", "gfx1032", False, False),
        ("cuda:0", "gfx1100", True, False),
        ("cuda:0", "sm_90", True, True),
        ("cuda:0", "sm_70", False, False),
        ("cuda:0", None, None, False),
    ],
)
def test_what_can_exist_at_all(device, arch, flash, cudnn):
    known = attention_known.possible(device, arch)
    assert (known["flash"][0], known["cudnn"][0], known["math"][0]) == (flash, cudnn, True)
    assert all(why[lang] for _, why in known.values() for lang in words.LANGUAGES)


# ---- inputs and values, for real


SHAPE = {"device": "cpu", "dtype": "float32", "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 16}


def by_hand(queries, keys, values, causal):
    """Attention in numpy, one head and one query at a time."""
    out = np.zeros(queries.shape)
    for head in range(queries.shape[1]):
        k, v = keys[0, head // 2], values[0, head // 2]
        for row in range(queries.shape[2]):
            last = row + 1 if causal else k.shape[0]
            scores = np.array([queries[0, head, row] @ k[i] for i in range(last)]) / math.sqrt(k.shape[1])
            weights = np.exp(scores - scores.max())
            out[0, head, row] = (weights[:, None] * v[:last]).sum(0) / weights.sum()
    return out


@pytest.mark.parametrize("gqa", [True, False])
@pytest.mark.parametrize("mask", ["none", "explicit"])
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_every_way_to_call_attention_gives_the_value_by_hand(phase, mask, gqa):
    one = Case(phase, 24, gqa, mask)
    inputs = attention_inputs.make(one, SHAPE)
    got = inputs.calls(24, 1)
    queries, caches, _ = inputs.at(24)
    wanted = by_hand(queries.numpy(), caches[0][0].numpy(), caches[0][1].numpy(), phase == "prefill")
    np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-4, atol=1e-5)
    found = attention_inputs.value(one, inputs, SHAPE)
    assert found["over_tolerance"] < 1 and found["not_finite"] == 0


def test_an_attention_that_forgets_the_causal_mask_or_gives_nan_is_outside_the_tolerance():
    one = Case("prefill", 24, True)
    inputs = attention_inputs.make(one, SHAPE)
    real = inputs.attend
    inputs.attend = lambda q, k, v, **options: real(q, k, v, **(options | {"is_causal": False}))
    assert attention_inputs.value(one, inputs, SHAPE)["over_tolerance"] > 1
    inputs.attend = lambda q, k, v, **options: real(q, k, v, **options).masked_fill(torch.ones(()).bool(), math.nan)
    assert attention_inputs.value(one, inputs, SHAPE)["not_finite"] > 0


def test_new_lengths_are_views_of_their_own_and_each_layer_has_its_own_cache():
    inputs = attention_inputs.make(Case("decode", 24, True), SHAPE)
    queries, caches, _ = inputs.at(20)
    assert inputs.sets == 3 and queries.shape == (1, 4, 1, 16) and caches[0][0].shape == (1, 2, 20, 16)
    assert caches[0][0].is_contiguous() and len({keys.data_ptr() for keys, _ in caches}) == 3


def test_operators_of_a_call_are_counted_without_views():
    inputs = attention_inputs.make(Case("decode", 24, True), SHAPE)
    with torch.inference_mode():
        fused = attention_seen.operators(inputs.case, inputs)
        with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH]):
            unfused = attention_seen.operators(inputs.case, inputs)
    assert fused["ops"] == 1 and fused["path"] == ["_scaled_dot_product_flash_attention_for_cpu"]
    assert unfused["path"].count("bmm") == 2 and unfused["ops"] > 4 and unfused["views"] > 0
    assert attention_seen.choice(inputs.case, inputs) == "FLASH_ATTENTION"


def test_the_shape_of_a_model_needs_no_weights():
    assert attention_inputs.shape_of("random:qwen3-0.6b") == {"layers": 28, "heads": 16, "kv_heads": 8, "head_dim": 128}
    assert attention_inputs.shape_of("random:tiny") == {"layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16}


def test_a_study_on_the_cpu_measures_every_path_and_says_why_others_are_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # two threads on a busy machine wait for each other
    run = results.start("09", str(tmp_path))
    arm = {"arm": "cpu", "device": "cpu", "dtype": "float32"}
    ended = attention.study(
        run, "random:tiny", arm, lengths=[32, 64], switch=(None, "no ROCm"), limit_s=100, samples=6, visits=2
    )
    assert [one["status"] for one in ended] == ["OK"]
    rows = results.rows(tmp_path, "attention")
    ran = attention_tables.works(attention_tables.usual(attention_tables.own(rows), "decode"))
    assert set(ran) == {"default", "math", "flash"} and all(len(row["samples_ms"]) == 6 for row in ran.values())
    assert {row["backend"] for row in rows if row.get("status") == "REFUSED"} >= {"efficient", "cudnn"}
    assert {(r["gqa"], r["mask"]) for r in attention_tables.own(rows)} == {
        (True, "none"),
        (False, "none"),
        (False, "explicit"),
    }
    assert {"ATTENTION_RIGHT", "ATTENTION_DEFAULT"} <= set(codes(attention_judges.judge(rows, ended=ended)))
    assert "ATTENTION_WRONG" not in codes(attention_judges.judge(rows))


def test_a_back_end_that_ends_the_process_is_a_row_and_the_others_go_on(tmp_path, monkeypatch):
    run, asked = results.start("09", str(tmp_path)), []

    def child(target, given, **_):
        asked.append(list(given["excluded"]))
        status = "OK" if given["excluded"] else "CRASH"
        run.append("attention", HEAD | {"what": "trying", "backend": "flash", "phase": "decode", "length": 64})
        if given["excluded"]:
            run.append("attention", case("math", 64, 1.0))
        return isolate.Outcome(status, "ended by SIGSEGV", -11, 1.0, None, None, "", "")

    monkeypatch.setattr(isolate, "call", child)
    ended = attention.study(
        run, "m", {"device": "cuda:0"}, lengths=[64], switch=(None, ""), limit_s=9, samples=6, visits=2
    )
    assert [one["status"] for one in ended] == ["CRASH", "OK"] and asked == [[], [["flash", "decode"]]]
    lost = next(row for row in run.rows("attention") if row.get("status") == "CRASH")
    assert (lost["what"], lost["backend"], lost["error"]) == ("case", "flash", "ended by SIGSEGV")


def test_a_capture_that_ends_the_process_is_no_fault_of_the_path(tmp_path, monkeypatch):
    run, asked = results.start("09", str(tmp_path)), []

    def child(target, given, **_):
        asked.append((list(given["excluded"]), given["graphs"]))
        run.append("attention", {"what": "capturing" if given["graphs"] else "shape", "backend": "default"})
        return isolate.Outcome("CRASH" if given["graphs"] else "OK", "", 0, 1.0, None, None, "", "")

    monkeypatch.setattr(isolate, "call", child)
    attention.study(run, "m", {"device": "cuda:0"}, lengths=[64], switch=(None, ""), limit_s=9, samples=6, visits=2)
    assert asked == [([], True), ([], False)]
    assert not [row for row in run.rows("attention") if row.get("what") == "case"]


def test_events_that_only_see_the_host_are_no_device_time():
    rows = [row | {"method": "events"} for row in study()]
    for row in rows:
        if row["status"] == "OK" and row["backend"] == "math":
            row["host_samples_ms"] = row["samples_ms"]
    table = attention_frames.times_table(rows).set_index(["phase", "backend"])
    assert table.loc[("decode", "math")]["attention_device_ms"].isna().all()
    assert table.loc[("decode", "flash")]["attention_device_ms"].notna().all()


# ---- section and contract


def run_of(tmp_path: Path) -> Path:
    run = results.start("09", str(tmp_path))
    run.append("attention", charged(("cudnn", "default")))
    run.append("attention_ended", {"what": "attention", "status": "OK", "words": ""})
    same = {key: HEAD[key] for key in ("device", "dtype", "model_spec")}
    step = same | {"quantity": "T", "samples_ms": [20.0] * 6, "context": 64}
    run.append(
        "step", [step, step | {"context": 1024, "samples_ms": [25.0]}, step | {"dtype": "float32", "context": 256}]
    )
    return tmp_path


def test_the_section_shows_every_table_and_figure_with_shares(tmp_path):
    made = section_of.section(run_of(tmp_path))
    names = {"attention_cost", "attention_visits", "attention_paths", "attention_times", "attention_possible"}
    assert {table.name for table in made.tables} == names
    assert {figure.name for figure in made.figures} == {"attention_decode", "attention_prefill"}
    assert all(figure.draw() is not None and all(figure.alt.values()) for figure in made.figures)
    assert {"FUSED_SAVES", "FIRST_VISIT_CHARGED"} <= set(codes(made.findings))
    costs = next(table.frame for table in made.tables if table.name == "attention_cost")
    decode = costs[costs["phase"] == "decode"].set_index("length_tokens")
    assert decode.loc[64, "whole_ms"] == 20.0 and decode.loc[1024, "whole_ms"] == 25.0


def test_a_section_without_records_says_so_and_one_of_a_failed_process_too(tmp_path):
    assert section_of.section(tmp_path).missing
    run = results.start("09", str(tmp_path))
    run.append("attention_ended", {"what": "attention", "status": "ERROR", "words": "boom"})
    assert codes(section_of.section(tmp_path).findings) == ["PROCESS_ENDED"]


def test_the_summary_for_other_notebooks_is_plain_json():
    found = attention_tables.summary(charged(("cudnn", "default")), step_ms={64: 20.0})
    json.dumps(found, allow_nan=False)
    assert found["layers"] == 28 and found["decode"][0]["default"] == "flash"
    assert found["decode"][0]["gap_ms"] == pytest.approx(22.4)
    charge = {line["backend"]: line["charge_ms"] for line in found["first_visit"]}
    assert charge["cudnn"] == pytest.approx(40.0) and abs(charge["math"]) < 0.1
    assert attention_tables.summary([]) == {}


def test_a_call_costs_the_longer_of_host_and_device_sample_by_sample():
    row = {"samples_ms": [1.0, 3.0], "host_samples_ms": [2.0, 2.0]}
    assert attention_tables.call_samples(row) == [2.0, 3.0]
    assert attention_tables.call_samples({"samples_ms": [1.0]}) == [1.0]
    assert len(JITTER) == timing.MIN_REPEATS


# ---- records from elsewhere


PROBE = {
    "schema": "rocmlab-sdpa-probe-1", "arch": "gfx1031", "dtype": "float16", "env": {}, "shape": {"q_len": 256},
    "forced": {
        "FLASH_ATTENTION": {"ok": False, "error": "RuntimeError: No available kernel."},
        "EFFICIENT_ATTENTION": {"ok": False, "error": "RuntimeError: No available kernel."},
        "MATH": {"ok": True, "median_ms": 2.0},
    },
    "default": {"ok": True, "median_ms": 2.1},
}  # fmt: skip


def forced(**paths):
    given = {name: {"ok": ms is not None, "median_ms": ms} for name, ms in paths.items()}
    return {"FLASH_ATTENTION": given["flash"], "EFFICIENT_ATTENTION": given["efficient"], "MATH": given["math"]}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, ["SDPA_MATH_ONLY"]),
        ({"env": {attention.SWITCH: "1"}}, ["SDPA_MATH_ONLY", "SWITCH_NO_EFFECT"]),
        ({"env": {attention.SWITCH: "0"}}, ["SDPA_MATH_ONLY"]),
        (
            {"forced": forced(flash=0.5, efficient=None, math=2.0), "default": {"ok": True, "median_ms": 0.5}},
            ["ATTENTION_PATHS"],
        ),
        ({"forced": forced(flash=0.5, efficient=0.7, math=2.0)}, ["ATTENTION_DEFAULT_SLOW"]),
        ({"default": {"ok": False, "error": "boom"}}, ["ATTENTION_DEFAULT_FAILS", "SDPA_MATH_ONLY"]),
        ({"forced": forced(flash=None, efficient=None, math=None), "default": {"ok": False}}, ["ATTENTION_NONE"]),
    ],
)
def test_a_probe_from_elsewhere(tmp_path, changes, found):
    got = answer(tmp_path, PROBE | changes)
    assert (got["kind"], [one["code"] for one in got["findings"]]) == ("sdpa_probe", found)


def test_the_numbers_of_a_probe(tmp_path):
    numbers = answer(tmp_path, PROBE)["numbers"]
    assert numbers["default_over_math_pct"] == pytest.approx(5.0) and numbers["backends_ok"] == 1
    assert numbers["flash_ms"] is None and "No available kernel" in numbers["flash_ms_reason"]
    bare = answer(tmp_path, {"schema": "rocmlab-sdpa-probe-1"})
    assert bare["numbers"]["default_over_math_pct"] is None and bare["numbers"]["default_over_math_pct_reason"]


def test_the_case_of_forced_back_ends(shared):
    entries = {name: one for name, one in cases.expected(shared, "D").items() if one["kind"] == "sdpa_probe"}
    assert entries
    wrong = {name: cases.differences(shared / "cases" / name, entry) for name, entry in entries.items()}
    assert not {name: found for name, found in wrong.items() if found}
