"""The account of a decode step against steps whose answer is known beforehand, and every wrong variant of them."""

import json

import pytest
import steprows
from steprows import line, step

from rocmlab import findings, ledger, ledger_judges, ledger_lanes, ledger_quantities, ledger_tables, results

FLOOR = {"ceiling_gb_s": 4000.0, "bytes_a_token": 1.192e9}
COST = [{"what": "empty_kernel", "layer": "driver", "samples_us": [2.2] * 6}]


def build(rows, **given):
    return ledger.build(rows, **{**FLOOR, **given})


def lane(account, side):
    return {row["name"]: row["ms"] for row in account[f"{side}_lane"]}


def check(account, name):
    (found,) = [one for one in account["checks"] if one["name"] == name]
    return found


def unqueued(rows):
    """The rows of a step without its prefilled queue."""
    return [row for row in rows if row["quantity"] != "D_queue"]


def codes(account):
    return [one["code"] for one in ledger_judges.judge(account)]


# ---- host-bound


def test_the_step_of_an_h200_is_host_bound_and_its_device_time_hidden():
    account = build(steprows.h200(), launch_cost=COST)
    assert (account["regime"], account["binding"], account["device_by"]) == ("host_bound", "host", "graph")
    assert account["hidden_ms"] == pytest.approx(4.53, rel=0.01)
    host = lane(account, "host")
    assert host["launch"] == pytest.approx(11.6, abs=0.05)
    assert host["python_dispatch"] == pytest.approx(6.85, abs=0.05)
    assert abs(account["residual_pct"]) < 3
    assert codes(account)[0] == "HOST_BOUND"
    assert "hidden behind it" in findings.say(ledger_judges.judge_regime(account))["sentence"]


def test_host_lane_and_residual_add_up_to_the_step():
    account = build(steprows.h200())
    rows = [row["ms"] for row in [*account["host_lane"], account["residual"]]]
    assert sum(rows) == pytest.approx(account["quantities"]["T"]["ms"])
    assert sum(lane(account, "device").values()) == pytest.approx(account["quantities"]["T"]["ms"], abs=0.01)


def test_device_lane_holds_floor_excess_gaps_and_idle():
    device = lane(build(steprows.h200()), "device")
    assert device["memory_floor"] == pytest.approx(0.298)
    assert device["excess"] == pytest.approx(3.38 - 0.298, abs=0.02)
    assert device["gaps"] == pytest.approx(4.53 - 3.38, abs=0.02)
    assert device["idle"] == pytest.approx(18.9 - 4.53, abs=0.1)


def test_a_replay_pays_for_the_nodes_of_its_own_graph():
    """A static cache brings kernels that the usual step has not: 1,842 nodes against 1,618 launches on an H200."""
    found = ledger_quantities.quantities(steprows.h200(D_graph=step("D_graph", 4.43, 0.01, 0.01)), None, None, None)
    facts = {"launches": {"count": 1618}, "missing": []}
    usual = ledger_lanes.corrected(found, facts)["D_graph"]["ms"]
    own = ledger_lanes.corrected(found, facts | {"nodes": 1842})["D_graph"]["ms"]
    assert usual == pytest.approx(found["D_graph"]["ms"] - 1.618 * 0.7, abs=1e-6)
    assert own == pytest.approx(found["D_graph"]["ms"] - 1.842 * 0.7, abs=1e-6)


def test_the_three_device_times_agree_once_corrected():
    passed = check(build(steprows.h200()), "agree")
    assert passed["passed"] and set(passed["numbers"]) == {
        "D_busy_corrected_ms", "D_graph_corrected_ms", "D_queue_corrected_ms", "ratio"
    }  # fmt: skip
    assert passed["numbers"]["ratio"] < 1.2
    apart = build(steprows.h200(D_busy=line("D_busy", 8.0, grade="A")))
    assert check(apart, "agree")["passed"] is False and "DEVICE_TIMES_DISAGREE" in codes(apart)
    alone = build([row for row in steprows.h200(D_busy=None) if row["quantity"] != "D_queue"])
    assert check(alone, "agree")["passed"] is None
    assert check(alone, "one_way")["passed"] is False and "SINGLE_METHOD" in codes(alone)


# ---- the prefilled queue


def test_a_full_queue_is_never_read_but_carried_on_from_smaller_depths():
    account = build(steprows.h200(D_graph=None))
    queue = account["quantities"]["D_queue"]
    assert account["device_by"] == "queue"
    assert 5.2 < queue["low"] <= queue["ms"] <= queue["high"] < 5.5
    failed = check(account, "queue")
    assert failed["passed"] is False and failed["numbers"]["reading_ms"] == pytest.approx(8.1, rel=0.01)
    assert "QUEUE_NOT_AVAILABLE" in codes(account)


@pytest.mark.parametrize("depths", [{28: 6.6}, {28: 9.7}, {28: 9.7, 2: 0.51}])
def test_without_two_depths_that_count_there_is_no_reading(depths):
    rows = [row for row in steprows.h200(D_graph=None, D_busy=None) if row["quantity"] != "D_queue"]
    account = build([*rows, *steprows.queue(depths)])
    assert account["quantities"]["D_queue"]["ms"] is None and not account["quantities"]["D_queue"]["valid"]
    assert (account["device_ms"], account["regime"]) == (None, "undecided")
    assert codes(account)[0] == "UNDECIDED"


def test_a_queue_that_holds_the_step_is_read_directly():
    (row,) = steprows.queue({14: 2.8})
    row |= {"layers": 14, "of_layers": 14}
    assert ledger_quantities.queue([row])["ms"] == pytest.approx(2.8, rel=0.01)
    assert ledger_quantities.queue([row])["reason"] is None


@pytest.mark.parametrize(("filled", "counts"), [(29.0, True), (30.0, False), (60.0, False)])
def test_half_the_spin_is_the_limit(filled, counts):
    assert ledger_quantities.queue_counts({"enqueue_ms": [filled] * 3, "spin_ms": 60.0}) is counts
    assert ledger_quantities.queue_counts({"spin_ms": 60.0}) is False


# ---- device-bound, mixed, undecided


def test_a_step_that_waits_for_the_device_is_device_bound():
    account = build(steprows.device_bound())
    assert (account["regime"], account["binding"]) == ("device_bound", "device")
    assert account["hidden_ms"] == pytest.approx(18.6, rel=0.01)
    assert lane(account, "host")["wait"] == pytest.approx(14.7, rel=0.01)
    assert account["residual"]["ms"] == pytest.approx(33.6 - 32.53 - 0.15, abs=0.1)
    assert codes(account)[0] == "DEVICE_BOUND" or "DEVICE_BOUND" in codes(account)


@pytest.mark.parametrize(
    ("host", "device", "said"),
    [
        (0.9, 0.2, "host_bound"),
        (0.9, 0.7, "host_bound"),
        (0.9, 0.75, "mixed"),
        (0.8, 0.2, "mixed"),
        (0.9, 0.9, "device_bound"),
        (0.3, 0.85, "device_bound"),
    ],
)
def test_the_rule(host, device, said):
    from rocmlab.ledger_checks import rule

    assert rule(host, device) == said


def test_neither_lane_alone_is_mixed_with_the_overlap_as_hidden():
    rows = [step("T", 15.0, 0.0, 5.0), step("H", 14.9, 0.0, 0.1), line("D_graph", 13.0), line("H_graph", 2.0)]
    account = build(rows)
    assert (account["regime"], account["binding"]) == ("mixed", None)
    assert account["hidden_ms"] == pytest.approx(15 + 13 - 20, abs=0.1)
    assert "MIXED" in codes(account)


def test_intervals_that_allow_two_answers_are_undecided():
    rows = [line("T", 20.0), line("D_graph", 4.0), line("H_graph", 2.0)]
    wide = line("H", 17.2) | {"samples_ms": [16.0, 17.1, 17.2, 17.2, 17.3, 18.4]}
    account = build([*rows, wide])
    assert account["regime"] == "undecided" and check(account, "firm")["passed"] is False
    assert build([*rows, line("H", 18.0)])["regime"] == "host_bound"
    assert build([*rows, line("H", 15.0)])["regime"] == "mixed"


def test_drift_that_both_arms_share_does_not_widen_their_ratio():
    drift = [1.0, 1.2, 0.9, 1.3, 1.1, 0.8]
    rows = [line("T", 1) | {"samples_ms": [20 * one for one in drift]}, line("D_graph", 4.0), line("H_graph", 2.0)]
    account = build([*rows, line("H", 1) | {"samples_ms": [18 * one for one in drift]}])
    assert account["regime"] == "host_bound"
    assert check(account, "firm")["numbers"]["host_share_low"] == pytest.approx(0.9)


# ---- the twin


def test_a_twin_with_much_device_time_does_not_stand_for_the_host():
    heavy = unqueued(steprows.h200(H_graph=line("H_graph", 12.0), D_graph=line("D_graph", 12.5), D_busy=None))
    account = build(heavy)
    assert account["regime"] == "undecided" and check(account, "twin")["passed"] is False
    assert codes(account)[0] in ("UNDECIDED", "HOST_AND_DEVICE_NOT_APART")
    assert "cannot be told apart" in findings.say(ledger_judges.judge_regime(account))["sentence"]
    assert not account["quantities"]["H"]["valid"] and account["hidden_ms"] is None
    assert {lane(account, "host")[name] for name in ("launch", "python_dispatch", "wait")} == {None}


def test_device_bound_needs_no_twin_but_says_what_it_cannot_tell():
    heavy = unqueued(steprows.h200(H_graph=line("H_graph", 15.0), D_graph=line("D_graph", 18.0), D_busy=None))
    account = build(heavy)
    assert account["regime"] == "device_bound" and "HOST_AND_DEVICE_NOT_APART" in codes(account)
    said = {lang: findings.say(ledger_judges.judge_regime(account), lang)["sentence"] for lang in ("en", "zh")}
    assert "is not known" in said["en"] and "未知" in said["zh"] and "18.6" not in said["en"]
    assert "18.6 ms" in findings.say(ledger_judges.judge_regime(build(steprows.device_bound())))["sentence"]
    assert build([line("T", 20.0), line("D_graph", 19.0)])["regime"] == "device_bound"
    assert build([line("T", 20.0), line("D_graph", 4.0)])["regime"] == "undecided"


def test_the_model_s_own_device_time_bounds_the_twin_s_where_that_was_not_measured():
    account = build(steprows.h200(H_graph=None))
    assert account["regime"] == "host_bound"
    assert check(account, "twin")["numbers"]["twin_device_share"] == pytest.approx(4.53 / 18.6, rel=0.01)


def test_without_the_cpu_twin_launching_is_not_told_apart_from_python():
    account = build(steprows.h200(H_cpu=None))
    assert lane(account, "host")["launch"] is None
    assert lane(account, "host")["python_dispatch"] == pytest.approx(18.45, rel=0.01)
    assert abs(account["residual_pct"]) < 3
    assert "LAUNCH_AND_PYTHON" not in codes(account)
    slower = build(steprows.h200(H_cpu=step("H_cpu", 25.0, 0.1, 0.1)))
    assert lane(slower, "host")["launch"] is None


def test_launching_is_checked_against_its_cost_below_torch():
    good = check(build(steprows.h200(), launch_cost=COST), "launch_cost")
    assert good["passed"] and good["numbers"]["us_a_launch"] == pytest.approx(7.16, abs=0.05)
    dear = build(steprows.h200(), launch_cost=[{"layer": "driver", "samples_us": [9.0]}])
    assert check(dear, "launch_cost")["passed"] is False and "LAUNCH_COST_DISAGREES" in codes(dear)
    called = [{"layer": "driver", "samples_us": [9.0], "call_us": 3.0}]  # ctypes takes a third of it
    assert check(build(steprows.h200(), launch_cost=called), "launch_cost")["passed"]
    torch_only = [{"what": "torch_smallest", "layer": "torch", "samples_us": [6.5]}]
    assert check(build(steprows.h200(), launch_cost=torch_only), "launch_cost")["passed"] is None


def test_the_enqueue_of_one_step_is_a_check_and_not_the_rule():
    account = build(steprows.h200(E1=line("E1", 4.0)))
    assert account["regime"] == "host_bound"
    assert check(account, "enqueue")["passed"] is False and "ENQUEUE_DISAGREES" in codes(account)


# ---- grade D alone, and other ways to the device time


def test_wall_clock_alone_gives_a_regime():
    names = ("T", "H", "H_cpu", "E1", "D_queue")
    account = build([row for row in steprows.h200() if row["quantity"] in names], ceiling_gb_s=None)
    assert {one["grade"] for one in account["quantities"].values()} == {"D"}
    assert (account["regime"], account["device_by"]) == ("host_bound", "queue")
    assert lane(account, "device")["memory_floor"] is None
    assert abs(account["residual_pct"]) < 3


def test_operators_timed_apart_stand_in_where_queue_and_graph_fail():
    rows = [row for row in steprows.h200(D_graph=None, D_busy=None) if row["quantity"] != "D_queue"]
    account = build(rows, shape_sum={"ms": 4.0, "low": 3.8, "high": 4.4, "missing": [], "n": 9})
    assert (account["device_by"], account["regime"]) == ("operators", "host_bound")


@pytest.mark.parametrize(("work", "regime"), [(4.0, "host_bound"), (14.0, "undecided"), (18.5, "undecided")])
def test_an_upper_bound_of_device_time_can_only_say_that_it_is_small(work, regime):
    rows = steprows.h200(D_graph=None, D_busy=None, H_graph=line("H_graph", 2.5))
    rows = [row for row in rows if row["quantity"] != "D_queue"]
    given = {"ms": work, "low": work, "high": work, "missing": [], "n": 9, "host_may_bind": ["rms_norm"]}
    account = build(rows, shape_sum=given)
    assert (account["device_by"], account["regime"]) == ("operators", regime)
    exact = build(rows, shape_sum=given | {"host_may_bind": []})
    assert exact["regime"] == {4.0: "host_bound", 14.0: "mixed", 18.5: "device_bound"}[work]


def test_a_sum_of_operators_above_the_replay_splits_no_lane():
    given = {"ms": 16.0, "low": 16.0, "high": 16.0, "missing": [], "n": 9}
    device = lane(build(steprows.h200(D_busy=None), shape_sum=given), "device")
    assert device["excess"] == pytest.approx(4.53 - 1620 * 0.0007 - 0.298, abs=0.05)
    assert sum(device.values()) == pytest.approx(18.9, abs=0.1)


def test_batches_carry_back_to_one_row_only_where_the_step_has_risen():
    flat = [(1, 21.0), (2, 21.1), (8, 19.9), (32, 20.5), (128, 20.9)]
    assert ledger_quantities.by_batches(flat) is None
    risen = [(1, 19.0), (8, 19.0), (128, 27.0), (256, 52.6), (512, 103.8)]  # 1.4 + 0.2 a row
    found = ledger_quantities.by_batches(risen)
    assert found["ms"] == pytest.approx(1.6) and found["valid"]
    assert ledger_quantities.by_batches(risen[1:]) is None
    rows = [row for row in steprows.h200(D_graph=None, D_busy=None) if row["quantity"] != "D_queue"]
    account = build(rows, batches=risen)
    assert (account["device_by"], account["regime"]) == ("batches", "host_bound")


@pytest.mark.parametrize(
    ("points", "ms", "said"),
    [
        ([(1, 40.2), (2, 61.5), (4, 59.4), (8, 57.6)], 61.78, ("falls as rows are added", "反而下降")),
        ([(1, 40.0), (2, 61.0), (4, 63.0), (8, 67.0)], 60.0, ("more than the whole step of batch 1 (40.0 ms)", "超过")),
        ([(1, 10.0), (8, 14.0), (16, 54.0), (32, 134.0)], -21.0, ("no time at all (-21.0 ms)", "不是正数")),
    ],
)
def test_a_line_through_batches_that_says_nothing_of_one_row_does_not_count(points, ms, said):
    found = ledger_quantities.by_batches(points)
    assert found["ms"] == pytest.approx(ms, abs=0.01) and not found["valid"]
    assert said[0] in found["reason"]["en"] and said[1] in found["reason"]["zh"]
    account = build(unqueued(steprows.h200(D_graph=None)), batches=points)
    assert check(account, "one_way")["numbers"]["ways"] == 1  # the trace alone


def test_a_rough_line_whose_bar_reaches_the_step_of_one_row_still_counts():
    assert ledger_quantities.by_batches([(1, 10.0), (2, 13.0), (4, 19.0), (8, 25.0)])["valid"]  # 10 to 13 ms
    assert ledger_quantities.by_batches([(1, 10.0), (2, 13.0), (4, 16.0), (8, 22.0)])["valid"] is False  # 11.5 exactly


def test_a_trace_of_another_notebook_serves_where_this_process_has_none():
    account = build(steprows.h200(D_busy=None), trace={"busy_ms": [3.3, 3.4, 3.5], "kernels": 1600})
    assert account["quantities"]["D_busy"]["grade"] == "A"
    own = build(steprows.h200(), trace={"busy_ms": [9.0], "kernels": 1600})
    assert own["quantities"]["D_busy"]["ms"] == pytest.approx(3.38, rel=0.01)


@pytest.mark.parametrize(
    ("rows", "count", "grade"),
    [
        ([line("launches", count=1620, grade="A"), line("dispatches", count=1912)], 1620, "A"),
        ([line("nodes", count=1650, grade="C"), line("dispatches", count=1912)], 1650, "C"),
        ([line("dispatches", count=1912)], 1912, "D"),
    ],
)
def test_launches_come_from_the_best_evidence(rows, count, grade):
    found = build([line("T", 20.0), *rows])["launches"]
    assert (found["count"], found["grade"]) == (count, grade)
    assert build([line("T", 20.0)])["launches"] is None


# ---- more faults, by what they do to the quantities


def test_a_wait_after_every_layer_changes_nothing_where_the_host_binds():
    assert build(steprows.h200(T=step("T", 20.75, 0.05, 0.1), E1=line("E1", 20.8)))["regime"] == "host_bound"


def test_a_wait_after_every_layer_shows_in_the_enqueue_where_the_device_binds():
    rows = [row for row in steprows.device_bound() if row["quantity"] != "E1"]
    waiting = build([*rows, line("E1", 33.5)])
    assert waiting["regime"] == "device_bound" and "ENQUEUE_DISAGREES" in codes(waiting)
    assert "ENQUEUE_DISAGREES" not in codes(build(steprows.device_bound()))


def test_weights_read_twice_are_excess_over_the_floor():
    once = build(steprows.h200(D_graph=line("D_graph", 16.9), D_busy=line("D_busy", 15.77, grade="A")), ceiling_gb_s=76)
    twice = build(
        steprows.h200(D_graph=line("D_graph", 32.6), D_busy=line("D_busy", 31.47, grade="A")), ceiling_gb_s=76
    )
    floor = lane(once, "device")["memory_floor"]
    assert floor == lane(twice, "device")["memory_floor"] == pytest.approx(15.68, abs=0.01)
    assert lane(once, "device")["excess"] < 0.05 * floor
    assert lane(twice, "device")["excess"] == pytest.approx(floor, rel=0.02)


def test_a_wrong_dtype_doubles_the_floor_and_not_the_excess():
    rows = steprows.h200(D_graph=line("D_graph", 32.6), D_busy=line("D_busy", 31.47, grade="A"))
    device = lane(build(rows, ceiling_gb_s=76, bytes_a_token=2 * 1.192e9), "device")
    assert device["memory_floor"] == pytest.approx(31.37, abs=0.01) and device["excess"] < 0.2


# ---- a replay that is another step than the one as it is


def large_batch(graph_ms, **changes):
    """A step of 256 texts at context 1024: T 33.6, kernels 31.4 as traced, and a replay with another cache."""
    rows = {"T": step("T", 18.75, 0.05, 14.8), "D_graph": line("D_graph", graph_ms)}
    rows |= {"D_busy": line("D_busy", 31.38, grade="A")} | changes
    made = unqueued(steprows.h200(**rows))
    return [row | {"batch": 256, "context": 1024} for row in made]


@pytest.mark.parametrize("graph_ms", [12.0, 60.0])  # no cache to copy; or heads repeated for a mask
def test_a_replay_of_another_step_does_not_decide_what_binds(graph_ms):
    account = build(large_batch(graph_ms))
    assert (account["regime"], account["device_by"]) == ("device_bound", "trace")
    failed = check(account, "agree")
    assert failed["passed"] is False and "D_busy counts" in failed["said"]["en"]
    assert "DEVICE_TIMES_DISAGREE" in codes(account)
    queued = build([*large_batch(graph_ms), steprows.line("D_queue", 32.2, layers=28, of_layers=28, spin_ms=60.0,
                                                          enqueue_ms=[18.9] * 6)])  # fmt: skip
    assert (queued["regime"], queued["device_by"]) == ("device_bound", "queue")


def test_a_replay_that_agrees_with_one_reading_of_the_step_counts():
    agreed = build(large_batch(32.53))
    assert (agreed["regime"], agreed["device_by"]) == ("device_bound", "graph")
    odd = build(steprows.h200(D_busy=line("D_busy", 8.0, grade="A")))  # the queue agrees with the replay
    assert (odd["regime"], odd["device_by"]) == ("host_bound", "graph")
    alone = build(large_batch(12.0, D_busy=None))  # nothing speaks against it
    assert alone["device_by"] == "graph"


def test_a_step_of_several_texts_is_named_as_such():
    sentence = findings.say(ledger_judges.judge_regime(build(large_batch(32.53))))["sentence"]
    assert "256 texts of 1,024 tokens" in sentence
    assert "texts" not in findings.say(ledger_judges.judge_regime(build(steprows.h200())))["sentence"]


def test_fewer_texts_than_asked_for_are_said():
    refused = line("rows", reason="256 texts do not fit") | {"asked": 256, "batch": 64, "context": 1024}
    account = build([refused, *(row | {"batch": 64, "context": 1024} for row in steprows.device_bound())])
    (said,) = [one for one in ledger_judges.judge(account) if one["code"] == "FEWER_TEXTS"]
    for lang in ("en", "zh"):
        assert all(part in findings.say(said, lang)["sentence"] for part in ("256", "64", "1,024"))
    assert "FEWER_TEXTS" not in codes(build(steprows.device_bound()))


# ---- no queue, no graph, no trace


def bare(**changes):
    """A system where queue, graph and trace all fail, each with its reason."""
    refused = {"samples_ms": [], "valid": False}
    rows = unqueued(steprows.h200(D_graph=line("D_graph", reason="capturing") | refused, H_graph=None, D_busy=None))
    rows = [row for row in rows if row["quantity"] not in ("launches", "chain_queue", "chain_graph")]
    rows.append(line("D_queue", reason="RuntimeError: driver reset") | refused)
    rows.append(line("launches", reason="RuntimeError: no kernels") | refused)
    return [*rows, *changes.values()]


def summed(ms, **changes):
    return {"ms": ms, "low": ms, "high": ms, "missing": [], "n": 9, **changes}


def test_what_failed_says_why_in_checks_and_table():
    account = build(bare(), shape_sum=summed(4.0))
    assert (account["regime"], account["device_by"]) == ("host_bound", "operators")
    assert "driver reset" in check(account, "queue")["said"]["zh"] and check(account, "queue")["passed"] is None
    frame = ledger_tables.quantities(account).set_index("quantity")
    for name, why in (("D_queue", "driver reset"), ("D_graph", "capturing"), ("D_busy", "no kernels")):
        assert why in frame.loc[name, "how"] and not frame.loc[name, "counts"]
    assert check(build(steprows.h200()), "queue")["passed"] is False  # a queue that was read, and was full


def test_an_upper_bound_leaves_the_twin_open_and_does_not_condemn_it():
    account = build(bare(), shape_sum=summed(10.4, host_may_bind=["rms_norm"] * 5))
    assert account["regime"] == "undecided" and account["device_upper"]
    found = check(account, "twin")
    assert found["passed"] is None and "not measured" in found["said"]["en"]
    assert "not measured" in account["host_lane"][0]["how"]["en"]
    assert "HOST_AND_DEVICE_NOT_APART" not in codes(account)
    said = findings.say(ledger_judges.judge_regime(account))["sentence"]
    assert "upper bound" in said and said.count("rms_norm") == 3
    assert not build(steprows.h200())["device_upper"]
    small = build(bare(), shape_sum=summed(4.0, host_may_bind=["rms_norm"]))
    for lang, parts in (("en", ("at most 4.00 ms", "the sum of operators")), ("zh", ("至多 4.00 ms", "算子之和"))):
        assert all(part in findings.say(ledger_judges.judge_regime(small), lang)["sentence"] for part in parts)
    exact = findings.say(ledger_judges.judge_regime(build(steprows.h200())), "zh")["sentence"]
    assert "至多" not in exact and "graph 重放" in exact


@pytest.mark.parametrize(("work", "regime"), [(4.0, "undecided"), (10.0, "undecided"), (17.0, "device_bound")])
def test_a_sum_with_holes_can_only_say_that_it_is_large(work, regime):
    account = build(bare(), shape_sum=summed(work, missing=["lm_head"]))
    assert account["regime"] == regime
    assert "lm_head" in check(account, "operators")["said"]["en"]
    if regime == "undecided":
        assert "lm_head" in findings.say(ledger_judges.judge_regime(account))["sentence"]
        assert check(account, "twin")["numbers"]["twin_device_share"] is None


def test_nothing_at_all_for_the_device_is_undecided_and_says_so():
    account = build(bare())
    assert (account["regime"], account["device_ms"]) == ("undecided", None)
    assert "no way to the device time worked" in findings.say(ledger_judges.judge_regime(account))["sentence"]


# ---- residual


@pytest.mark.parametrize(("host", "large"), [(18.0, False), (16.2, True)])
def test_a_residual_over_a_tenth_is_said_and_spread_over_no_row(host, large):
    rows = steprows.h200(T=step("T", 18.75, 0.05, 0.1), H=step("H", host - 0.15, 0.05, 0.1))
    account = build(rows)
    assert account["residual"]["ms"] == pytest.approx(18.9 - host, abs=0.05)
    assert ("RESIDUAL_LARGE" in codes(account)) is large


def test_parts_longer_than_the_step_are_said_as_such():
    account = build(steprows.h200(H=step("H", 23.0, 0.05, 0.1)))
    assert account["residual"]["ms"] == pytest.approx(18.9 - 23.15, abs=0.05)
    (large,) = [one for one in ledger_judges.judge(account) if one["code"] == "RESIDUAL_LARGE"]
    assert "parts are longer than the step" in findings.say(large)["sentence"]
    assert "22.5%" in findings.say(large)["sentence"]


def test_a_graph_that_computes_something_else_does_not_count():
    wrong = line("D_graph", 1.0, valid=False, reason="its logits differ")
    account = build(steprows.h200(D_graph=wrong))
    assert account["device_by"] == "queue" and account["quantities"]["D_graph"]["valid"] is False


# ---- a CPU as the subject


def test_on_a_cpu_the_sum_of_operators_binds_and_nothing_is_zero_by_construction():
    account = ledger.build(
        steprows.cpu(), shape_sum={"ms": 45.1, "low": 44.0, "high": 46.0, "missing": ["rms_norm"], "n": 6},
        ceiling_gb_s=62.0, bytes_a_token=538e6,
    )  # fmt: skip
    assert (account["regime"], account["device_by"]) == ("device_bound", "operators")
    assert account["residual"]["ms"] == pytest.approx(55.8 - 45.1 - 6.4, abs=0.2)
    assert account["residual_pct"] == pytest.approx(7.7, abs=0.3)
    assert account["hidden_ms"] == 0.0 and account["launches"] is None
    assert lane(account, "device")["memory_floor"] == pytest.approx(8.68, abs=0.01)
    assert {one["name"] for one in account["checks"]} == {"residual", "firm", "operators"}
    assert "OPERATORS_NOT_TIMED" in codes(account)
    host = [row["ms"] for row in [*account["host_lane"], account["residual"]] if row["ms"] is not None]
    assert sum(host) == pytest.approx(55.8, abs=0.1)


def test_dispatch_that_twin_and_operators_both_hold_is_counted_once():
    whole = {"ms": 49.0, "low": 48.0, "high": 50.0, "missing": [], "n": 6}
    account = ledger.build(steprows.cpu(), shape_sum=whole)
    shared = 1097 * 0.0013
    assert account["residual"]["ms"] == pytest.approx(55.8 - 49.0 - (6.4 - shared), abs=0.1)
    bound = ledger_judges.judge_regime(account)  # as the lane: the twin holds the operators' dispatch too
    assert bound["numbers"]["host_ms"] == lane(account, "host")["python_dispatch"]
    assert bound["numbers"]["host_ms"] == pytest.approx(6.35 - shared, abs=0.1)
    for lang, said in (("en", "Python and dispatch 4.93 ms (9%)"), ("zh", "Python 和分发占 4.93 ms（9%）")):
        assert said in findings.say(bound, lang)["sentence"]


@pytest.mark.parametrize(
    ("host", "work", "regime"), [(1.8, 0.2, "host_bound"), (0.4, 1.5, "device_bound"), (1.0, 0.9, "mixed")]
)
def test_a_cpu_step_by_what_it_is_made_of(host, work, regime):
    given = {"ms": work, "low": work, "high": work, "missing": ["x"], "n": 6}
    account = ledger.build(steprows.cpu(host, 2.0), shape_sum=given)
    assert account["regime"] == regime
    assert ledger_judges.judge_regime(account)["variant"] == "ledger_cpu"


def test_a_cpu_step_without_operators_is_undecided():
    account = ledger.build(steprows.cpu())
    assert (account["regime"], account["residual"]["ms"]) == ("undecided", None)
    assert "notebook 06" in findings.say(ledger_judges.judge_regime(account))["sentence"]


# ---- missing parts, and words


@pytest.mark.parametrize("gone", ["T", "H", "H_cpu", "H_graph", "D_graph", "D_queue", "D_busy", "launches", "E1"])
def test_any_part_may_be_missing(gone):
    account = build([row for row in steprows.h200() if row["quantity"] != gone], launch_cost=COST)
    json.dumps(account, allow_nan=False)
    for side in ("host", "device"):
        assert all(row["how"]["en"] and row["how"]["zh"] for row in account[f"{side}_lane"])
    for one in ledger_judges.judge(account):
        for lang in ("en", "zh"):
            assert "{" not in findings.say(one, lang)["sentence"]
    for table in ledger_tables.tables(account):
        assert list(table.frame.columns)


def test_no_rows_make_an_account_that_says_nothing():
    account = ledger.build([])
    assert (account["regime"], account["device_ms"], account["residual"]["ms"]) == ("undecided", None, None)
    assert ledger_judges.judge(account) == ledger_judges.judge(None) == []


def test_the_residual_stands_in_the_lane_that_binds():
    host, device = (build(rows()) for rows in (steprows.h200, steprows.device_bound))
    for account, side, other in ((host, "host", "device"), (device, "device", "host")):
        named = [row["en"] for row in ledger_tables.lane(account, side)["row"]]
        assert "unexplained" in named
        assert "unexplained" not in [row["en"] for row in ledger_tables.lane(account, other)["row"]]


def test_grades_of_a_difference_are_those_of_its_worst_part():
    a, b = ({"ms": ms, "low": ms - 1, "high": ms + 1, "grade": grade} for ms, grade in ((10, "A"), (4, "C")))
    assert ledger_lanes.minus(a, b) == {"ms": 6, "low": 4, "high": 8, "grade": "C"}


@pytest.mark.parametrize(("others", "said"), [(0.4, False), (5.0, False), (40.0, True), (None, False)])
def test_other_programs_on_the_processor_are_said(others, said):
    rows = [*steprows.h200(), line("conditions", others_cpu_pct=others)]
    assert ("OTHER_WORK" in codes(build(rows))) is said


# ---- from a run folder


def test_the_account_of_a_run_folder(tmp_path):
    run = results.start("11", str(tmp_path))
    assert ledger.of_run(run.path) is None
    head = {"model_hash": "a", "weight_bytes": 1_192_000_000, "kv_bytes_a_position": 0, "context": 64}
    run.append("step", [row | head for row in steprows.h200(D_busy=None, launches=None)])
    other = results.Run(run.path, "07", "1")
    metrics = {"steps": [{"kind": "token", "linked_busy_us": 3380.0, "kernels": 1620}, {"kind": "prefill"}]}
    other.append("profiler", {"what": "trace", "model_hash": "a", "device": "cuda:0", "metrics": metrics})
    size = 1 << 30
    row = {"way": "read", "bytes": size, "samples_ms": [size / 4e9] * 6, "device": "cuda:0"}
    other.append("ceiling", row)
    account = ledger.of_run(run.path)
    assert account["regime"] == "host_bound" and account["launches"]["count"] == 1620
    assert account["quantities"]["D_busy"]["ms"] == pytest.approx(3.38)
    assert lane(account, "device")["memory_floor"] == pytest.approx(0.298)


def test_a_trace_of_another_model_is_not_taken(tmp_path):
    run = results.start("11", str(tmp_path))
    run.append("step", [row | {"model_hash": "a"} for row in steprows.h200(D_busy=None)])
    metrics = {"steps": [{"kind": "token", "linked_busy_us": 9000.0, "kernels": 99}]}
    run.append("profiler", {"what": "trace", "model_hash": "b", "device": "cuda:0", "metrics": metrics})
    assert "D_busy" not in ledger.of_run(run.path)["quantities"]


def test_device_time_that_cannot_be_inside_the_step_decides_nothing():
    found = build(unqueued(steprows.h200(D_graph=line("D_graph", 60.0), D_busy=None)))
    assert found["regime"] == "undecided" and found["binding"] is None
    firm = next(one for one in found["checks"] if one["name"] == "firm")
    assert firm["passed"] is False and "disturbed" in firm["said"]["en"]
    assert build(steprows.h200())["regime"] == "host_bound"
    assert build(steprows.device_bound())["regime"] == "device_bound"  # nearly as long as the step is no fault
