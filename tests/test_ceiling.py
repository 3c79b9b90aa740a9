"""The ceiling from rows of known rates; a spill, an impossible rate and a cache planted; one real measurement."""

import pytest
import sweeps
from spoken import codes

from rocmlab import ceiling, clock, findings, results, roof

torch = pytest.importorskip("torch")

CARD = {256: (900.0, 950.0), 512: (220.0, 240.0), 1024: (225.0, 245.0), 2048: (224.0, 246.0)}


def test_the_ceiling_is_the_better_of_both_past_the_caches():
    found = ceiling.bandwidth(sweeps.bandwidth(CARD))
    assert (found.way, found.bytes, found.gb_s) == ("read", 2048 << 20, pytest.approx(246.0, rel=0.002))
    assert found.interval.enough and found.interval.low < 246.0 < found.interval.high


def test_a_size_that_a_cache_holds_is_no_ceiling_and_alone_gives_none():
    assert ceiling.bandwidth(sweeps.bandwidth({64: (900.0, 950.0), 256: (800.0, 810.0)})) is None
    assert ceiling.bandwidth([]) is None


def test_a_rate_above_the_stated_peak_is_rejected_and_named():
    rows = sweeps.bandwidth(CARD | {4096: (9000.0, 240.0)})
    assert ceiling.bandwidth(rows, 280.0).gb_s == pytest.approx(246.0, rel=0.002)
    said = roof.judge(rows, 280.0)
    assert codes(said) == ["IMPOSSIBLE_RATE", "BANDWIDTH_CEILING"]
    assert "synchronise" in findings.say(said[0])["advice"]
    assert codes(roof.judge(sweeps.bandwidth(CARD), 280.0)) == ["BANDWIDTH_CEILING"]  # the cache's rate is no fault


def test_a_spill_is_found_at_its_size():
    rows = sweeps.bandwidth(CARD | {4096: (222.0, 243.0), 6144: (14.0, 12.0), 7000: (13.0, 11.0)})
    found = ceiling.spill(rows)
    assert (found["bytes"], found["way"]) == (6144 << 20, "read")
    assert found["gb_s"] == pytest.approx(12.0, rel=0.01) and found["usual_gb_s"] == pytest.approx(244, rel=0.01)
    said = next(one for one in roof.judge(rows, None) if one["code"] == "MEMORY_SPILLED")
    assert "6.00 GiB" in findings.say(said)["sentence"]
    assert ceiling.bandwidth(rows).gb_s == pytest.approx(246.0, rel=0.002)


def test_no_spill_without_a_fall_nor_on_the_cpu_nor_out_of_a_cache():
    assert ceiling.spill(sweeps.bandwidth(CARD)) is None
    lower = {512: (240.0, 240.0), 2048: (240.0, 240.0), 6144: (150.0, 150.0)}
    assert ceiling.spill(sweeps.bandwidth(lower)) is None, "62%: memory behind PCIe is less than half as fast"
    falling = {512: (40.0, 60.0), 1024: (10.0, 12.0)}
    assert ceiling.spill(sweeps.bandwidth(falling, device="cpu")) is None
    assert ceiling.spill(sweeps.bandwidth({128: (1900.0, 1900.0), 512: (240.0, 240.0)})) is None


def test_sizes_that_did_not_fit_or_have_no_time_are_left_out():
    rows = [*sweeps.bandwidth(CARD), {"way": "read", "bytes": 8 << 30, "samples_ms": [], "error": "out of memory"}]
    rows.append({"way": "copy", "bytes": 8 << 30, "samples_ms": [-1.8, 0.0]})
    assert ceiling.bandwidth(rows).bytes == 2048 << 20
    assert ceiling.spill(rows) is None


# ---- what is the roof?


def test_the_roof_is_measured_else_stated_else_none_and_says_which():
    rows = sweeps.bandwidth(CARD)
    assert roof.roof(rows, 280.0).kind == "measured"
    assert roof.roof([], 280.0) == roof.Roof(280.0, "stated")
    nothing = roof.roof([], None)
    assert nothing.gb_s is None and nothing.reason


def test_a_model_that_a_cache_may_hold_has_no_memory_roof():
    rows = sweeps.bandwidth(CARD)
    assert roof.roof(rows, None, 300e6).gb_s is None  # the measured 256 MiB run from a cache
    assert roof.roof(rows, None, 1.2e9).gb_s == pytest.approx(246.0, rel=0.002)
    assert roof.roof(rows, None, 1e5).gb_s is None  # smaller than all that was measured


def test_a_ceiling_of_the_cpu_taken_while_others_worked_is_none_and_says_why():
    rows = [row | {"others_cpu_pct": 40.0} for row in sweeps.bandwidth({512: (8.0, 8.0)}, device="cpu")]
    found = roof.roof(rows, None, 1e9)
    assert found.gb_s is None and "40%" in found.reason["en"] and "40%" in found.reason["zh"]
    assert "not used" in findings.say(roof.judge(rows, None)[0])["sentence"]
    calm = [row | {"others_cpu_pct": 3.0} for row in rows]
    assert roof.roof(calm, None, 1e9).kind == "measured"
    card = [row | {"device": "cuda:0"} for row in rows]  # a card's own memory does not care
    assert roof.roof(card, None, 1e9).kind == "measured"


def test_the_stated_peak_is_that_of_the_very_card():
    probe = {"devices": [{"index": 0, "name": "AMD Radeon RX 6650 XT", "gcnArchName": "gfx1032"}]}
    subject = {"index": 0, "arch": "gfx1032", "name": "AMD Radeon RX 6650 XT", "memory_bytes": 8 << 30}
    assert roof.stated(probe, subject) == pytest.approx(280, abs=1)
    assert roof.stated({}, {"index": None, "arch": "cpu", "name": "Some processor"}) is None


# ---- measured here


def test_this_machine_s_rates_are_those_of_an_independent_copy(tmp_path, monkeypatch):
    monkeypatch.setattr(ceiling, "sizes", lambda device: [64 << 20])
    ceiling.measure(str(results.start("04", str(tmp_path)).path), "04", "1", "cpu", 20)
    rows = results.rows(tmp_path, "ceiling")
    assert [row["way"] for row in rows] == ["copy", "read"]
    assert all(len(row["samples_ms"]) >= 3 and row["clock"] == "perf_counter" for row in rows)
    source, target = torch.ones(8 << 20), torch.empty(8 << 20)
    own = min(clock.timed(lambda: target.copy_(source), "cpu") for _ in range(8))
    assert max(rows[0]["samples_ms"]) > 0.2 * own  # not a copy that never happened
    assert len(results.rows(tmp_path, "clock")) == 1


def test_sizes_grow_fourfold_and_leave_the_machine_its_memory(monkeypatch):
    import psutil

    class Memory:
        available = 3 << 30

    monkeypatch.setattr(psutil, "virtual_memory", Memory)
    assert [size >> 20 for size in ceiling.sizes("cpu")] == [16, 64, 256]
    Memory.available = 64 << 30
    assert [size >> 20 for size in ceiling.sizes("cpu")] == [16, 64, 256, 1024]


def test_a_card_is_filled_to_what_is_free_so_that_a_spill_shows(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (int(7.2 * 2**30), 8 << 30))
    found = [size >> 20 for size in ceiling.sizes("cuda:0")]
    assert found[:-1] == [16, 64, 256, 1024, 4096] and found[-1] == int(0.85 * 7.2 * 1024)


def test_a_size_beyond_all_memory_is_a_row_that_says_why():
    rows = ceiling.one_size("cpu", 1 << 50, clock.Choice("perf_counter", 0.01, 0, 0, None, ""))
    assert all(row["samples_ms"] == [] and "memory" in row["error"].lower() for row in rows)


def test_a_later_notebook_takes_the_ceiling_of_its_run(tmp_path, monkeypatch):
    run = results.start("05", str(tmp_path))
    run.append("ceiling", sweeps.bandwidth({1024: (40.0, 50.0)}, device="cpu"))
    monkeypatch.setattr(ceiling.isolate, "call", None)  # a second measurement would fail here
    assert ceiling.study(run, {"device": "cpu"}, limit_s=1, reuse=True) == []
