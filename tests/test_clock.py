"""Clocks from planted readings whose right choice is known; ramps and slow-downs from series made by arithmetic."""

import math
import random
import time

import pytest
from spoken import codes

from rocmlab import clock, drift, findings

# ---- which clock


def record(long_events=60.0, tiny=(0.006, 0.05, 0.4), **changes):
    """Events of a healthy card: tiny work, then long work that takes 60 ms by the wall clock."""
    rows = [
        {"work": f"{n} tiny", "launches": n, "event_ms": [ms] * 20, "wall_ms": [ms + 0.02] * 20}
        for n, ms in zip((1, 8, 64), tiny, strict=True)
    ]
    rows.append({"work": "long", "launches": 100, "event_ms": [long_events] * 5, "wall_ms": [60.02] * 5})
    found = {"tick_ns": 100, "backwards": 0, "wait_ms": 0.004, "events": {"rows": rows}}
    return found | changes


def test_healthy_events_are_used_down_to_the_smallest_work():
    found = clock.choose(record())
    assert (found.clock, found.smallest_ms, found.negative, found.zero) == ("events", 0.006, 0, 0)
    assert codes(clock.judge(record())) == ["CLOCK_CHOSEN"]


def test_negative_event_times_are_dropped_counted_and_named_and_raise_the_smallest_interval():
    planted = record()
    planted["events"]["rows"][0]["event_ms"] = [-1.834, 0.006, 0.0, 0.006] * 5
    planted["events"]["rows"][1]["event_ms"][3] = -0.2
    found = clock.choose(planted)
    assert (found.clock, found.smallest_ms, found.negative, found.zero) == ("events", 0.4, 6, 5)
    said = clock.judge(planted)
    assert codes(said) == ["EVENT_TIMES_IMPOSSIBLE", "CLOCK_CHOSEN"]
    assert "6 negative and 5 zero" in findings.say(said[0])["sentence"]


def test_negative_times_even_on_long_work_leave_the_wall_clock():
    planted = record()
    planted["events"]["rows"][-1]["event_ms"] = [60.0, -60.0, 60.0, 60.0, 60.0]
    assert clock.choose(planted).clock == "perf_counter"


@pytest.mark.parametrize("ms", [30.0, 66.0, 0.06])
def test_events_that_disagree_with_the_wall_clock_on_long_work_are_not_used(ms):
    found = clock.choose(record(long_events=ms))
    assert (found.clock, found.smallest_ms) == ("perf_counter", 0.04)  # ten waits of 0.004 ms
    assert "EVENTS_DISAGREE" in codes(clock.judge(record(long_events=ms)))


def test_readings_that_scatter_are_no_measurement():
    planted = record()
    planted["events"]["rows"][0]["event_ms"] = [0.002, 0.012] * 10
    assert clock.choose(planted).smallest_ms == 0.05


def test_events_longer_than_the_wall_time_around_them_are_not_believed():
    planted = record(tiny=(0.5, 0.05, 0.4))
    planted["events"]["rows"][0]["wall_ms"] = [0.02] * 20
    assert clock.choose(planted).smallest_ms == 0.05


def test_the_wall_clock_needs_a_hundred_ticks_and_ten_waits():
    assert clock.choose({"tick_ns": 100, "wait_ms": 0.0001, "events": None}).smallest_ms == pytest.approx(0.01)
    assert clock.choose({"tick_ns": 15_600_000, "wait_ms": 0.0, "events": None}).smallest_ms == pytest.approx(1560)
    assert "CLOCK_RAN_BACKWARDS" in codes(clock.judge({"tick_ns": 100, "wait_ms": 0, "events": None, "backwards": 2}))


def test_this_machine_s_clock_measures_a_sleep():
    found = clock.qualify("cpu")
    assert found["events"] is None and found["tick_ns"] > 0 and found["backwards"] == 0
    assert clock.timed(lambda: time.sleep(0.03), "cpu") == pytest.approx(30, abs=25)


@pytest.mark.parametrize(
    ("blocks", "kept"),
    [([60, 40, 20, 20, 1], 4), ([60, 58, 1], 2), ([60, 56, 54, 1], 3), ([20, 90, 1], 2), ([30, 20, 25, 1], 3)],
)
def test_warm_goes_on_while_a_block_is_five_percent_faster_than_the_best_before(monkeypatch, blocks, kept):
    left = iter(blocks)
    monkeypatch.setattr(clock, "timed", lambda task, device: next(left))
    assert clock.warm(lambda: None, "cpu") == blocks[:kept]


def test_warm_is_bounded_in_count_and_time():
    left = iter([0.06 / 1.5**n for n in range(20)])
    assert len(clock.warm(lambda: time.sleep(next(left)), "cpu", blocks=3)) == 3
    assert len(clock.warm(lambda: time.sleep(0.05), "cpu", limit_s=0.01)) == 1


# ---- drift


def steady(n=60, level=33.0, sigma=0.1, seed=0):
    draw = random.Random(seed)
    return [draw.gauss(level, sigma) for _ in range(n)]


def test_a_ramp_ends_where_it_was_planted():
    calls = [33.0 + 0.8 * (15 - i) for i in range(15)] + steady(45)
    found = drift.ramp(calls)
    assert found.steady_from == pytest.approx(16, abs=1)
    assert found.steady_ms == pytest.approx(33.0, abs=0.1)
    assert found.before_ms == pytest.approx(33.0 + 0.8 * 8, abs=0.5)
    assert codes(drift.judge(calls)[1]) == ["CLOCK_RAMP"]


def test_neither_zero_nor_less_is_a_time():
    assert clock.kept([0.0, 1.0, -1.8, 2.0, 0.0]) == ([1.0, 2.0], 1, 2)
    assert clock.kept([]) == ([], 0, 0)


@pytest.mark.parametrize(
    "calls",
    [
        # 3 of the scatter of what follows (0.3), falling, 8% slower: noise until it is 4
        [10.9, 10.9, 10.9, 10.8, 10.8, 10.8, *[10.0, 10.2, 9.8] * 6],
        steady(),
        steady(sigma=3.0),
        [90.0, 45.0, *steady()],  # compilation, not a clock
        [33.0 + 0.3 * i for i in range(60)],  # slows down
        steady()[:8],
        [33.0] * 60,
        [36.0, 33.0] * 30,
        [],
    ],
)
def test_no_ramp(calls):
    assert drift.ramp(calls) is None


def test_false_alarms_on_plain_noise_are_rare():
    runs = [drift.judge(steady(sigma=2.0, seed=seed))[1] for seed in range(300)]
    assert sum(bool(found) for found in runs) <= 3


HOT = [{"call": 0, "temp_c": 50, "sclk_mhz": 2500}, {"call": 59, "temp_c": 96, "sclk_mhz": 2100}]
CALM = [{"call": 0, "temp_c": 50, "sclk_mhz": 2500}, {"call": 59, "temp_c": 51, "sclk_mhz": 2500}]


@pytest.mark.parametrize(
    ("sensor", "code"),
    [
        (HOT, "THROTTLING"),
        ([{"temp_c": 60}, {"temp_c": 80}], "THROTTLING"),
        ([{"sclk_mhz": 2500}, {"sclk_mhz": 2000}], "THROTTLING"),
        (CALM, "SLOWS_DOWN"),
        ([{"temp_c": 50, "sclk_mhz": 2500}, {"temp_c": 70, "sclk_mhz": 2500}], "SLOWS_DOWN"),  # warm only
        (None, "SLOWS_DOWN"),
        ([{"temp_c": 60}], "SLOWS_DOWN"),
        ("nonsense", "SLOWS_DOWN"),
    ],
)
def test_slower_by_a_tenth_is_throttling_only_where_heat_or_clock_agree(sensor, code):
    calls = [30.0 + 3.0 * min(1, max(0, (i - 20) / 20)) + 0.05 * math.sin(i) for i in range(60)]
    numbers, found = drift.judge(calls, sensor)
    assert codes(found) == [code]
    assert numbers["slower_pct"] == pytest.approx(10.0, abs=0.5)
    said = findings.say(found[0])["sentence"]
    assert "10." in said or "9." in said


def test_a_sensor_that_is_missing_is_null_with_a_reason():
    calls = [30.0] * 20 + [31.5] * 20 + [33.0] * 20
    numbers, found = drift.judge(calls, [{"temp_c": 60}, {"temp_c": 80}])
    assert numbers["sclk_first_mhz"] is None and numbers["sclk_first_mhz_reason"]
    assert "unknown" in findings.say(found[0])["sentence"]


def test_a_slow_down_within_the_scatter_or_below_five_percent_is_none():
    assert drift.slowing([30.0 + 0.02 * i for i in range(60)]) is None
    assert drift.slowing(steady(level=30, sigma=4.0)) is None


def test_a_ramp_does_not_hide_what_follows():
    calls = [40.0 - 0.7 * i for i in range(10)] + [33.0] * 30 + [33.0 + 0.2 * i for i in range(30)]
    assert codes(drift.judge(calls, HOT)[1])[-1] == "THROTTLING"
