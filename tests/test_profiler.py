"""Metrics of traces against values worked out by hand, and the rules of the judge, case by case."""

import json
import random
import time

import pytest
import tracemaker as make
from damage import with_odd_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocmlab import findings, profile_tables, profiler, readers, trace_judge
from rocmlab.readers import traces


def measured(events, window="auto", **header):
    return profiler.measure(traces.load(make.written(events, **header)), window)


def codes(metrics):
    return [found["code"] for found in findings.worst_first(trace_judge.judge(metrics)[1])]


def advice(metrics):
    return findings.say(trace_judge.judge(metrics)[1][0])["advice"]


def check_sums(metrics):
    """Busy is never over the window, and each split adds up to what it splits, to a nanosecond a part."""
    if "busy_us" not in metrics:
        return
    window = metrics["window"]["dur_us"]
    parts = [metrics, *(s for s in metrics["steps"] if "idle_us" in s)]
    for part in parts:
        length = part.get("wall_us", window)
        busy = part.get("busy_us", part.get("device_busy_in_span_us"))
        assert 0 <= busy <= length
        assert sum(part["idle_why_us"].values()) == pytest.approx(part["idle_us"]["total"], abs=0.02)
        assert busy + part["idle_us"]["total"] == pytest.approx(length, abs=0.002)
        assert sum(part["critical_path_us"].values()) == pytest.approx(length, abs=0.02)
        assert all(us >= 0 for us in (*part["idle_why_us"].values(), *part["critical_path_us"].values()))


# --- M1 to M12 by hand, on the trace of tracemaker.two_tokens


@pytest.fixture(scope="module")
def two():
    return measured(make.two_tokens())


def test_the_window_is_the_span_of_the_only_kind_of_step(two):
    assert two["window"] == {
        "mode": "auto", "label": "decode_token#0 .. decode_token#1",
        "start_us": 0.0, "end_us": 240.0, "dur_us": 240.0, "device": 1,
    }  # fmt: skip


def test_busy_and_idle_by_hand(two):
    assert (two["busy_us"], two["busy_pct"]) == (48.0, 20.0)
    expected = {"total": 192.0, "lead": 33.0, "tail": 34.0, "inner": 125.0, "gaps": 5, "gaps_ge_10us": 5}
    assert {key: two["idle_us"][key] for key in expected} == expected
    assert (two["idle_us"]["median_gap"], two["idle_us"]["max_gap"]) == (18.0, 67.0)


def test_idle_time_by_cause_by_hand(two):
    assert two["idle_why_us"] == {
        "launch_latency": 48.0, "host:annotation": 44.0, "tail": 34.0, "host:aten": 22.0, "queued": 22.0,
        "host:launch_api": 12.0, "host:sync_api": 10.0,
    }  # fmt: skip
    assert (two["starved_us"], two["starved_pct_of_window"], two["starved_pct_of_idle"]) == (136.0, 56.667, 70.833)
    assert two["starved_by_us"] == {"sync": 10.0, "alloc": 0.0, "code_load": 0.0, "launch": 60.0, "dispatch": 66.0}


def test_critical_path_by_hand(two):
    assert two["critical_path_us"] == {
        "host:annotation": 100.0, "host:aten": 72.0, "launch_latency": 24.0, "host:launch_api": 20.0,
        "sync_return": 20.0, "device": 4.0,
    }  # fmt: skip
    assert two["critical_path_pct"] == {"device": 1.667, "unexplained": 0.0, "host": 80.0, "handover": 18.333}


def test_queue_and_launches_by_hand(two):
    assert two["queue"] == {"mean_depth": 0.6, "max_depth": 2, "empty_pct": 45.833}
    delay = {"n": 4, "median": 18.0, "p90": 18.0, "min": 18.0, "max": 18.0, "idle_n": 2, "idle_median": 18.0}
    assert two["launch_delay_us"] == delay
    launched = two["launches"]
    assert (launched["n"], launched["api_us_mean"], launched["api_us_median"]) == (4, 5.0, 4.0)
    assert (launched["period_us_median"], launched["per_ms"]) == (25.0, 27.586)


def test_hidden_waits_by_hand(two):
    assert two["sync"] == {
        "calls": 2, "us": 48.0, "names": {"hipMemcpyWithStream": {"n": 2, "us": 48.0}},
        "sync_ops": {"aten::item": 2, "aten::_local_scalar_dense": 2},
        "copies": {"DtoH": 2}, "mislabelled_copies": 2, "alloc_calls": 0,
    }  # fmt: skip
    wait = {"call": "hipMemcpyWithStream", "operator": "aten::item", "frame": None, "n": 2, "us": 48.0}
    assert two["waits"] == [wait]


def test_libraries_and_kernels_by_hand(two):
    assert two["libraries"] == {
        "hipBLASLt": {"n": 2, "us": 28.0, "pct": 58.333},
        "PyTorch native": {"n": 2, "us": 16.0, "pct": 33.333},
        "memcpy": {"n": 2, "us": 4.0, "pct": 8.333},
    }
    assert two["kernel_us"]["gemm_mean"] == 14.0
    assert [row["us"] for row in two["top_kernels"]] == [28.0, 16.0, 4.0]


def test_each_token_by_hand(two):
    first, second = two["steps"]
    for step in (first, second):
        counts = {"kernels": 2, "device_events": 3, "launch_calls": 3, "sync_calls": 1, "aten_ops": 4, "spill_us": 0.0}
        assert {key: step[key] for key in counts} == counts
        assert (step["wall_us"], step["linked_busy_us"], step["busy_in_span_pct"]) == (120.0, 24.0, 20.0)
        # Handed over too late for 51 of 96 us of idle time, 53 %; the rest is queued or after the last kernel.
        assert (step["starved_us"], step["verdict"], step["cause"]) == (51.0, "MIXED", None)
    assert first["name"] == "decode_token#0"


def test_the_time_without_work_holds_work_on_its_way_and_says_so(two):
    assert two["starved_us"] == sum(us for why, us in two["idle_why_us"].items() if why.startswith("host:")) + 48.0
    table = findings.messages()
    for lang, said in (("en", "no work had reached it"), ("zh", "还没有工作到达")):
        assert said in findings.say(trace_judge.judge(two)[1][0], lang)["sentence"]
        for one in (table["MIXED"], table["HOST_BOUND"], *table["HOST_BOUND"]["variants"].values()):
            sentence = one[lang]["sentence"]
            assert (said in sentence) is ("{starved_pct" in sentence), sentence
    row = profile_tables.steps_table(two).iloc[0]
    assert row["no_work_pct"] == pytest.approx(100 * 51 / 120, abs=0.001)


def test_the_verdict_and_its_numbers(two):
    assert (two["verdict"], two["cause"]) == ("HOST_BOUND", "DISPATCH")
    numbers, _ = trace_judge.judge(two)
    expected = {
        "kernels": 4, "launches": 4, "busy_pct": 20.0, "starved_pct": 56.667, "median_gap_us": 18.0,
        "kernels_per_token": 2, "launches_per_token": 3, "token_wall_us": 120.0, "gemm_mean_us": 14.0,
    }  # fmt: skip
    assert {key: numbers[key] for key in expected} == expected
    check_sums(two)


# --- the twelve edge cases of traces


def test_edge_1_no_device_events_are_unknown_not_zero():
    metrics = measured([make.mark("ProfilerStep#2", 0, 900), make.op("aten::mm", 10, 400)])
    numbers, found = trace_judge.judge(metrics)
    assert codes(metrics) == ["NO_DEVICE_DATA"]
    assert (numbers["window_us"], numbers["device_events"]) == (900.0, 0)
    for key in ("busy_us", "busy_pct", "kernels", "kernel_us", "starved_pct"):
        assert numbers[key] is None and numbers[f"{key}_reason"] == "no device events were recorded"
    assert "0.0 %" not in findings.say(found[0])["sentence"]


def test_edge_2_kernels_without_launch_count_as_busy_but_not_in_the_linked_window():
    events = [make.kernel(0, 40, 900), make.kernel(40, 90, 901), *make.launched(100, 112, 172, 1)]
    linked, device = measured(events, "linked"), measured(events, "device")
    assert (linked["window"]["dur_us"], linked["busy_us"], linked["device_events"]["n"]) == (72.0, 60.0, 1)
    assert (device["window"]["dur_us"], device["busy_us"], device["unlinked_busy_us"]) == (172.0, 150.0, 90.0)
    assert device["idle_why_us"] == {"host:launch_api": 5.0, "host:untracked": 10.0, "launch_latency": 7.0}
    assert "UNLINKED_DEVICE_TIME" in codes(device)


def test_edge_3_a_slice_of_a_longer_trace_is_incomplete_and_offers_the_device_window():
    events = [*make.launched(0, 9_000, 9_100, 1), *make.launched(20, 9_100, 9_300, 2)]
    metrics = measured(events)
    assert metrics["idle_why_us"] == {"unexplained_wait": 8795.0, "launch_latency": 200.0, "host:launch_api": 5.0}
    assert (metrics["verdict"], metrics["why"]) == ("INCOMPLETE", "SLICE")
    assert "--window device" in advice(metrics)
    assert measured(events, "device")["verdict"] == "DEVICE_BOUND"


def graph(at, correlation, kernels, name="hipGraphLaunch"):
    events = [make.call(name, at, at + 30, correlation)]
    return events + [make.kernel(at + 40 + 50 * i, at + 85 + 50 * i, correlation) for i in range(kernels)]


def test_edge_4_graph_replays_count_their_kernels_and_parts_that_are_missing_are_told():
    whole = measured([*graph(0, 1, 4), *graph(300, 2, 4)])
    assert whole["launches"]["graph_device_events"] == 8
    assert whole["idle_why_us"]["graph_internal"] == 6 * 5.0
    assert "GRAPH_LAUNCHES" in codes(whole) and "GRAPH_REPLAYS_DIFFER" not in codes(whole)
    short = measured([*graph(0, 1, 4), *graph(300, 2, 3)])
    lost = measured([make.mark("ProfilerStep#1", 0, 600), *graph(0, 1, 4), *graph(300, 2, 0)])
    assert short["replays"] == {"short": 1, "fewest": 3, "most": 4}
    assert lost["replays"]["short"] == 1
    assert "GRAPH_REPLAYS_DIFFER" in codes(short) and "GRAPH_REPLAYS_DIFFER" in codes(lost)


def test_edge_5_stream_capture_has_launches_without_kernels():
    events = [make.call("hipLaunchKernel", 10 * i, 10 * i + 4, i + 1) for i in range(9)]
    metrics = measured([*events, make.kernel(20, 60, 1)])
    assert (metrics["verdict"], metrics["why"]) == ("INCOMPLETE", "LAUNCHES_WITHOUT_KERNELS")


def test_edge_6_code_loading_in_the_first_launch_is_its_own_cause():
    events = [
        make.call("hipLaunchKernel", 0, 6_000, 1),
        make.kernel(6_010, 6_020, 1),
        *make.launched(6_030, 6_041, 6_060, 2),
    ]
    metrics = measured(events)
    assert metrics["launches"]["cold"] == {"n": 1, "us": 6000.0}
    assert (metrics["verdict"], metrics["cause"]) == ("HOST_BOUND", "CODE_LOAD")
    assert metrics["starved_by_us"]["code_load"] == 6000.0
    assert "once or twice before profiling" in advice(metrics)


def test_edge_7_a_blocking_copy_was_handed_over_when_its_call_began():
    events = [
        *make.launched(0, 12, 500, 1),
        make.call("hipMemcpyWithStream", 20, 640, 2, kind=2),
        make.copy(540, 600, 2),
    ]
    metrics = measured(events)
    assert metrics["idle_why_us"] == {"queued": 40.0, "launch_latency": 7.0, "host:launch_api": 5.0}
    assert metrics["verdict"] == "DEVICE_BOUND"


def test_edge_8_one_device_at_a_time_by_its_node_and_all_its_streams():
    events = [
        *make.launched(0, 10, 60, 1), *make.launched(6, 40, 90, 2, stream=3), *make.launched(20, 100, 120, 3),
        *make.launched(30, 35, 400, 4, device=9),
    ]  # fmt: skip
    metrics = measured(events)
    assert (metrics["window"]["device"], metrics["device_events"]["streams"]) == (1, 2)
    assert (metrics["busy_us"], metrics["device_time_sum_us"], metrics["overlap_factor"]) == (100.0, 120.0, 1.2)
    assert "SEVERAL_DEVICES" in codes(metrics)
    check_sums(metrics)


def test_edge_9_a_kernel_that_runs_over_the_next_one_of_its_stream_is_cut_there():
    events = [*make.launched(0, 10, 900, 1), *make.launched(6, 50, 60, 2), *make.launched(700, 712, 720, 3)]
    metrics = measured(events, "0,800")
    assert metrics["device_events"]["same_stream_overlaps"] == 1
    assert metrics["busy_us"] == 40.0 + 10.0 + 8.0
    assert "OVERLAPS_CLIPPED" in codes(metrics)
    check_sums(metrics)


def test_edge_10_the_critical_path_ends_with_what_finished_last():
    step = make.mark("ProfilerStep#1", 0, 200)
    host_last = measured([step, *make.launched(10, 20, 60, 1), make.op("aten::cat", 100, 200)])
    device_last = measured([make.mark("ProfilerStep#1", 0, 50), *make.launched(10, 20, 60, 1)])
    assert host_last["critical_path_us"] == {"host:aten": 100.0, "host:annotation": 95.0, "host:launch_api": 5.0}
    assert device_last["critical_path_us"] == {
        "device": 30.0, "host:annotation": 10.0, "launch_latency": 5.0, "host:launch_api": 5.0,
    }  # fmt: skip


def test_edge_11_names_with_quotes_and_backslashes_survive():
    text = make.written([make.mark("STEP", 0, 100), *make.launched(10, 20, 60, 1)]).decode()
    trace = traces.load(text.replace('"STEP"', '"run "quoted" in C:\\work\\new 1"').encode())
    assert 'run "quoted" in C:\\work\\new 1' in trace.names
    assert (len(trace), trace.counts["repaired"], trace.counts["dropped"]) == (3, 1, 0)


def test_edge_12_annotations_of_one_name_are_taken_together():
    events = [make.mark("decode", 0, 50), make.mark("decode", 60, 100), make.mark("prefill", -80, -5)]
    metrics = measured([*events, *make.launched(10, 20, 30, 1), *make.launched(65, 75, 95, 2)], "annotation:decode")
    assert (metrics["window"]["start_us"], metrics["window"]["dur_us"]) == (80.0, 100.0)
    assert [(step["kind"], step["wall_us"]) for step in metrics["steps"]] == [
        ("prefill", 75.0), ("token", 50.0), ("token", 40.0),
    ]  # fmt: skip


# --- windows


def test_auto_needs_exactly_one_kind_of_step():
    both = [make.mark("ProfilerStep#1", 0, 500), *make.two_tokens()]
    assert measured(both)["window"]["mode"] == "linked"
    assert measured(make.launched(0, 10, 20, 1))["window"]["mode"] == "linked"
    assert measured([make.mark("ProfilerStep#1", 0, 500), *make.launched(0, 10, 20, 1)])["window"]["dur_us"] == 500.0


def test_a_window_that_is_not_there_says_what_is():
    with pytest.raises(ValueError, match="decode_token#0, decode_token#1"):
        measured(make.two_tokens(), "annotation:warmup")
    with pytest.raises(ValueError, match="auto, linked, device, trace"):
        measured(make.two_tokens(), "everything")


def test_a_name_picks_itself_before_names_that_begin_with_it():
    steps = [make.mark(f"decode_step#{i}", 100 * i, 100 * i + 90) for i in range(12)]
    metrics = measured([*steps, *make.launched(110, 120, 130, 1)], "annotation:decode_step#1")
    assert metrics["window"]["dur_us"] == 90.0
    assert metrics["busy_us"] == 10.0


@pytest.mark.parametrize("mark", ["decode_step#0", "ProfilerStep#3"])
def test_a_step_without_length_is_no_window(mark):
    work = [*make.launched(0, 10, 20, 1), *make.launched(30, 40, 60, 2)]
    metrics = measured([make.mark(mark, 5, 5), *work])
    assert (metrics["window"]["mode"], metrics["window"]["dur_us"], metrics["busy_us"]) == ("linked", 60.0, 30.0)
    assert "busy_in_span_pct" not in metrics["steps"][0]
    with pytest.raises(readers.WindowError, match="takes no time"):
        measured([make.mark(mark, 5, 5), *work], f"annotation:{mark}")
    beside = [make.mark("decode_step#7", 0, 50), make.mark("decode_step#8", 90, 90)]
    assert measured([*beside, *work])["window"]["dur_us"] == 50.0


def test_work_without_length_gives_no_window_and_no_share():
    metrics = measured([make.mark("decode_step#0", 5, 5), make.kernel(5, 5, 1)], "device")
    numbers = trace_judge.judge(metrics)[0]
    assert (metrics["window"], metrics["verdict"], metrics["why"]) == (None, "INCOMPLETE", "NO_WINDOW")
    assert numbers["busy_pct"] is None and numbers["busy_pct_reason"]


# --- the rules of the verdict: every one can come out another way


def window(**changed):
    metrics = {"busy_pct": 40.0, "busy_us": 400.0, "unlinked_busy_us": 0.0, "cause": None, "idle_us": {"total": 600.0}}
    return {**metrics, "idle_why_us": {}, **changed}


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, ("MIXED", None)),
        ({"busy_pct": 85.0}, ("DEVICE_BOUND", None)),
        ({"busy_pct": 84.999}, ("MIXED", None)),
        ({"unlinked_busy_us": 201.0}, ("INCOMPLETE", "UNLINKED")),
        ({"unlinked_busy_us": 201.0, "busy_pct": 90.0}, ("DEVICE_BOUND", None)),
        ({"unlinked_busy_us": 200.0}, ("MIXED", None)),
        ({"cause": "SYNC"}, ("HOST_BOUND", None)),
        ({"idle_why_us": {"unexplained_wait": 360.0}}, ("INCOMPLETE", "SLICE")),
        ({"idle_why_us": {"unexplained_wait": 359.0}}, ("MIXED", None)),
        ({"idle_why_us": {"queued": 200.0, "graph_internal": 160.0}}, ("DEVICE_GAPS", None)),
        ({"idle_why_us": {"queued": 200.0, "graph_internal": 159.0}}, ("MIXED", None)),
    ],
)
def test_rules_of_the_verdict(changed, verdict):
    assert trace_judge.window_rule(window(**changed)) == verdict


@pytest.mark.parametrize(("empty", "verdict"), [(0, "MIXED"), (2, "MIXED"), (3, "INCOMPLETE"), (5, "INCOMPLETE")])
def test_more_launches_without_kernels_than_with_them_are_a_recording_that_lost_kernels(empty, verdict):
    work = [event for i in range(2) for event in make.launched(100 * i, 100 * i + 10, 100 * i + 20, i + 1)]
    lost = [make.call("hipLaunchKernel", 40 + 8 * i, 45 + 8 * i, 90 + i) for i in range(empty)]
    metrics = measured([make.mark("ProfilerStep#1", 0, 200), *work, *lost])
    assert metrics["verdict"] == verdict
    assert metrics["why"] == ("LAUNCHES_WITHOUT_KERNELS" if verdict == "INCOMPLETE" else None)


def test_operators_are_not_called_cpu_work_where_no_launch_was_recorded():
    operators = [make.op("aten::mm", 100 * i, 100 * i + 60) for i in range(8)]
    kernels = [make.kernel(100 * i + 50, 100 * i + 55, i + 1) for i in range(8)]
    step = make.mark("decode_step#0", 0, 800)
    assert "CPU_TENSOR_WORK" not in codes(measured([step, *operators, *kernels]))
    launch = make.call("hipLaunchKernel", 0, 5, 1)
    assert "CPU_TENSOR_WORK" in codes(measured([step, *operators, *kernels, launch]))


@pytest.mark.parametrize(
    ("parts", "length", "idle", "cause"),
    [
        ({"sync": 300, "launch": 100}, 1000, 500, "SYNC"),
        ({"sync": 150, "launch": 100}, 1000, 400, "SYNC"),
        ({"sync": 150, "launch": 99}, 1000, 400, None),  # under a quarter of the window
        ({"sync": 200, "launch": 99}, 1000, 500, None),  # under 60 % of the idle time
        ({"dispatch": 0}, 0, 0, None),
    ],
)
def test_the_host_is_the_limit_only_when_it_explains_the_idle_time(parts, length, idle, cause):
    assert trace_judge.cause(parts, length, idle) == cause


@pytest.mark.parametrize("cause", ["DISPATCH", "LAUNCH", "SYNC", "ALLOC", "CODE_LOAD"])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_cause_has_its_own_words(cause, lang):
    metrics = {**measured(make.two_tokens()), "cause": cause}
    said = findings.say(trace_judge.judge(metrics)[1][0], lang)
    assert "20.0 %" in said["sentence"] and said["advice"]


def test_launch_bound_is_said_only_of_short_kernels_and_an_empty_queue():
    short = [e for i in range(20) for e in make.launched(100 * i, 100 * i + 12, 100 * i + 20, i + 1)]
    spread = [e for i in range(20) for e in make.launched(100 * i, 100 * i + 8, 100 * i + 74, i + 1)]
    assert "LAUNCH_BOUND" in codes(measured(short))
    (bound,) = [one for one in trace_judge.judge(measured(short))[1] if one["code"] == "LAUNCH_BOUND"]
    for lang, said in (("en", "typically one is launched every"), ("zh", "通常每")):  # a median, which does not add up
        assert said in findings.say(bound, lang)["sentence"]
    assert "LAUNCH_BOUND" not in codes(measured(spread))


def test_cpu_tensors_and_costly_waits_are_noted_when_they_cost_a_percent():
    events = [
        make.mark("ProfilerStep#1", 0, 1000), make.op("aten::add", 100, 400), make.op("aten::view", 400, 440),
        *make.launched(500, 512, 520, 1), make.op("aten::nonzero", 530, 700),
        make.call("hipStreamSynchronize", 540, 690),
        *make.launched(710, 722, 730, 2),
    ]  # fmt: skip
    metrics = measured(events)
    assert metrics["no_launch_ops"] == {"aten::add": {"n": 1, "us": 300.0}}
    assert metrics["waits"][0]["operator"] == "aten::nonzero"
    assert {"CPU_TENSOR_WORK", "HIDDEN_SYNCS"} <= set(codes(metrics))


# --- further cases beside the checkout


OPEN = {
    "idle_why_us",
    "critical_path_us",
    "libraries",
    "names",
    "sync_ops",
    "copies",
    "no_launch_ops",
    "host_exclusive_pct",
}


def differences(expected, got, path=""):
    """Compare as far as something is expected: 0.01 for decimals, counts and words exactly, no further parts."""
    if isinstance(expected, dict):
        if not isinstance(got, dict):
            return [(path, expected, got)]
        renamed = {"code_load": "code-load"}
        got = {renamed.get(key, key): value for key, value in got.items()}
        found = [d for key, value in expected.items() for d in differences(value, got.get(key, 0), f"{path}.{key}")]
        extra = set(got) - set(expected) if path.rsplit(".", 1)[-1] in OPEN else set()
        return found + [(f"{path}.{key}", "not expected", got[key]) for key in extra if got[key]]
    if isinstance(expected, list):
        pairs = zip(expected, got, strict=False)
        found = [d for i, (e, g) in enumerate(pairs) for d in differences(e, g, f"{path}[{i}]")]
        return found + ([(path, len(expected), len(got))] if len(expected) != len(got) else [])
    if isinstance(expected, float) and isinstance(got, int | float):
        return [(path, expected, got)] if abs(expected - got) > 0.0101 else []
    if path == ".cause" and expected:
        expected = expected.upper().replace("-", "_")
    return [(path, expected, got)] if expected != got else []


def test_every_expected_value_of_the_recorded_traces(shared):
    expected = json.loads((shared / "traces" / "expected.json").read_text(encoding="utf-8"))
    assert len(expected) >= 24
    wrong = {}
    for key, values in expected.items():
        name, window = key.split("|")
        metrics = profiler.measure(traces.load(shared / "traces" / f"{name}.json.gz"), window)
        metrics["tokens"] = [step for step in metrics["steps"] if step["kind"] == "token"]
        check_sums(metrics)
        if found := differences(values, metrics):
            wrong[key] = found
    assert not wrong


# --- damaged files


VALUES = [None, -5, 0, 1e30, 1e-9, "12", "x", [], {}, True, -1e15, 2**70, "hipGraphLaunch", 0.0001]


@st.composite
def damaged(draw):
    """Cut, overwrite, remove or repeat bytes of a trace, or give its fields values that they should not have."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    events = make.two_tokens() + graph(240, 99, 3)
    for _ in range(draw(st.integers(0, 6))):
        changed = rng.choice(events)
        target = changed["args"] if rng.random() < 0.4 and isinstance(changed["args"], dict) else changed
        if target:
            target[rng.choice(sorted(target))] = rng.choice(VALUES)
    data = json.dumps(events).encode() if rng.random() < 0.2 else make.written(events)
    return with_odd_bytes(rng, data)


@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(damaged(), st.sampled_from(["auto", "linked", "device", "trace"]))
def test_damaged_traces_never_raise_and_their_parts_add_up(data, window):
    began = time.monotonic()
    metrics = profiler.measure(traces.load(data), window)
    numbers, found = trace_judge.judge(metrics)
    assert time.monotonic() - began < 5
    check_sums(metrics)
    json.dumps([numbers, metrics], allow_nan=False)
    for one in found:
        assert findings.say(one, "en")["sentence"] and findings.say(one, "zh")["sentence"]
    assert all(f"{key}_reason" in numbers for key, value in numbers.items() if value is None)
