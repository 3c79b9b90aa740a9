"""The catalogue and its judges: where everything goes wrong, every row is kept and called by its name."""

import json
import math
import os
import time
from collections import Counter
from pathlib import Path

import cases
import pytest

from rocmlab import (
    evidence,
    findings,
    operator_judges,
    operator_study,
    operator_tables,
    operators,
    problems,
    results,
    runner,
    tolerance,
    words,
    worker,
)
from rocmlab.sections import operators as section_02

HERE = Path(__file__).parent
FAMILIES = {
    "creation", "elementwise", "reduction", "indexing", "sorting", "gemm", "convolution", "pooling", "normalisation",
    "language model", "attention", "loss", "autograd", "optimiser", "autocast", "recurrent", "linear algebra", "random",
    "sampling", "copies and streams", "compile",
}  # fmt: skip
TRIES = [("good_before", "PASS"), ("crashes", "CRASH"), ("hangs", "TIMEOUT")]
TRIES += [("kills_its_worker", "KILLED"), ("leaks", "PASS"), ("good_after_leak", "PASS")]
TRIES += [("lies", "WRONG_VALUE"), ("nan_at_one_size", "NAN"), ("wrong_gradient", "WRONG_VALUE")]
TRIES += [("warns", "PASS_WITH_WARNING"), ("raises", "ERROR"), ("out_of_memory", "OUT_OF_MEMORY")]
TRIES += [("not_in_this_build", "NOT_SUPPORTED"), ("library_at_fault", "WRONG_VALUE"), ("needs_a_card", "NOT_TRIED")]
TRIES += [("good_at_the_end", "PASS")]


def study(folder: Path, catalogue: str, env: dict[str, str] | None = None, **plan) -> results.Run:
    """Try a catalogue of tests/ on the CPU, in a run folder."""
    path = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    keeper = worker.Worker(
        env={"PYTHONPATH": path, "OMP_NUM_THREADS": "1", **(env or {})},
        first=("rocmlab.operator_trial:begin", {"device": "cpu"}),
    )
    run = results.start("02", str(folder))
    operator_study.study(run, "cpu", operator_study.Plan(catalogue=catalogue, **plan), keeper)
    return run


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    """The rows of the bad catalogue, by operator."""
    run = study(tmp_path_factory.mktemp("bad"), "bad_operators:CHECKS", limit_s=30)
    return run, {row["op"]: row for row in results.rows(run.path, "operators")}


# ---- the catalogue


def test_the_catalogue_covers_the_families_and_every_name_stands_once():
    checks = operators.load()
    assert len(checks) >= 80 and {check.family for check in checks.values()} == FAMILIES
    for dtype in operators.FLOATS:
        assert sum(dtype in check.dtypes for check in checks.values()) > 80
    for family in ("gemm", "convolution", "attention"):
        tried = {name for check in checks.values() if check.family == family for name in check.more}
        assert {"integers", "outliers", "large", "large_cpu"} <= tried, family
    assert {f"sdpa_{path}" for path in ("math", "flash", "efficient", "cudnn")} <= set(checks)


def test_a_name_that_stands_twice_is_refused():
    with pytest.raises(ValueError, match="twice"):
        operators.load("test_operators:TWICE")


TWICE = [operators.CHECKS[0], operators.CHECKS[0]]


def test_inputs_are_the_same_in_every_run():
    import torch

    from rocmlab.operators.check import integers, normal, outliers, padded, seeded

    one, two = (normal(4, 4)(torch, seeded(torch, "mm random")) for _ in range(2))
    assert torch.equal(one, two) and not torch.equal(one, normal(4, 4)(torch, seeded(torch, "mm large")))
    assert set(integers(64, 64)(torch, seeded(torch, "x")).unique().tolist()) == {-1.0, 0.0, 1.0}
    assert outliers(512, 64)(torch, seeded(torch, "x")).abs().max() > 40
    assert padded(8, 4)(torch, seeded(torch, "x"))[4:].abs().sum() == 0


# ---- tolerance


def test_the_tolerance_by_hand():
    # float32, 4 x (1 + sqrt(1024)) x 2^-23 = 132 x 2^-23
    assert tolerance.relative("float32", 1024, 1) == 132 * 2.0**-23
    assert tolerance.relative("bfloat16", 1, 2) == pytest.approx(4 * (2 * 2.0**-7 + 2.0**-23))


@pytest.mark.parametrize(
    ("dtype", "error", "outside"),
    [
        ("float32", 5e-7, 0),
        ("float32", 1e-5, 1),
        ("float16", 1e-3, 0),
        ("float16", 0.02, 1),
        ("bfloat16", 0.02, 0),
        ("bfloat16", 0.2, 1),
    ],
)
def test_an_element_too_far_off_is_counted(dtype, error, outside):
    import torch

    wanted = torch.ones(8, dtype=torch.float64)
    got = wanted.clone()
    got[3] += error
    found = tolerance.compare(got, wanted, dtype)
    assert (found["outside"], found["not_finite"]) == (outside, 0)
    assert found["max_abs_err"] == pytest.approx(error)
    assert found["over_tolerance"] == pytest.approx(error / (2 * tolerance.relative(dtype, 1, 1)), rel=1e-3)


def test_values_that_are_not_finite_must_stand_where_the_reference_has_them():
    import torch

    inf, nan = math.inf, math.nan
    wanted = torch.tensor([1.0, inf, -inf, nan], dtype=torch.float64)
    same = tolerance.compare(wanted.float(), wanted, "float32")
    assert (same["not_finite"], same["outside"]) == (0, 0)
    other = tolerance.compare(torch.tensor([nan, inf, inf, nan]), wanted, "float32")
    assert other["not_finite"] == 2  # NaN for 1, and the other infinity


def test_integers_must_be_equal_and_shapes_must_agree():
    import torch

    one = torch.tensor([1, 2, 3])
    assert tolerance.compare(one, one.double(), "float32")["outside"] == 0
    assert tolerance.compare(torch.tensor([1, 2, 4]), one.double(), "float32")["outside"] == 1
    assert tolerance.compare(torch.ones(2), torch.ones(3), "float32")["shape_expected"] == [3]
    empty = tolerance.compare(torch.ones(0), torch.ones(0), "float32")
    assert (empty["outside"], empty["max_abs_err"]) == (0, 0.0)


def test_every_operator_that_is_right_stays_well_inside_and_one_wrong_bit_pattern_does_not():
    """Twice the result, a lost row or a shifted row of a product are seen in every dtype."""
    import torch

    x, y = torch.randn(64, 256), torch.randn(256, 32)
    for dtype in ("float32", "float16", "bfloat16"):
        low = [one.to(getattr(torch, dtype)) for one in (x, y)]
        wanted = low[0].double() @ low[1].double()
        right = (low[0].float() @ low[1].float()).to(low[0].dtype)
        assert tolerance.compare(right, wanted, dtype, 256)["over_tolerance"] < 0.5
        for wrong in (right.roll(1, 0), right.clone().index_fill_(0, torch.tensor([5]), 0), right * 1.125):
            assert tolerance.compare(wrong, wanted, dtype, 256)["outside"] > 0


def test_wrong_everywhere_by_a_little_is_outside_where_rounding_would_cancel():
    """Eight roundings in bfloat16 allow 4 x 8 / 128 = a quarter of each element, but all of them do not go one way:
    on average 2 x (sqrt(8) / 128 + 8 x 2^-23) = 4.4%."""
    import torch

    assert tolerance.relative_rms("bfloat16", 64, 8) == pytest.approx(2 * (8**0.5 / 128 + 8 * 2.0**-23))
    wanted = torch.randn(256, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    rounded = wanted.bfloat16()
    assert tolerance.compare(rounded, wanted, "bfloat16", 64, 8)["over_tolerance"] < 0.2
    found = tolerance.compare(rounded * 1.1, wanted, "bfloat16", 64, 8)
    assert found["outside"] > 0 and 2 < found["over_tolerance"] < 2.6  # 0.1 of 0.044
    one = torch.ones(1, dtype=torch.float64)
    assert tolerance.compare(one * 1.1, one, "bfloat16", 64, 8)["outside"] == 0  # of one element no average tells


# ---- everything that can go wrong


def test_no_row_is_lost_and_each_has_its_verdict(bad):
    _, rows = bad
    assert [(name, evidence.verdict(row)) for name, row in rows.items()] == TRIES


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    run = study(tmp_path_factory.mktemp("planted"), "bad_operators:PLANTED", limit_s=30)
    return {(row["op"], row["dtype"]): row for row in results.rows(run.path, "operators")}


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("right", ["PASS", "PASS", "PASS"]),
        ("right_with_many_roundings", ["PASS", "PASS", "PASS"]),
        ("tail_lost", ["WRONG_VALUE"] * 3),
        ("over_1024", ["WRONG_VALUE"] * 3),
        ("over_1024_but_small", ["PASS"] * 3),  # which is why sizes stand beside a result
        ("bfloat16_only", ["PASS", "PASS", "WRONG_VALUE"]),
        ("a_tenth_in_bfloat16", ["PASS", "PASS", "WRONG_VALUE"]),
        ("last_row_when_large", ["WRONG_VALUE"] * 3),
        ("infinite_between_the_rows_compared", ["NAN"] * 3),
        ("in_place", ["WRONG_VALUE"] * 3),
        ("crashes_either_way", ["CRASH"] * 3),
    ],
)
def test_a_kernel_wrong_in_one_place_or_dtype_does_not_pass_and_a_right_one_does(planted, name, codes):
    assert [evidence.verdict(planted[name, dtype]) for dtype in operators.FLOATS] == codes


def test_an_operator_that_writes_to_its_input_is_told_so(planted):
    row = planted["in_place", "float32"]
    assert row["inputs"][0]["inputs_changed"] == 37 * 41 and evidence.levels(row)["matches_cpu"] == "no"
    assert operator_judges.first_line(row) == "it wrote to its own input, 1517 elements (random: 37x41)"
    assert planted["right", "float32"]["inputs"][0]["inputs_changed"] == 0


def test_a_crash_with_the_library_off_as_well_is_no_fault_of_the_library(planted):
    import torch

    if not torch.backends.mkldnn.is_available():
        pytest.skip("this build of torch has no oneDNN to switch off")
    row = planted["crashes_either_way", "float32"]
    assert (row["retry"]["verdict"], row["retry"]["switch"]) == ("CRASH", "oneDNN off")
    assert [one["code"] for one in operator_judges.judge([row]) if "LIBRARY" in one["code"]] == ["NOT_THE_LIBRARY"]


def test_a_library_is_as_it_was_after_a_second_try():
    import torch

    from rocmlab import switches

    before = torch.backends.mkldnn.enabled
    try:
        for enabled in (True, False):
            torch.backends.mkldnn.enabled = enabled
            with switches.switched("dnn", True, "cpu"):
                assert torch.backends.mkldnn.enabled is False
            assert torch.backends.mkldnn.enabled is enabled
            with switches.switched("dnn", False, "cpu") as words:
                assert words is None and torch.backends.mkldnn.enabled is enabled
    finally:
        torch.backends.mkldnn.enabled = before


def test_memory_that_grows_once_is_a_cache_and_no_leak(monkeypatch):
    """An allocator keeps what was freed the first time; the same calls again take nothing more."""
    from rocmlab import operator_timing

    grown = iter([{"device_growth_bytes": 64 << 20}, {"device_growth_bytes": 0}, {"device_growth_bytes": 64 << 20}] * 2)
    monkeypatch.setattr(operator_timing, "_grown", lambda work, device: ([0.1] * 6, next(grown)))
    check, seen = operators.load()["add"], []
    for _ in range(3):
        seen.append(evidence.leaks({"growth": operator_timing.row(check, "float32", "cpu")["growth"]}))
    # 64 then 0: a cache. 64 then 64: a leak. 0: no second look.
    assert seen == [False, True, False]


@pytest.mark.parametrize("code", ["NOT_SUPPORTED", "OUT_OF_MEMORY", "NO_REFERENCE"])
def test_a_second_try_that_was_refused_blames_nobody(planted, code):
    row = {**planted["tail_lost", "float32"], "retry": {"switch": "MIOpen off", "verdict": code}}
    assert [one["code"] for one in operator_judges.judge([row]) if "LIBRARY" in one["code"]] == []


def test_a_second_result_on_another_device_is_seen():
    import torch

    from rocmlab import operator_trial

    here, there = torch.ones(1), torch.ones(1, device="meta")
    assert operator_trial._device([here, there], "cpu") == "meta"
    assert operator_trial._device([here, here], "cpu") == "cpu" and operator_trial._device([], "cpu") is None
    assert evidence.verdict(row(device="cpu")) == "CPU_RESULT"


def test_a_worker_that_never_starts_is_given_up_and_every_row_is_still_there(tmp_path):
    path = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    keeper = worker.Worker(env={"PYTHONPATH": path}, first=("bad_operators:first_fails", {}))
    run = results.start("02", str(tmp_path))
    plan = operator_study.Plan(catalogue="bad_operators:PLANTED", dtypes=("float32",), limit_s=30)
    assert operator_study.study(run, "cpu", plan, keeper) == 11
    rows = run.rows("operators")
    assert [evidence.verdict(row) for row in rows] == ["ERROR"] * 3 + ["NOT_TRIED"] * 8 and keeper.started == 3
    assert {row.get("not_tried") for row in rows[3:]} == {"worker_will_not_start"}
    found = {one["code"]: one for one in operator_judges.judge(rows)}
    assert "no driver" in findings.say(found["ERROR"])["sentence"] and "NOT_ALL_TRIED" in found


def test_the_first_and_the_last_operator_cost_one_row_each_too(tmp_path):
    run = study(tmp_path, "bad_operators:FIRST_AND_LAST", limit_s=30)
    rows = results.rows(run.path, "operators")
    assert [(row["op"], evidence.verdict(row)) for row in rows] == [
        ("crashes_first", "CRASH"),
        ("good_between", "PASS"),
        ("shouts", "PASS"),
        ("poisons", "ERROR"),
        ("good_after_poison", "PASS"),
        ("hangs_last", "TIMEOUT"),
    ]
    assert [row["worker"] for row in rows] == [1, 2, 2, 2, 3, 3], "an error that stays in the driver costs the worker"


@pytest.mark.skipif(os.name == "nt", reason="ends by a signal of POSIX")
def test_a_worker_that_ends_after_its_answer_is_noted_at_that_operator_and_costs_none(tmp_path, monkeypatch):
    whole = results.Run.append

    def slowly(self, table, row):  # time for the end to come before the next request
        whole(self, table, row)
        time.sleep(0.8)

    monkeypatch.setattr(results.Run, "append", slowly)
    run = study(tmp_path, "bad_operators:LATE", limit_s=30)
    rows, _ = operator_study.merged(operator_study.attempts(run.path))
    codes = {row["op"]: evidence.verdict(row) for row in rows}
    assert codes == {
        "ends_later": "PASS_WITH_WARNING",
        "good_after_a_late_end": "PASS",
        "ends_later_and_last": "PASS_WITH_WARNING",
    }
    assert "SIGSEGV" in rows[0]["warnings"][0] and rows[1]["worker"] == rows[0]["worker"] + 1


def test_each_end_says_how_it_came(bad):
    _, rows = bad
    assert "SIGSEGV" in rows["crashes"]["words"]
    assert "2 s" in rows["hangs"]["words"] and "out-of-memory" in rows["kills_its_worker"]["words"]
    assert rows["raises"]["error"] == "RuntimeError: miopenStatusUnknownError"


def test_only_the_ended_ones_and_the_leaking_one_cost_a_worker(bad):
    _, rows = bad
    workers = [row["worker"] for row in rows.values() if row["op"] != "needs_a_card"]
    assert workers[0] == 1 and max(workers) == 5  # three ends and one leak


def test_a_leak_is_seen_and_its_worker_replaced(bad):
    _, rows = bad
    assert evidence.leaks(rows["leaks"]) and not evidence.leaks(rows["good_after_leak"])
    assert rows["good_after_leak"]["worker"] == rows["leaks"]["worker"] + 1


def test_nan_at_one_size_is_a_fault_by_size(bad):
    _, rows = bad
    row = rows["nan_at_one_size"]
    assert [one["not_finite"] > 0 for one in row["inputs"]] == [False, True]
    assert row["inputs"][1]["pieces"] == {"pieces": 8, "not_finite": 0, "outside": 0}
    found = [one for one in operator_judges.judge(list(rows.values())) if one["code"] == "WRONG_RESULT_BY_SIZE"]
    said = findings.say(found[0])["sentence"]
    assert len(found) == 1 and "large_cpu" in said and "in pieces: right" in said and "random" in said


def test_a_right_value_with_a_wrong_gradient(bad):
    _, rows = bad
    assert rows["wrong_gradient"]["inputs"][0]["outside"] == 0
    levels = evidence.levels(rows["wrong_gradient"])
    assert (levels["matches_cpu"], levels["grad_ok"]) == ("yes", "no")


def test_a_second_try_with_the_library_off_tells_the_library_from_the_card(bad):
    import torch

    if not torch.backends.mkldnn.is_available():
        pytest.skip("this build of torch has no oneDNN to switch off")
    _, rows = bad
    assert rows["library_at_fault"]["retry"]["verdict"] == "PASS"
    codes = {one["code"]: one for one in operator_judges.judge(list(rows.values()))}
    assert "oneDNN off" in findings.say(codes["LIBRARY_AT_FAULT"])["sentence"]
    both = {**rows["library_at_fault"], "retry": {"switch": "MIOpen off", "verdict": "NAN"}}
    assert [one["code"] for one in operator_judges.judge([both]) if "LIBRARY" in one["code"]] == ["NOT_THE_LIBRARY"]


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "RuntimeError: miopenStatusAllocFailed",
        "RuntimeError: HIP out of memory. Tried to allocate 2.00 GiB",
        "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes",
    ],
)
def test_a_library_without_room_for_its_workspace_is_out_of_memory(error):
    from rocmlab import decode

    assert evidence.verdict(row(error=error)) == "OUT_OF_MEMORY" and decode.is_out_of_memory(RuntimeError(error))
    assert not decode.is_out_of_memory(RuntimeError("CUBLAS_STATUS_NOT_INITIALIZED"))


def test_the_page_shows_every_failure_and_the_histogram_adds_up(bad):
    run, rows = bad
    part = section_02.section(run.path)
    frames = {table.name: table.frame for table in part.tables}
    broken = [name for name, code in TRIES if code in evidence.BROKEN]
    assert sorted(name.split()[0] for name in frames["failed-table"]["operator"]) == sorted(broken)
    level = frames["levels-table"]
    assert (level[list(evidence.STATES)].sum(axis=1) == len(rows)).all()
    assert frames["matrix-table"]["float32"][0]["en"].startswith("5/16 (")
    assert part.figures[0].draw().get_size_inches()[1] > 2
    assert part.answers["works"]["code"] == "CRASH"
    assert "warns" in frames["warnings-table"]["operators"][0]
    untried = dict(zip(frames["untried-table"]["operators"], frames["untried-table"]["count"], strict=True))
    assert untried["needs_a_card (float32)"] == 1 and untried["not_in_this_build (float32)"] == 1
    for one in part.findings:
        assert findings.say(one)["sentence"] and findings.say(one, "zh")["sentence"]


def test_order_and_numbers_of_the_findings(bad):
    _, rows = bad
    every = operator_judges.judge(list(rows.values()))
    order = ["CRASH", "KILLED", "TIMEOUT", "OUT_OF_MEMORY", "ERROR", "NAN", "WRONG_VALUE"]
    assert [one["code"] for one in findings.worst_first(every)][:7] == order
    counts = operator_judges.numbers(list(rows.values()))
    assert counts["total"] == 16 and counts["crash"] == 1 and counts["wrong_value"] == 3 and counts["pass"] == 4
    assert findings.verdict(every) == ("CRASH", "broken")


# ---- trying again


def test_a_retry_after_mending_shows_the_difference(tmp_path):
    mend = tmp_path / "mended"
    env = {"ROCMLAB_TEST_MEND": str(mend)}
    run = study(tmp_path / "run", "bad_operators:MENDABLE", env, limit_s=30)
    pairs = operator_study.failed(run.path)
    assert pairs == {("mended_later", "float32")}
    mend.touch()
    study(tmp_path / "run", "bad_operators:MENDABLE", env, limit_s=30, pairs=pairs)
    rows, before = operator_study.merged(operator_study.attempts(run.path))
    assert {row["op"]: evidence.verdict(row) for row in rows} == {"mended_later": "PASS", "always_good": "PASS"}
    assert [(r["op"], then, now) for r, then, now in operator_judges.changes(rows, before)] == [
        ("mended_later", "WRONG_VALUE", "PASS")
    ]
    found = next(one for one in operator_judges.judge(rows, before) if one["code"] == "CHANGED_SINCE")
    assert found["numbers"] == {"compared": 1, "mended": 1, "worse": 0}
    assert operator_study.failed(run.path) == frozenset()


def row(op="mm", dtype="float32", **more):
    """A made-up row of a card on which all is right."""
    made = {
        "set": "curated", "op": op, "family": "gemm", "dtype": dtype, "compute_dtype": dtype, "device_asked": "cuda:0",
        "device": "cuda:0", "status": "OK", "error": None, "warnings": [], "stderr": "", "has_gradient": True,
        "inputs": [{"inputs": "random", "not_finite": 0, "outside": 0}], "first_ms": 30.0,
        "gradient": {"not_finite": 0, "outside": 0}, "steady_ms": [0.1, 0.11, 0.1, 0.1, 0.12, 0.1],
        "timed": {"inputs": "random", "bytes": 8_000_000, "flop": 2e9},
        "evidence": {
            "sync": {"waited": False},
            "kernels": {"names": ["Cijk_Ailk_Bljk_SB_MT64x64x8_SN", "Memcpy HtoD"]},
            "cpu": {"dtype": "float32", "steady_ms": [1.0, 1.1, 1.2, 1.0, 1.1, 1.0]},
        },
    }  # fmt: skip
    return {**made, **more}


def worse(found):
    return [one["code"] for one in found if one["code"].startswith("CHANGED")]


def test_getting_worse_is_a_warning_and_no_change_is_said():
    good, wrong = row(), row(inputs=[{"inputs": "random", "not_finite": 0, "outside": 9}])
    assert worse(operator_judges.judge([wrong], [good])) == ["CHANGED_FOR_THE_WORSE"]
    assert worse(operator_judges.judge([good], [wrong])) == ["CHANGED_SINCE"]
    assert (
        "nothing changed"
        in findings.say(next(one for one in operator_judges.judge([good], [good]) if one["code"] == "CHANGED_SINCE"))[
            "sentence"
        ]
    )
    assert worse(operator_judges.judge([good], [])) == []


def test_a_whole_attempt_replaces_the_rows_of_another_build():
    old = [row("gone"), row("mm", status="CRASH", words="x")]
    rows, before = operator_study.merged([old, [row("mm"), row("new")]])
    assert [one["op"] for one in rows] == ["mm", "new"] and [one["op"] for one in before] == ["mm"]
    partial = [row("mm", plan_only=True)]
    rows, _ = operator_study.merged([old, partial])
    assert {one["op"]: evidence.verdict(one) for one in rows} == {"gone": "PASS", "mm": "PASS"}


# ---- levels, one question after the other


def test_a_row_that_proves_everything():
    levels = evidence.levels(row())
    assert levels == dict.fromkeys(evidence.LEVELS, "yes")
    assert evidence.libraries(row()) == ["rocBLAS/Tensile"]


@pytest.mark.parametrize(
    ("change", "level", "state"),
    [
        ({"device": "cpu"}, "on_device", "no"),
        ({"gradient": None}, "grad_ok", "unknown"),
        ({"has_gradient": False, "gradient": None}, "grad_ok", "na"),
        ({"gradient": {"not_finite": 2, "outside": 0}}, "grad_ok", "no"),
        ({"evidence": {"sync": {"waited": True}}}, "no_hidden_sync", "no"),
        ({"evidence": {"sync": {"waited": True}}, "waits_by_design": True}, "no_hidden_sync", "na"),
        ({"evidence": {"sync": {"reason": "no device-side wait"}}}, "no_hidden_sync", "unknown"),
        ({"evidence": {"kernels": {"names": None, "reason": "blind"}}}, "kernel_seen", "unknown"),
        ({"evidence": {"kernels": {"names": []}}}, "kernel_seen", "unknown"),
        ({"evidence": {"kernels": {"names": ["a<b>::c d"]}}}, "library_known", "unknown"),
        ({"evidence_lost": "CRASH"}, "kernel_seen", "yes"),
        ({"steady_ms": [2.0] * 6}, "faster_than_cpu", "no"),
        ({"steady_ms": [0.9, 1.2, 1.0, 1.1, 0.9, 1.2]}, "faster_than_cpu", "unknown"),
        ({"evidence": {}}, "faster_than_cpu", "unknown"),
        ({"device_asked": "cpu", "device": "cpu"}, "faster_than_cpu", "na"),
        ({"device_asked": "cpu", "device": "cpu"}, "on_device", "na"),
        ({"status": "CRASH", "inputs": []}, "ran", "no"),
        ({"status": "CRASH", "inputs": []}, "matches_cpu", "unknown"),
        ({"no_reference": "random"}, "matches_cpu", "unknown"),
        ({"status": "NOT_TRIED", "not_tried": "budget_spent"}, "ran", "na"),
    ],
)
def test_each_level_can_come_out_otherwise(change, level, state):
    assert evidence.levels(row(**change))[level] == state


@pytest.mark.parametrize(
    ("own", "cpu", "state"),
    [
        ([1.0] * 6, [1.2] * 6, "yes"),
        ([1.0] * 6, [1.2], "unknown"),  # one sample has no interval, and a fifth is within what a machine does
        ([1.0], [1.2] * 6, "unknown"),
        ([1.0] * 6, [1.6], "yes"),
        ([1.6], [1.0] * 6, "no"),
        ([1.2], [1.0] * 6, "unknown"),
        ([1.2] * 6, [1.0] * 6, "no"),
        ([1.0, 1.1, 1.2, 1.3, 1.4, 1.5], [1.4, 1.5, 1.6, 1.7, 1.8, 1.9], "unknown"),
        ([1.0] * 6, [], "unknown"),
    ],
)
def test_faster_than_the_cpu_needs_intervals_apart_and_few_samples_more(own, cpu, state):
    timed = row(steady_ms=own, evidence={"cpu": {"steady_ms": cpu}})
    assert evidence.levels(timed)["faster_than_cpu"] == state


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "OUT_OF_MEMORY"),
        ("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory", "OUT_OF_MEMORY"),
        ("RuntimeError: No available kernel. Aborting execution.", "NOT_SUPPORTED"),
        ("NotImplementedError: \"addmm_cuda\" not implemented for 'Float8_e4m3fn'", "NOT_SUPPORTED"),
        ("RuntimeError: HIP error: invalid device function", "ERROR"),
        ("RuntimeError: miopenStatusUnknownError", "ERROR"),
        ("AssertionError: shapes differ", "ERROR"),
    ],
)
def test_errors_are_told_apart(error, code):
    assert evidence.verdict(row(error=error)) == code


def test_an_error_that_stays_in_the_driver_costs_the_worker():
    assert evidence.poisoned(row(error="torch.AcceleratorError: HIP error: an illegal memory access was encountered"))
    assert not evidence.poisoned(row(error="RuntimeError: shapes differ"))


def test_the_share_of_the_roof_is_arithmetic():
    one = row(steady_ms=[0.1] * 6)  # 8 MB in 0.1 ms = 80 GB/s, 2 GFLOP in 0.1 ms = 20 TFLOP/s
    assert evidence.roof(one, {"gb_s": 160.0}) == pytest.approx(50.0)
    assert evidence.roof(one, {"gb_s": 160.0, "float32_tflops": 25.0}) == pytest.approx(80.0)
    assert evidence.roof(one, {}) is None


def share(one, **ceilings):
    """The share of the roof in the table of rates, and why there is none."""
    one["timed"] = {"shapes": [[64, 64]]} | one["timed"]
    (line,) = operator_tables.rate([one], ceilings).to_dict("records")
    return line["roof_pct"], line.get("roof_pct_reason")


def test_data_in_a_cache_leaves_the_share_of_the_measured_product():
    large = row(steady_ms=[0.1] * 6)  # 0.04 ms of memory at 200 GB/s, 0.08 ms of products at 25 TFLOP/s
    one_row = row("linear_one_row", timed={"bytes": 8_000_000, "flop": 4e6})
    past_cache = row("linear", timed={"bytes": 600_000_000, "flop": 4e6}, steady_ms=[6.0] * 6)
    both = {"gb_s": 200.0, "float32_tflops": 25.0}
    assert share(large, **both) == (pytest.approx(80.0), None)
    assert share(one_row, **both) == (None, words.both("none_past_cache"))
    assert share(past_cache, **both) == share(past_cache, gb_s=200.0) == (pytest.approx(50.0), None)
    assert share(row("conv2d_3x3", precision="tf32"), **both) == (None, words.both("none_tf32"))
    assert share(large, gb_s=200.0, float32_tflops=19.0) == (None, words.both("none_above"))  # 20 TFLOP/s were reached
    assert share(large, gb_s=200.0) == (None, words.both("none_product_rate"))
    assert share(large) == (None, words.both("none_roof"))


def test_the_roofs_of_a_section_are_those_of_its_own_device(tmp_path):
    run = results.start("02", str(tmp_path))
    for device, dtype, ms, tf32 in (
        ("cuda:0", "float32", 1.0, False), ("cuda:0", "float32", 0.1, True), ("cuda:0", "float16", 0.5, True),
        ("cpu", "bfloat16", 1.0, None),
    ):  # fmt: skip
        run.append("gemm_rate", {"device": device, "dtype": dtype, "m": 1000, "n": 1000, "k": 1000, "tf32": tf32,
                                 "samples_ms": [ms] * 6})  # fmt: skip
    given = section_02._ceilings(run.path, [row()])
    assert given == {"float32_tflops": pytest.approx(2.0), "float16_tflops": pytest.approx(4.0)}


def test_float32_that_was_multiplied_in_tf32_is_called_so():
    rows = [row("conv2d_3x3", precision="tf32"), row(precision="float32"), row("linear")]
    for one in rows:
        one["timed"] |= {"shapes": [[64, 64]]}
    names = ["conv2d_3x3 float32 (TF32)", "mm float32", "linear float32"]
    assert operator_tables.rate(rows, {})["operator"].tolist() == names
    assert set(operator_tables.first(rows)["operator"]) == set(names)


def test_attention_by_one_path_only():
    refused = {"error": "RuntimeError: No available kernel. Aborting execution."}
    paths = [row("sdpa_math"), row("sdpa_flash", "float16", **refused), row("sdpa_efficient", **refused)]
    found = [one for one in operator_judges.judge(paths) if one["code"] == "SDPA_MATH_ONLY"]
    assert len(found) == 1 and "flash, memory-efficient" in findings.say(found[0])["sentence"]
    paths[2] = row("sdpa_efficient")
    assert not [one for one in operator_judges.judge(paths) if one["code"] == "SDPA_MATH_ONLY"]


def test_first_calls_waits_and_speed_are_findings_only_where_they_are_so():
    codes = [one["code"] for one in operator_judges.judge([row()])]
    assert codes == ["PASS", "OPERATOR_SPEED", "INPUTS_TRIED"]
    slow = row(first_ms=63000.0)
    found = next(one for one in operator_judges.judge([slow]) if one["code"] == "COMPILE_ON_FIRST_CALL")
    assert found["numbers"]["first_call_ms"] == 63000.0 and found["numbers"]["median_ms"] == pytest.approx(0.1)
    waiting = row(evidence={"sync": {"waited": True}})
    assert "HIDDEN_WAIT" in [one["code"] for one in operator_judges.judge([waiting])]
    speed = next(one for one in operator_judges.judge([row()]) if one["code"] == "OPERATOR_SPEED")
    assert speed["numbers"] == {"faster": 1, "compared": 1, "median_ratio": pytest.approx(10.5)}


def test_what_was_left_out_for_lack_of_time_is_unknown_not_ok():
    left = row(status="NOT_TRIED", not_tried="budget_spent")
    found = next(one for one in operator_judges.judge([row(), left]) if one["code"] == "NOT_ALL_TRIED")
    assert (found["status"], found["numbers"]) == ("unknown", {"count": 1, "total": 2})
    by_design = row(status="NOT_TRIED", not_tried="needs_accelerator")
    assert "NOT_ALL_TRIED" not in [one["code"] for one in operator_judges.judge([row(), by_design])]


def test_a_plan_stops_at_its_time_and_still_writes_every_row(tmp_path):
    run = study(tmp_path, "bad_operators:MENDABLE", {"ROCMLAB_TEST_MEND": "x"}, budget_s=0.0)
    rows = results.rows(run.path, "operators")
    assert [one["not_tried"] for one in rows] == ["budget_spent"] * 2


def test_modes_and_lists_of_a_plan(tmp_path):
    plan = operator_study.planned(tmp_path, "curated", " mm , gemm", "float16,  bfloat16", 5, 6)
    assert (plan.only, plan.dtypes, plan.pairs) == (("mm", "gemm"), ("float16", "bfloat16"), None)
    tried = {(check.name, dtype) for check, dtype, _ in operator_study.chosen(plan, "cpu")}
    assert ("mm", "float16") in tried and ("mm", "float32") not in tried and ("add", "float16") not in tried
    assert operator_study.planned(tmp_path, "failed", "", "float32", 5, 6).pairs == frozenset()
    with pytest.raises(ValueError, match="curated, all, failed"):
        operator_study.planned(tmp_path, "every", "", "float32", 5, 6)


# ---- known problems


def test_known_problems_are_complete_and_found_by_what_was_said():
    for name, entry in problems.table().items():
        assert entry["evidence"] in ("tested", "reported") and entry["seen"] and entry["issue"], name
    assert (
        problems.match("batch_norm_training", ["RuntimeError: miopenStatusUnknownError"], hip=True) == "hiprtc_header"
    )
    assert problems.match("add", ["RuntimeError: HIP error: invalid device function"], hip=True) == "no_code_object"
    assert problems.match("mm", ["WRONG_VALUE"], hip=True) == "wrong_sgemm"
    assert problems.match("mm", ["WRONG_VALUE"], hip=False) is None
    assert problems.match("add", ["ValueError: shapes differ"], hip=True) is None


# ---- the case of twelve stand-ins


@pytest.fixture
def stand_ins(monkeypatch):
    """Return a function that tries the stand-in operators of a file."""

    def tried(path, folder):
        monkeypatch.setenv("ROCMLAB_TEST_ITEMS", str(path))  # the keeper and its worker read the same file
        operators.load.cache_clear()
        run = study(folder, "bad_operators:DESCRIBED", {"ROCMLAB_TEST_ITEMS": str(path)})
        return results.rows(run.path, "operators")

    return tried


def test_stand_ins_as_described(shared, tmp_path, stand_ins):
    path = shared / "cases" / "ops-01-fake-operators.json"
    given = json.loads(path.read_text(encoding="utf-8"))
    wanted = cases.expected(shared, "B", "run")[path.name]
    rows = stand_ins(path, tmp_path)
    assert [evidence.verdict(one) for one in rows] == [item["verdict"] for item in given["items"]]
    assert operator_judges.numbers(rows) == wanted["numbers"]
    found = findings.worst_first(operator_judges.judge(rows))
    kept = [one["code"] for one in found if one["status"] != "ok"]
    assert kept == wanted["findings"] and findings.verdict(found) == (wanted["verdict"], wanted["status"])


def test_stand_ins_of_our_own(tmp_path, stand_ins):
    """The same kinds of behaviour with other numbers, for a checkout without the cases."""
    items = [
        ("right", {"kind": "return", "device": "cuda", "value": [3.0]}, [3.0], "PASS"),
        ("elsewhere", {"kind": "return", "device": "cpu", "value": [3.0]}, [3.0], "CPU_RESULT"),
        ("wrong", {"kind": "return", "device": "cuda", "value": [3.5]}, [3.0], "WRONG_VALUE"),
        ("nan", {"kind": "return", "device": "cuda", "value": ["nan", 1]}, [0.5, 1.0], "NAN"),
        ("rounded", {"kind": "return", "device": "cuda", "dtype": "bfloat16", "value": [0.3340]}, [1 / 3], "PASS"),
        (
            "warning",
            {"kind": "return", "device": "cuda", "value": [1.0], "warning": "slow"},
            [1.0],
            "PASS_WITH_WARNING",
        ),
        ("memory", {"kind": "raise", "type": "torch.OutOfMemoryError", "message": "full"}, None, "OUT_OF_MEMORY"),
        ("ended", {"kind": "exit", "returncode_linux": -11, "returncode_windows": 3221225477}, None, "CRASH"),
    ]
    described = [
        {"id": name, "behaviour": behaviour, "reference": reference, "limit_s": 20}
        for name, behaviour, reference, _ in items
    ]
    path = tmp_path / "items.json"
    path.write_text(json.dumps({"items": described}), encoding="utf-8")
    rows = stand_ins(path, tmp_path / "run")
    assert [evidence.verdict(one) for one in rows] == [verdict for *_, verdict in items]
    assert Counter(evidence.levels(one)["ran"] for one in rows) == {"yes": 6, "no": 2}


# ---- what `rocmlab read` says


def test_further_cases(shared):
    entries = {**cases.expected(shared, "B"), **cases.expected(shared, "B", "use")}
    assert len(entries) >= 5
    for name, entry in entries.items():
        assert cases.differences(shared / "cases" / name, entry) == [], name


def test_a_broken_operator_ends_a_strict_report_only(bad, capsys):
    run, _ = bad
    assert runner._page(run.path, "en", strict=False) is False
    assert runner._page(run.path, "en", strict=True) is True


# ---- libraries by their own logs


def test_a_log_names_the_library_where_the_profiler_is_blind():
    blind = {"evidence": {"kernels": {"names": None, "reason": "cannot see the device"}}}
    silent, told = row(**blind), row("linear", **blind, logged={"rocBLAS": 3})
    assert evidence.levels(silent)["library_known"] == "unknown"
    levels = evidence.levels(told)
    assert (levels["library_known"], levels["kernel_seen"]) == ("yes", "unknown")
    assert evidence.libraries(told) == ["rocBLAS"]
    assert evidence.blind([silent, told, row()]) and not evidence.blind([row(), row(), silent])
    assert not evidence.blind([row(status="CRASH")])


def test_calls_are_counted_by_library():
    lines = ["noise", "MKL_VERBOSE SGEMM(N,N,512,256,512,0x7f,0x7f,512,0x7f,512,0x7f,0x7f,512) 1.25ms CNR:OFF NThr:2"]
    kinds = "src:bf16::blocked:ab::f0 wei:bf16::blocked:ab::f0 dst:bf16::blocked:ab::f0"
    lines += [
        f"onednn_verbose,v1,primitive,exec,cpu,matmul,brg:avx512,undef,{kinds},,,256x512:512x512,0.5",
        "UserWarning",
    ]
    log = "\n".join(lines)
    assert operator_study.served(log) == {"MKL": 1, "oneDNN": 1}
    assert operator_study.served("") == operator_study.served("nothing of a library\n") == {}


def test_on_a_cpu_the_libraries_are_asked(tmp_path):
    import torch

    if not torch.backends.mkldnn.is_available():
        pytest.skip("this build of torch has no oneDNN that could write a log")
    run = results.start("02", str(tmp_path))
    plan = operator_study.Plan(only=("conv2d_1x1", "add"), dtypes=("float32",))
    assert operator_study.listen(run, "cpu", plan) == 1  # add has no library to ask
    run.append("operators", [row("conv2d_1x1", device_asked="cpu", device="cpu", evidence={}), row("add", evidence={})])
    rows, _ = operator_study.merged(operator_study.attempts(tmp_path))
    assert {one["op"]: evidence.libraries(one) for one in rows} == {"conv2d_1x1": ["oneDNN"], "add": []}
