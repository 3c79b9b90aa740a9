"""A verdict says no more than its evidence: intervals, shares within the step, opposite faults, unknowns."""

import dataclasses

import machines as m
import made
import pytest
from machines import changed

from rocmlab import hypotheses, suspects, verdict_judges
from rocmlab.clues import Span
from rocmlab.sections import verdict

S, R, U, N = "supported", "refuted", "undecided", "not_applicable"


def judged(machine, suspect):
    return hypotheses.JUDGES[suspect](machine)


MACHINES = {name: getattr(m, name) for name in
            ("h200", "gfx1032", "fallback", "spilled", "emulated", "slow_cpu", "cpu_at_roof")}  # fmt: skip


@pytest.mark.parametrize("name", MACHINES)
def test_no_part_is_longer_than_its_step_or_below_0(name):
    for one in hypotheses.judge(MACHINES[name]()):
        if one.span and one.step_ms and one.suspect != "new_shapes":
            assert 0 <= one.span.low <= one.span.ms <= one.span.high, one
            assert one.span.high <= 1.05 * one.step_ms, one
        assert "{" not in one.evidence["en"] + one.evidence["zh"] and "-0" not in one.evidence["en"]


def test_a_part_measured_apart_is_cut_to_the_step():
    lane = [m.part("launch", 40.0), m.part("python_dispatch", -0.4)]
    machine = changed(m.h200(), account={"host_lane": lane})
    launch, python = judged(machine, "launches"), judged(machine, "python_dispatch")
    assert launch.span == Span(18.9, 18.9, 18.9) and launch.share_pct == 100
    assert python.verdict == R and python.span.ms == 0
    assert suspects.within(Span(5.0, -1.0, 30.0), Span(20.0, 19.0, 21.0)) == Span(5.0, 0.0, 20.0)


def test_the_interval_of_the_step_counts_too():
    def launching(wide):
        quantities = {"T": m.quantity(20.0, wide), "H": m.quantity(19.0)}
        return changed(m.h200(), account={"quantities": quantities, "host_lane": [m.part("launch", 2.2, wide=0.01)]})

    assert judged(launching(0.01), "launches").verdict == S
    assert judged(launching(0.3), "launches").verdict == U  # a step of 26 ms would make it 8%


def test_products_and_small_operators_never_add_up_to_more_than_the_device_spends():
    shapes = m.shapes(260.0, 0.10, small_us=400.0)  # timed alone: far more than the lane holds
    machine = changed(m.fallback(), shapes=shapes)
    parts = [judged(machine, name).span for name in ("slow_products", "small_operators")]
    lane = next(row for row in machine.account["device_lane"] if row["name"] == "excess")
    assert sum(one.ms for one in parts) <= lane["ms"] * 1.001
    assert parts[0].ms > 0 and parts[1].ms > 0


def test_waiting_calls_inside_the_step_are_not_cleared_by_a_cheap_read_back():
    account = m.account(20.0, 19.0, 5.0, "host_bound", launch=8.0, python_dispatch=6.0, readback=0.1)
    many, one = (m.clues(account, {"profiler": [m.seen(waits=count)]}) for count in (57, 1))
    assert judged(many, "waiting").verdict == U and "57 waiting calls" in judged(many, "waiting").evidence["en"]
    assert judged(one, "waiting").verdict == R
    nobody_counted = judged(m.clues(account, {}), "waiting")  # ROCm on Windows has no trace
    assert nobody_counted.verdict == R and "were not counted" in nobody_counted.evidence["en"]


def test_what_no_twin_tells_apart_is_not_called_python():
    lane = [m.part("launch", None), m.part("python_dispatch", 17.0)]
    machine = changed(m.h200(), account={"host_lane": lane})
    python, launch = judged(machine, "python_dispatch"), judged(machine, "launches")
    assert python.verdict == S and "and in launching it" in python.evidence["en"]
    assert launch.verdict == U and "within the 17.0 ms" in launch.evidence["en"]
    assert "launching" not in judged(m.h200(), "python_dispatch").evidence["en"]
    on_cpu = m.clues(m.cpu_step(55.8, 8.7, 12.0, 40.0), {})
    assert "launching" not in judged(on_cpu, "python_dispatch").evidence["en"]


def test_the_driver_s_part_of_launching_is_never_more_than_launching():
    dear = [{"what": "empty_kernel", "layer": "driver", "samples_us": [20.0] * 6}]  # 1,620 x 20 us = 32 ms
    assert "empty kernel" not in judged(changed(m.h200(), launch_cost=dear), "launches").evidence["en"]
    assert "empty kernel" in judged(m.h200(), "launches").evidence["en"]


def test_what_calling_from_python_costs_is_not_the_driver_s():
    called = [{"what": "empty_kernel", "layer": "driver", "samples_us": [4.9] * 6, "call_us": 2.2}]
    said = judged(changed(m.h200(), launch_cost=called), "launches").evidence["en"]
    assert "takes 2.70 us" in said and "4.37 ms a token" in said  # 1,620 x 2.7 us


@pytest.mark.parametrize(
    ("platform", "more", "wanted"),
    [
        ("Windows-11-10.0.26100-SP0", {}, S),
        ("Linux-6.8.0-test", {}, N),
        ("Linux-5.15.167-microsoft-standard-WSL2", {"linux": {"wsl": True}}, S),  # Windows' driver lies beneath
        ("", {}, U),  # nobody told the system
    ],
)
def test_submission_is_a_matter_of_windows_driver(platform, more, wanted):
    account = m.account(30.0, 28.0, 14.0, "host_bound", T_block=20.0, launch=6.0, python_dispatch=5.0, readback=0.1)
    assert judged(m.clues(account, {}, snapshot=m.snapshot(platform, **more)), "submission").verdict == wanted


def dtype_ratio(*ratios):
    given = {"ratios": list(ratios), "baseline_samples_ms": [10.0] * len(ratios)}
    given["changed_samples_ms"] = [10.0 * one for one in ratios]
    return changed(m.emulated(), experiments=[m.experiment("float16", 1.0, **given)])


def test_an_emulated_dtype_is_convicted_by_a_step_and_not_by_large_products():
    assert judged(changed(m.emulated(), experiments=[]), "wrong_dtype").verdict == U
    assert judged(dtype_ratio(*[0.5] * 6), "wrong_dtype").verdict == S
    assert judged(dtype_ratio(*[0.98] * 6), "wrong_dtype").verdict == R
    scattered = judged(dtype_ratio(0.75, 0.8, 0.85, 0.9, 0.97, 1.0), "wrong_dtype")
    assert scattered.verdict == U and scattered.span.low >= 0
    hidden = changed(m.h200(), gemm_rate=m.rates(float32=52.0, float16=11.0), experiments=[])
    assert judged(hidden, "wrong_dtype").verdict == R and "hidden" in judged(hidden, "wrong_dtype").evidence["en"]


def test_a_wider_model_counts_with_its_interval():
    def wider(*ratios):
        row = m.experiment("width_x2", 1.0, ratios=list(ratios), baseline_samples_ms=[18.9] * len(ratios),
                           changed_samples_ms=[18.9 * one for one in ratios])  # fmt: skip
        return judged(changed(m.h200(), experiments=[row]), "model_small").verdict

    assert wider(*[1.02] * 6) == S
    assert wider(0.9, 1.0, 1.1, 1.3, 1.5, 1.6) == U


def test_the_artefact_names_only_what_was_looked_for():
    every = judged(m.h200(), "artefact").evidence
    assert "impossible rates, other programs at work, dear stamps" in every["en"]
    lengths = [{k: v for k, v in row.items() if k != "others_cpu_pct"} for row in m.lengths(18.9)]
    few = judged(
        changed(m.h200(), stamps=[], lengths=lengths, batches=[], generation=m.generation(19.2, 38.6)), "artefact"
    )
    assert "stamps" not in few.evidence["en"] and few.verdict == R


def test_a_text_that_nobody_compared_does_not_agree():
    bare = {key: value for key, value in made.text().items() if key != "gaps_logits"}
    found = judged(changed(m.h200(), text=[bare, made.text()]), "wrong_numbers")
    assert found.verdict == R and "agree with the CPU: 1;" in found.evidence["en"]
    nothing = judged(dataclasses.replace(changed(m.h200(), text=[bare], shapes=[]), operators=[]), "wrong_numbers")
    assert nothing.verdict == U


def test_a_wrong_operator_in_another_dtype_is_not_this_model_s():
    wrong = {"inputs": [{"inputs": "random", "not_finite": 0, "outside": 9}]}
    other = dataclasses.replace(m.h200(), operators=[*m.operators(), m.tried("rope", dtype="bfloat16", **wrong)])
    own = dataclasses.replace(m.h200(), operators=[*m.operators(), m.tried("rope", **wrong)])
    assert judged(other, "wrong_numbers").verdict == R and judged(own, "wrong_numbers").verdict == S


def test_a_gpu_without_memory_of_its_own_spills_nothing():
    machine = changed(m.spilled(), lengths=m.sensed(m.lengths(166.0), integrated=True))
    assert judged(machine, "spilled").verdict == N and judged(m.spilled(), "spilled").verdict == S


# ---- what is said of several at once


def answer(machine):
    return verdict_judges.answer_slow(machine, hypotheses.judge(machine))


def test_what_lies_within_other_parts_is_not_added_to_them():
    said = answer(m.emulated())["words"]["parts"]
    assert said["en"] == " (slow matrix products 4.59 ms; within these: a dtype that this device only emulates 5.20 ms)"
    assert said["zh"] == "（矩阵乘法慢 4.59 ms；其中包含：设备只能模拟的 dtype 5.20 ms）"
    assert answer(m.spilled())["words"]["parts"]["en"] == " (memory spilled out of the card 138 ms)"


def test_a_memory_that_is_clocked_down_is_no_roof():
    def clocked(mhz):
        return changed(m.gfx1032(), lengths=m.sensed(m.lengths(4.73), mclk_mhz=mhz))

    assert answer(clocked(1000.0))["code"] == "VERDICT_AT_ROOF"
    low = answer(clocked(96.0))
    assert low["code"] == "VERDICT_DEVICE_BOUND" and "power plan at most 4.14 ms" in low["words"]["parts"]["en"]


def test_a_core_that_is_clocked_down_is_named_where_the_host_binds():
    machine = changed(m.h200(), lengths=m.sensed(m.lengths(18.9), 17.0, host_mhz=800.0), batches=[])
    assert "within these: clocks" in answer(machine)["words"]["parts"]["en"]


def test_notebooks_are_one_or_several():
    assert suspects.named(("04",)) == {"en": "notebook 04", "zh": "notebook 04"}
    assert suspects.named(("04", "05")) == {"en": "notebooks 04 and 05", "zh": "notebook 04、05"}


def test_names_with_commas_are_told_apart():
    found = hypotheses.judge(m.clues(None, {}, ops=[]))
    open_ = next(f for f in verdict_judges.judge(m.clues(None, {}), found, None) if f["code"] == "SUSPECTS_UNDECIDED")
    assert "; clocks, heat or the power plan; " in open_["words"]["names"]["en"]
    assert "；频率、温度或电源计划；" in open_["words"]["names"]["zh"]


def test_a_grade_stands_beside_a_measurement_only():
    frame = verdict.hypothesis_table(hypotheses.judge(m.clues(None, {}, ops=[])))
    assert frame["verdict_grade"].isna().all()


# ---- what is missing is called by its name


def test_a_wide_interval_is_the_reason_before_the_lane_is():
    wide = changed(m.h200(), account={"regime": "mixed", "binding": None,
                                      "host_lane": [m.part("launch", 1.8, wide=0.5)]})  # fmt: skip
    assert "the interval" in judged(wide, "launches").evidence["en"]
    clear = changed(wide, account={"host_lane": [m.part("launch", 8.0)]})
    assert "neither lane" in judged(clear, "launches").evidence["en"]
    on_cpu = m.clues(m.cpu_step(47.7, 8.7, 12.0, 53.0) | {"regime": "undecided"}, {})
    assert "does not add up" in judged(on_cpu, "python_dispatch").evidence["en"]


@pytest.mark.parametrize("suspect", ["bandwidth", "slow_products", "small_operators"])
def test_without_a_roof_the_reason_is_the_roof(suspect):
    without = changed(m.fallback(), ceiling=[], account={"device_lane": []})
    found = judged(without, suspect)
    assert found.verdict == U and "no speed of the memory to compare with" in found.evidence["en"]
    assert judged(m.fallback(), suspect).verdict != U


def test_a_clock_that_was_not_told_is_not_called_unmeasured():
    short = changed(m.slow_cpu(), lengths=m.lengths(57.0, device="cpu")[:4])
    assert "is not known" in judged(short, "clocks").evidence["en"]
    assert judged(changed(short, lengths=[], generation=[], batches=[]), "clocks").evidence["en"].startswith("Not meas")
