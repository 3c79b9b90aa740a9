"""The clock as a suspect: low, full, falling or not told, on the side that sets the pace or on the other."""

import dataclasses

import machines as m
import pytest
from machines import changed

from rocmlab import clock_readings, conditions, hypotheses, suspects_clock, words

S, R, U = "supported", "refuted", "undecided"


def judged(machine):
    return suspects_clock.clocks(machine)


def busy_card(**fields):
    """Slow kernels, device-bound: 33 ms, of which moving the bytes takes 4.6; a reading after each text."""
    return changed(m.fallback(), lengths=m.sensed(m.lengths(33.0), **fields), batches=[])


def at_roof(**fields):
    """A card at 97% of its memory's speed: next to nothing of its step goes with the clock of its cores."""
    return changed(m.gfx1032(), lengths=m.sensed(m.lengths(4.73), **fields), batches=[])


def host_bound(use=17.0, **fields):
    """The GPU works 4.5 of 18.9 ms."""
    return changed(m.h200(), lengths=m.sensed(m.lengths(18.9), use, **fields), batches=[])


def slower(rows, times=1.3):
    """The last third of the blocks takes longer."""
    for row in rows:
        if row.get("visit") == "steady" and row["block"] >= 4:
            stamps = row["token_stamps_s"]
            row["token_stamps_s"] = [stamps[0] + times * (one - stamps[0]) for one in stamps]
    return rows


def slowing(times=1.3, **fields):
    return changed(m.fallback(), lengths=m.sensed(slower(m.lengths(33.0), times), **fields), batches=[])


def without_sensors(rows):
    return [{key: value for key, value in row.items() if key != "sensor"} for row in rows]


def on_plan(machine, **power):
    return dataclasses.replace(machine, snapshot=m.snapshot(power=power))


def by_block(early, late):
    return lambda block: late if block is not None and block >= 4 else early


def slow_core(mhz):
    return changed(m.slow_cpu(), lengths=m.sensed(m.lengths(57.0, device="cpu", dtype="float32"), host_mhz=mhz))


SAVER = {"profile": "low-power"}
TABLE = [
    # a clock that stays low under load, on the side that sets the pace
    ("low", S, lambda: busy_card(sclk_mhz=510.0)),
    ("low, held by heat", S, lambda: busy_card(sclk_mhz=1200.0, limited_by=["heat"], temp_c=105.0)),
    ("low by archs.yaml", S, lambda: dataclasses.replace(busy_card(sclk_mhz=510.0, sclk_max_mhz=None), boost_mhz=2635)),
    ("low against the highest seen", S,
     lambda: changed(busy_card(sclk_max_mhz=None, sclk_mhz=700.0),
                     generation=[{"device": "cuda:0", "sensor": m.reading(5.0, sclk_max_mhz=None)}])),
    ("memory low", S, lambda: at_roof(mclk_mhz=96.0)),
    ("CPU core low, and the host binds", S, lambda: host_bound(host_mhz=800.0)),
    ("CPU core low on a CPU", S, lambda: slow_core(1400.0)),
    # at full clock
    ("full", R, busy_card),
    ("full, though it saves by plan", R, lambda: on_plan(busy_card(), **SAVER)),
    ("full at its power limit", R, lambda: busy_card(sclk_mhz=2300.0, power_w=159.0, limited_by=["power cap"])),
    ("full, and the host binds", R, host_bound),
    ("full core on a CPU", R, lambda: slow_core(4400.0)),
    ("low core clock of a card at its memory's roof", R, lambda: at_roof(sclk_mhz=1500.0)),
    ("low, while the GPU is idle and the core that binds is not", R, lambda: host_bound(sclk_mhz=510.0)),
    # no sensors, or not the one that matters
    ("no sensors", U, m.fallback),
    ("no sensors, by a saving plan", U, lambda: on_plan(m.fallback(), **SAVER)),
    ("nothing at all", U, lambda: changed(m.fallback(), lengths=[], batches=[], generation=[])),
    ("no highest clock", U, lambda: busy_card(sclk_max_mhz=None)),
    ("stuck low and nothing to compare with", U, lambda: busy_card(sclk_max_mhz=None, sclk_mhz=500.0)),
    ("the core that binds is not told", U, lambda: host_bound(host_mhz=None, sclk_mhz=510.0)),
    ("no reading under load", U, lambda: busy_card(use=20.0, sclk_mhz=510.0)),
    ("low, without a ledger", U, lambda: dataclasses.replace(busy_card(sclk_mhz=510.0), account=None)),
    ("low, and both sides set the pace", U,
     lambda: changed(busy_card(sclk_mhz=510.0), account={"regime": "mixed", "binding": None})),
    ("neither", U, lambda: slow_core(3300.0)),  # 70% of what one core alone may reach
    ("scattered", U, lambda: busy_card(sclk_mhz=lambda block: 2600.0 if (block or 0) % 2 else 1200.0)),
    # it falls with heat, or only gets slower
    ("falls", S, lambda: slowing(sclk_mhz=by_block(2600.0, 1900.0), temp_c=by_block(60.0, 95.0))),
    ("heat as the driver says, without a clock", S, lambda: slowing(sclk_mhz=None, limited_by=["heat"])),
    ("slower at a steady full clock", U, slowing),
    ("slower and warmer at a steady clock", U, lambda: slowing(temp_c=by_block(60.0, 80.0))),
    ("slower, without sensors", U,
     lambda: changed(m.fallback(), lengths=slower(m.lengths(33.0)), batches=[], generation=[])),
    ("falls by little", R, lambda: slowing(1.08, sclk_mhz=by_block(2600.0, 2400.0))),
]  # fmt: skip


@pytest.mark.parametrize(("wanted", "machine"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_the_clock_comes_out_as_the_machine_is(wanted, machine):
    found = judged(machine())
    assert found.verdict == wanted, found.evidence["en"]
    for lang in words.LANGUAGES:
        assert found.evidence[lang] and found.reversal[lang] and "{" not in found.evidence[lang]
    if found.span and found.step_ms:
        assert 0 <= found.span.low <= found.span.ms <= found.span.high <= 1.001 * found.step_ms
    assert wanted != S or found.span.ms > 0


def test_what_is_claimed_is_the_device_s_time_above_its_bytes_and_no_more():
    found = judged(busy_card(sclk_mhz=1347.0))  # half of 2694
    floor = m.WEIGHTS / 260.0 / 1e6
    assert found.span.ms == pytest.approx((0.98 * 33.0 - floor) / 2, rel=0.01)
    assert "GPU clock 1,347 of 2,694 MHz (50%)" in found.evidence["en"] and "at most 13.9 ms" in found.evidence["en"]
    memory = judged(at_roof(mclk_mhz=500.0))
    assert memory.span.ms == pytest.approx(floor / 2, rel=0.01) and "memory clock 500 of" in memory.evidence["en"]


def test_a_core_that_binds_costs_the_host_s_time_and_never_more_than_the_step():
    found = judged(host_bound(host_mhz=940.0))  # a fifth of 4700
    assert found.span.ms == pytest.approx(18.3 * 0.8, rel=0.01)
    longer = changed(host_bound(host_mhz=47.0), account={"quantities": {"T": m.quantity(18.9), "H": m.quantity(30.0)}})
    assert judged(longer).span.high <= 18.9


def test_a_low_clock_of_an_idle_gpu_is_named_and_is_no_fault():
    found = judged(host_bound(sclk_mhz=510.0))
    assert found.verdict == R and found.span.ms == 0
    assert "in use only 17% of the time" in found.evidence["en"] and "no fault by itself" in found.evidence["en"]
    assert "in use" not in judged(host_bound()).evidence["en"]  # a full clock needs no excuse


def test_the_evidence_names_what_holds_the_clock_down():
    said = judged(busy_card(sclk_mhz=1200.0, limited_by=["heat (hardware)"], temp_c=105.0)).evidence
    assert "limited by heat, temperature at most 105 °C" in said["en"] and "过热" in said["zh"]
    power = judged(busy_card(sclk_mhz=1200.0, power_w=159.0)).evidence["en"]
    assert "limited by power" in power and "heat" not in power
    assert 'on the power plan "low-power"' in judged(on_plan(busy_card(sclk_mhz=900.0), **SAVER)).evidence["en"]
    assert "on battery" in judged(on_plan(busy_card(sclk_mhz=900.0), plugged=False)).evidence["en"]


def test_a_fall_is_a_share_of_the_step_with_an_interval():
    found = judged(slowing(sclk_mhz=by_block(2600.0, 1900.0)))
    assert found.span.ms == pytest.approx(33.0 * (1 - 1 / 1.3), rel=0.02)
    assert found.span.low < found.span.ms < found.span.high
    assert "from 2,600 to 1,900 MHz" in found.evidence["en"]


def test_readings_that_do_not_tell_a_field_are_unknown_and_never_0():
    nothing = busy_card(**dict.fromkeys(("sclk_mhz", "mclk_mhz", "temp_c", "host_mhz", "power_w")))
    assert clock_readings.device(nothing) is None and clock_readings.memory(nothing) is None
    assert judged(nothing).verdict == U and "0 MHz" not in judged(nothing).evidence["en"]


def test_a_steady_load_clears_a_card_but_convicts_none():
    def loaded(mhz):
        rows = [{"device": "cuda:0", "phase": "sustained", **m.reading(sclk_mhz=mhz)} for _ in range(6)]
        return changed(m.fallback(), sensors=rows, lengths=m.lengths(33.0))

    assert judged(loaded(2600.0)).verdict == R
    assert judged(loaded(1500.0)).verdict == U  # training at its power limit says nothing of decode


def test_a_card_that_is_low_between_texts_and_full_under_a_steady_load_may_only_rest():
    def loaded(mhz):
        rows = [{"device": "cuda:0", "phase": "sustained", **m.reading(sclk_mhz=mhz)} for _ in range(6)]
        return changed(busy_card(sclk_mhz=510.0), sensors=rows)

    assert judged(loaded(2600.0)).verdict == U and "may rest" in judged(loaded(2600.0)).evidence["en"]
    assert judged(loaded(520.0)).verdict == S


def test_readings_of_another_device_say_nothing():
    other = changed(busy_card(), lengths=m.lengths(33.0), generation=[
        {"device": "cpu", "sensor": m.reading(sclk_mhz=500.0, host_mhz=500.0)} for _ in range(9)])  # fmt: skip
    assert judged(other).verdict == U


def test_powersave_is_no_fault_where_the_driver_raises_the_clock_all_the_same():
    def codes(**power):
        return [one["code"] for one in conditions.power({"power": power})]

    assert codes(governor="powersave", governor_driver="acpi-cpufreq") == ["POWER_SAVING"]
    assert codes(governor="powersave") == ["POWER_SAVING"]
    assert codes(governor="powersave", governor_driver="intel_pstate") == []
    assert codes(governor="powersave", profile="low-power", governor_driver="amd-pstate-epp") == ["POWER_SAVING"]


def test_the_clock_stands_in_its_place_among_the_verdicts():
    first = hypotheses.judge(busy_card(sclk_mhz=510.0))[0]
    assert first.suspect in ("clocks", "slow_products") and first.share_pct < 100
