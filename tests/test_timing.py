"""Intervals against tables and arithmetic; other work against a burner whose share is known."""

import math
import multiprocessing
import random
import statistics
import time

import psutil
import pytest

from rocmlab import timing


@pytest.mark.parametrize(("n", "rank"), [(5, 0), (6, 1), (8, 1), (9, 2), (10, 2), (15, 4), (20, 6), (30, 10)])
def test_interval_ranks_are_those_of_the_sign_test_table(n, rank):
    assert timing.interval_rank(n) == rank


def test_interval_ranks_of_many_samples_are_exact_and_near_the_normal_rule():
    """k is about n/2 - 0.98 sqrt(n); the probability beyond it, added up in whole numbers, is at most 2.5%."""
    for n in (100, 1001, 20_000):
        k = timing.interval_rank(n)
        assert abs(k - (n / 2 - 0.98 * n**0.5)) < 1.5
    n, k = 100, timing.interval_rank(100)
    tails = [2 * sum(math.comb(n, i) for i in range(below)) for below in (k, k + 1)]
    assert 20 * tails[0] <= 2**n < 20 * tails[1]


def test_median_interval_of_fifteen_known_samples():
    found = timing.median_interval([float(value) for value in range(15, 0, -1)])
    assert (found.median, found.low, found.high, found.n, found.enough) == (8.0, 4.0, 12.0, 15, True)


def test_few_samples_give_the_range_and_say_so():
    found = timing.median_interval([3.0, 1.0, 2.0])
    assert (found.median, found.low, found.high, found.enough) == (2.0, 1.0, 3.0, False)
    assert timing.median_interval([]) is None


def test_the_interval_covers_the_true_median_as_often_as_it_says():
    draw = random.Random(1)
    covered = 0
    for _ in range(1000):
        found = timing.median_interval([draw.expovariate(1.0) for _ in range(12)])
        covered += found.low <= 0.6931 <= found.high
    assert covered >= 940


def test_a_drift_that_both_arms_share_does_not_widen_the_ratio():
    below = [10.0 + step for step in range(12)]
    above = [2 * value for value in below]
    found = timing.ratio_interval(above, below)
    assert (found.median, found.low, found.high) == (2.0, 2.0, 2.0)


def test_a_machine_of_two_paces_does_not_bend_the_ratio():
    """Three blocks at one pace, three at the other, and one in which the pace changed between the arms: the ratio of
    medians sets the slow pace of one arm against the fast one of the other."""
    below = [20.0, 20.0, 20.0, 40.0, 40.0, 40.0, 40.0]
    above = [20.0, 20.0, 20.0, 20.0, 40.0, 40.0, 40.0]
    assert timing.ratio_interval(above, below).median == 1.0  # of medians: 0.5


def test_there_is_no_ratio_to_nothing():
    assert timing.ratio_interval([], []) is None
    assert timing.ratio_interval([1.0, 2.0], [1.0, 0.0]) is None  # a damaged record of others


def test_samples_of_two_runs_are_drawn_apart():
    assert timing.apart_interval([], [1.0]) is None
    few = timing.apart_interval([2.0, 3.0, 4.0], [1.0, 1.0, 2.0])
    assert (few.median, few.low, few.high, few.n, few.enough) == (3.0, 1.0, 4.0, 3, False)
    rising = [float(n) for n in range(1, 18)]
    found = timing.apart_interval(rising, rising)  # as blocks they would give 1 without any doubt
    assert found.median == 1.0 and found.low < 0.7 and found.high > 1.4 and found.n == 17
    assert timing.apart_interval(rising, [1.0] * 17) == timing.ratio_interval(rising, [1.0] * 17)


def test_a_ratio_of_noise_reaches_over_one():
    draw = random.Random(2)
    a, b = ([draw.gauss(10, 1) for _ in range(20)] for _ in range(2))
    found = timing.ratio_interval(a, b)
    assert found.low < 1 < found.high


def test_the_bootstrap_ends_where_its_exact_distribution_does():
    """Of 17 blocks drawn again the median is at most x(j) when nine or more draws are, each with probability j/17.

    That is 0.008 for x(4), 0.036 for x(5), 0.104 for x(6): 2.5% lies at x(5), 5% would lie at x(6).
    """
    wanted = {}
    for j in (4, 5, 6):
        wanted[j] = sum(math.comb(17, i) * (j / 17) ** i * (1 - j / 17) ** (17 - i) for i in range(9, 18))
    assert wanted[4] < 0.025 < wanted[5] < 0.05 < wanted[6]
    found = timing.ratio_interval([float(n) for n in range(1, 18)], [1.0] * 17)
    assert (found.median, found.low, found.high, found.n, found.enough) == (9, 5, 13, 17, True)


def test_a_gap_no_wider_than_a_side_is_a_tail_and_no_second_state():
    assert timing.two_states([10, 11, 12, 13, 14, 15, 20, 21, 22]) is None  # 5 apart, and 5 wide
    assert timing.two_states([10, 11, 12, 13, 14, 15, 20.5, 21, 22]) is not None


def test_two_states_need_an_empty_middle_and_three_samples_each():
    found = timing.two_states([20.0, 20.5, 21.0, 30.0, 30.5, 31.0])
    assert (found.low, found.high, found.n_low, found.n_high, found.cut) == (20.5, 30.5, 3, 3, 25.5)
    assert timing.two_states([20.0, 20.5, 21.0, 21.2, 30.0, 31.0]) is None  # two outliers are no state
    assert timing.two_states([20.0, 22.0, 24.0, 26.0, 28.0, 30.0]) is None  # a slope has no empty middle
    assert timing.two_states([20.0, 20.1, 20.2, 21.0, 21.1, 21.2]) is None  # too near to matter


def test_spread_is_the_middle_half_over_the_median():
    samples = [90.0, 95.0, 100.0, 105.0, 110.0]
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    assert timing.spread_pct(samples) == pytest.approx(100 * (high - low) / middle) == pytest.approx(10.0)
    assert timing.spread_pct([1.0, 2.0]) is None


def _burn(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_other_work_sees_a_process_that_takes_one_core():
    burner = multiprocessing.get_context("spawn").Process(target=_burn, args=(6.0,))
    burner.start()
    while psutil.Process(burner.pid).cpu_times().user < 0.3:
        time.sleep(0.05)
    with timing.OtherWork() as others:
        time.sleep(1.5)
    burner.kill()
    burner.join()
    assert others.pct > 0.6 * 100 / psutil.cpu_count()


def test_own_work_is_not_counted_as_other_work():
    began = time.process_time()
    with timing.OtherWork() as others:
        before = psutil.cpu_times()
        _burn(1.5)
        after = psutil.cpu_times()
    share = 100 / (1.5 * psutil.cpu_count())
    whole = share * (sum(after) - sum(before) - (after.idle - before.idle))
    assert others.pct == pytest.approx(whole - share * (time.process_time() - began), abs=6)


def test_a_short_interval_gives_null_not_zero():
    with timing.OtherWork() as others:
        pass
    assert others.pct is None


def test_load_names_its_units():
    found = timing.load()
    assert found["cores"] >= 1
    assert found["memory_free_bytes"] > 1e6
