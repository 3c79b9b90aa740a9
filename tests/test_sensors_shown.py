"""Every notebook that times something takes readings beside it, and says what heat, a clock or memory did to it."""

from pathlib import Path

import machines as m
import pytest
import sweeps
from spoken import codes

from rocmlab import batch_judges, curve_judges, results, sensor_judges, sensors
from rocmlab.sections import experiments, profiler

ROOT = Path(__file__).resolve().parent.parent
GIB = 2**30
HOT = {"limited_by": ["heat"], "temp_c": 105.0}


def full(spilled_gib):
    return {"memory_used_bytes": 7.9 * GIB, "memory_total_bytes": 8.0 * GIB, "spilled_bytes": spilled_gib * GIB}


def sweep_rows(**late):
    """Batches with a reading each; the later half may say otherwise."""
    rows = sweeps.batches({1: 20.0, 8: 20.5})
    places = [n for n, row in enumerate(rows) if row.get("visit") == "steady"]
    for place, number in enumerate(places):
        rows[number] |= {"sensor": m.reading(**(late if 2 * place >= len(places) else {}))}
    return rows


def test_a_sweep_names_heat_and_a_batch_that_was_pushed_out_of_the_card():
    assert batch_judges.judge_sensors(sweep_rows(), "GPU") == []
    assert codes(batch_judges.judge_sensors(sweep_rows(**HOT), "GPU")) == ["HEAT_LIMIT"]
    rows = sweep_rows()
    for row in rows:
        if row.get("sensor"):
            row["sensor"] |= full(1.5 if row.get("beside") or row["batch"] == 8 else 0.1)
    assert codes(batch_judges.judge_sensors(rows, "GPU")) == ["SPILL_SEEN"]
    assert batch_judges.judge_sensors([{"kind": "item", "error": "out of memory"}], "GPU") == []


def clean(times, **last):
    rows = [{"what": "steps", "arm": "clean", "itl_ms": [20.0 * one] * 6, "sensor": m.reading()} for one in times]
    rows[-1]["sensor"] |= last
    return [*rows, {"what": "steps", "arm": "profiled", "itl_ms": [90.0] * 6}]


def test_the_profiler_s_clean_steps_are_watched_and_the_profiled_ones_are_not():
    assert profiler.judge_sensors(clean([1.0, 1.0, 1.0])) == []
    assert codes(profiler.judge_sensors(clean([1.0, 1.1, 1.2], sclk_mhz=2000.0))) == ["THROTTLING"]
    assert codes(profiler.judge_sensors(clean([1.0, 1.1, 1.2]))) == ["SLOWS_DOWN"]


def test_experiments_and_the_ledger_say_it_once():
    def steps(*readings, late=1.0):
        return [{"quantity": "T", "samples_ms": [20.0] * 8 + [20.0 * late] * 8},
                {"quantity": "conditions", "sensors": list(readings)}]  # fmt: skip

    calm = [{"name": "graph", "sensor": m.reading()}, {"name": "late", "status": "SKIPPED"}]
    hot = [{"name": "graph", "sensor": m.reading(**HOT)}]
    assert experiments.judge_sensors(calm, steps(m.reading(), m.reading())) == []
    assert codes(experiments.judge_sensors(hot, steps(m.reading(**HOT)))) == ["HEAT_LIMIT"]
    falls = steps(m.reading(), m.reading(sclk_mhz=1500.0), late=1.3)
    assert codes(experiments.judge_sensors([], falls)) == ["THROTTLING"]
    assert experiments.judge_sensors([], []) == []


def test_what_was_spilled_when_the_model_was_loaded_is_no_growth_but_a_spill():
    rows = m.sensed(m.lengths(20.0), **full(1.5))
    assert codes(curve_judges.judge_steadiness(rows)) == []
    before = {"kind": "before", "process": 0, "sensor": m.reading(**full(0.1) | {"memory_used_bytes": 0.5 * GIB})}
    assert codes(curve_judges.judge_steadiness([before, *rows])) == ["SPILL_SEEN"]


def test_one_reading_a_second_of_short_work():
    sensors._taken_s.clear()
    found = [sensors.sparse("cpu") for _ in range(5)]
    assert [bool(one) for one in found] == [True, False, False, False, False]
    assert {"sclk_mhz", "host_mhz", "source"} <= set(found[0]["sensor"])


@pytest.mark.parametrize(
    ("module", "asked"),
    [("operator_trial", "sparse"), ("generate", "reading"), ("lengths", "reading"), ("batches", "reading"),
     ("shapes", "sparse"), ("tracing", "reading"), ("attention_trial", "sparse"), ("vision", "reading"),
     ("experiment_trial", "reading"), ("steps", "reading")],
)  # fmt: skip
def test_every_notebook_that_times_something_reads_the_sensors(module, asked):
    text = (ROOT / "rocmlab" / f"{module}.py").read_text(encoding="utf-8")
    assert f"sensors.{asked}(" in text


def test_a_reading_beside_the_rows_of_02_06_and_09_becomes_a_finding():
    rows = [{"op": "add"}, {"op": "mm", "sensor": m.reading(**HOT)}, {"op": "mul", "sensor": None}]
    assert codes(sensor_judges.faults([row.get("sensor") for row in rows], op="operators")) == ["HEAT_LIMIT"]


def test_the_sections_of_02_06_and_09_show_it(tmp_path):
    from rocmlab.sections import attention, llm_shapes, operators

    run = tmp_path / "run"
    (run / "records").mkdir(parents=True)
    hot = {"sensor": m.reading(**HOT)}
    tables = {"operators": [m.tried("add") | hot], "shapes": [row | hot for row in m.shapes(260.0, 0.9)],
              "attention": [{"what": "shape", "case": {}, "status": "OK", **hot}]}  # fmt: skip
    for name, rows in tables.items():
        lines = [results.line({"attempt": "1", "notebook": "00"} | row) for row in rows]
        (run / "records" / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    for one in (operators, llm_shapes, attention):
        assert "HEAT_LIMIT" in codes(one.section(run).findings), one.__name__
