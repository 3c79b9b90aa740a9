"""Operators of a model at its own shapes: rotated, timed, and judged each way."""

import contextlib
import itertools

import pytest
from spoken import codes

from rocmlab import (
    call_timing,
    clock,
    findings,
    model_shape,
    one_row,
    results,
    shape_judges,
    shapes,
    words,
)
from rocmlab.model_shape import DECODE, PREFILL
from rocmlab.roof import Roof
from rocmlab.sections import llm_shapes

torch = pytest.importorskip("torch")
WALL = clock.choose({"tick_ns": 50, "wait_ms": 0.0})
ROOF = Roof(50.0, "measured")


# ---- rotation


def test_no_more_is_rotated_than_a_step_reads(monkeypatch):
    import psutil

    class Memory:
        available = 64 << 30

    monkeypatch.setattr(psutil, "virtual_memory", Memory)
    assert shapes.rotating_bytes(32 << 20, 1 << 30, "cpu") == 128 << 20
    assert shapes.rotating_bytes(32 << 20, 50 << 20, "cpu") == 50 << 20
    Memory.available = 100 << 20
    assert shapes.rotating_bytes(32 << 20, 1 << 30, "cpu") == 25 << 20


def test_the_rotation_goes_on_from_block_to_block():
    seen: list[int] = []
    calls = [lambda n=n: seen.append(n) for n in range(7)]
    found = call_timing.timed(calls, "cpu", WALL)
    assert all(late == (early + 1) % 7 for early, late in itertools.pairwise(seen))
    assert found["method"] == "wall" and found["grade"] == "D" and len(found["samples_ms"]) >= call_timing.FEWEST


def test_known_work_is_timed_as_long_as_it_takes():
    import time

    found = call_timing.timed([lambda: time.sleep(0.005)], "cpu", WALL)
    assert min(found["samples_ms"]) >= 5.0


def test_methods_fall_back_one_after_the_other_and_say_why(monkeypatch):
    def refuse(*_):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(call_timing, "_by_graph", refuse)
    monkeypatch.setattr(call_timing.timing, "synchronise", lambda device: None)
    left = []
    monkeypatch.setattr(call_timing, "_leave_capture", left.append)
    monkeypatch.setattr(call_timing, "_by_queue", lambda *_: {"samples_ms": [1.0]})
    found = call_timing.timed([lambda: None], "cuda:0", WALL)
    assert found["method"] == "queue" and "capturing" in found["failed"]["graph"] and left == ["cuda:0"]
    monkeypatch.setattr(call_timing, "_by_queue", refuse)
    monkeypatch.setattr(call_timing, "_by_events", refuse)
    with pytest.raises(RuntimeError, match="events: operation"):
        call_timing.timed([lambda: None], "cuda:0", WALL)


class Device:
    """A device of known speed: work queued on it takes virtual time, the host takes none but what the test gives it.

    `torch.cuda` is replaced as far as call_timing.py uses it: events, streams, graphs, and waiting.
    """

    def __init__(self, monkeypatch):
        self.device_ms = self.host_ms = 0.0  # when the device will be done, and what the host's clock says
        self.captured = None
        outer = self

        class Event:
            def __init__(self, enable_timing):
                self.at = None

            def record(self):
                outer.device_ms = self.at = max(outer.device_ms, outer.host_ms)

            def synchronize(self):
                outer.wait()

            def elapsed_time(self, other):
                return other.at - self.at

        class Graph:
            def replay(self):
                for ms in self.works:
                    outer.run(ms)

        @contextlib.contextmanager
        def graph(made):
            outer.captured = made.works = []
            yield
            outer.captured = None

        fakes = {"Event": Event, "CUDAGraph": Graph, "graph": graph, "Stream": lambda: None}
        fakes |= {"stream": lambda _: contextlib.nullcontext(), "synchronize": lambda *_: self.wait()}
        fakes |= {"set_stream": lambda _: None, "default_stream": lambda _: None}
        for name, fake in fakes.items():
            monkeypatch.setattr(torch.cuda, name, fake)
        monkeypatch.setattr(call_timing.time, "perf_counter", lambda: self.host_ms / 1000)

    def run(self, ms):
        if self.captured is not None:
            self.captured.append(ms)
        else:
            self.device_ms = max(self.device_ms, self.host_ms) + ms

    def wait(self):
        self.host_ms = max(self.host_ms, self.device_ms)

    def call(self, device_ms, host_ms):
        def queued():
            if self.captured is None:
                self.host_ms += host_ms
            self.run(device_ms)

        return queued


EVENTS = clock.Choice(clock.EVENTS, 0.05, 0, 0, 1.0, "")


def test_a_graph_gives_the_device_s_time_though_the_host_is_ten_times_as_slow(monkeypatch):
    device = Device(monkeypatch)
    calls = [device.call(0.004, host_ms=0.04), device.call(0.006, host_ms=0.04)]
    found = call_timing.timed(calls, "cuda:0", EVENTS)
    assert found["method"] == "graph" and found["grade"] == "B" and not found["host_may_bind"]
    assert found["samples_ms"] == pytest.approx([0.005] * len(found["samples_ms"]))
    by_wall = call_timing.timed(calls, "cuda:0", WALL)
    assert by_wall["grade"] == "D" and by_wall["samples_ms"][0] == pytest.approx(0.005)


def test_behind_known_work_the_device_s_time_shows_too_or_the_method_is_refused(monkeypatch):
    device = Device(monkeypatch)
    monkeypatch.delattr(torch.cuda, "CUDAGraph")  # a build without graphs
    work = device.call(10.0, host_ms=0.1)
    monkeypatch.setattr(call_timing.lengths, "device_work", lambda *_: (work, 10.0))
    found = call_timing.timed([device.call(0.004, host_ms=0.04)], "cuda:0", EVENTS)
    assert found["method"] == "queue" and found["samples_ms"] == pytest.approx([0.004] * call_timing.SAMPLES)
    slow = [device.call(0.004, host_ms=0.4)]  # 20 calls take 8 ms to queue, more than half of the work in front
    found = call_timing.timed(slow, "cuda:0", EVENTS)
    assert found["method"] == "events" and found["host_may_bind"] and "half" in found["failed"]["queue"]
    assert found["samples_ms"][0] > 0.3  # the host's time, and said to be that


# ---- the sum


def row(name="gate_proj", ms=1.0, count=10, phase=DECODE, **changes):
    """One operator that takes `ms` a call; 1,000 bytes a us at 1 GB/s."""
    made = {
        "kind": "operator", "operator": "linear", "name": name, "phase": phase, "count": count, "device": "cpu",
        "dtype": "float32", "bytes": 10_000_000, "flops": 5_000_000, "rotated_bytes": 1 << 30, "shape": {"rows": 1},
        "samples_ms": [ms * scale for scale in (0.99, 1.0, 1.01, 1.0, 0.99, 1.0, 1.01, 1.0)], "method": "wall",
        "value": {"over_tolerance": 0.1, "not_finite": 0}, "weight_bytes": 1 << 30, "evidence_grade": "D",
    }  # fmt: skip
    return made | changes


def test_the_sum_is_count_times_median_with_the_ends_of_the_intervals():
    rows = [row(ms=1.0, count=10), row("lm_head", ms=5.0, count=1), row("softmax", ms=99.0, count=0)]
    rows += [row(ms=400.0, phase=PREFILL), {"kind": "conditions"}]
    found = shapes.step_sum(rows)
    assert found["ms"] == pytest.approx(15.0) and found["n"] == 2 and found["missing"] == []
    assert found["low"] == pytest.approx(14.85) and found["high"] == pytest.approx(15.15)
    assert shapes.step_sum(rows, PREFILL)["ms"] == pytest.approx(4000.0)


def test_an_operator_without_a_time_is_named_and_no_sum_is_no_zero():
    lost = row("sdpa", samples_ms=[], reason="no kernel")
    assert shapes.step_sum([row(), lost])["missing"] == ["sdpa"]
    assert shapes.step_sum([lost])["ms"] is None
    assert shapes.step_sum([])["ms"] is None
    bound = shapes.step_sum([row(device="cuda:0", host_may_bind=True)])
    assert bound["host_may_bind"] == ["gate_proj"]


# ---- judges


def gemms(tflops=1.0):
    return [{"device": "cpu", "dtype": "float32", "m": 1024, "n": 1024, "k": 1024, "flops": 2 * 1024**3,
             "samples_ms": [2 * 1024**3 / tflops / 1e9] * 6}]  # fmt: skip


def step(rows, roof=ROOF, rates=None):
    rates = gemms() if rates is None else rates
    return shape_judges.judge_step(rows, shape_judges.lines(rows, DECODE, roof, rates), roof)


@pytest.mark.parametrize(
    ("ms", "code"), [(0.25, "SHAPES_NEAR_ROOF"), (1.0, "SHAPES_FAR_FROM_ROOF"), (0.335, "SHAPES_UNDECIDED")]
)
def test_the_step_is_near_its_roof_or_far_or_between(ms, code):
    """The roof of 10 MB at 50 GB/s is 0.2 ms; between lies what the spread of 1% straddles."""
    assert codes(step([row(ms=ms)])) == [code]


def test_the_furthest_below_its_roof_stands_first():
    rows = [row("gate_proj", ms=0.3, count=30), row("lm_head", ms=8.0, count=1), row("q_proj", ms=1.0, count=30)]
    (found,) = step(rows)
    said = findings.say(found)["sentence"]
    assert said.index("q_proj") < said.index("lm_head") < said.index("gate_proj")
    assert found["numbers"]["roof_ms"] == pytest.approx(61 * 0.2)


def test_arithmetic_is_the_roof_where_it_takes_longer_than_memory():
    slow = gemms(0.001)
    assert shape_judges.roof_ms(row(), ROOF, slow) == (pytest.approx(5.0), "arithmetic")
    assert shape_judges.roof_ms(row(), ROOF, gemms()) == (pytest.approx(0.2), "memory")
    assert shape_judges.roof_ms(row(), ROOF, []) == (None, "")
    assert shape_judges.roof_ms(row(operator="rms_norm"), ROOF, [])[1] == "memory"


def test_without_a_ceiling_there_is_no_share_but_the_reason():
    none = Roof(None, "none", words.both("roof_small"))
    (found,) = step([row()], none)
    assert found["code"] == "SHAPES_NO_ROOF" and "cache" in findings.say(found)["sentence"]


def test_faster_than_the_ceiling_is_no_share_and_said_unless_a_cache_explains_it():
    fast, cached = row(ms=0.1), row("residual_add", ms=0.1, rotated_bytes=0, operator="residual_add")
    for one in (fast, cached):
        (line,) = shape_judges.lines([one], DECODE, ROOF, gemms())
        assert line["roof_pct"] is None and line["roof_pct_reason"]
    assert codes(shape_judges.judge_over([fast], ROOF, gemms())) == ["SHAPES_OVER_CEILING"]
    assert codes(shape_judges.judge_over([cached, row()], ROOF, gemms())) == []


def test_wrong_values_are_broken_whichever_way_they_are_wrong():
    assert codes(shape_judges.judge_values([row()])) == ["SHAPES_RIGHT_VALUE"]
    for value in ({"over_tolerance": 3.0}, {"over_tolerance": 0.1, "not_finite": 2}, {"over_tolerance": None}):
        (found,) = shape_judges.judge_values([row(), row("sdpa", value=value)])
        assert (found["code"], found["status"]) == ("SHAPES_WRONG_VALUE", "broken")
        assert "sdpa" in findings.say(found)["sentence"] and "gate_proj" not in findings.say(found)["sentence"]
    assert shape_judges.judge_values([]) == []


def test_holes_and_times_of_the_host_are_named():
    lost, bound = row("sdpa", samples_ms=[]), row(device="cuda:0", host_may_bind=True)
    assert codes(shape_judges.judge_holes([lost, bound])) == ["SHAPES_INCOMPLETE", "SHAPES_HOST_MAY_BIND"]
    assert shape_judges.judge_holes([row()]) == []


# ---- one row


def single(one=10.0, every=10.0, control=(8.0, 4.0), ways=None, rounds=10):
    """The arms of one product of 100 MB: 10 ms are 10 GB/s."""
    head = {"name": "lm_head", "shape": {"in": 576, "out": 49152}, "dtype": "float32", "bytes": 100_000_000}
    wobble = {n: [1 + 0.02 * ((turn + n) % 3 - 1) for turn in range(rounds)] for n in (1, 2)}
    arms = [("as_it_is", 1, one), ("as_it_is", 2, every), ("many_rows", 1, control[0]), ("many_rows", 2, control[1])]
    arms += [(way, 2, ms) for way, ms in (ways or {}).items()]
    return [head | {"way": way, "threads": n, "samples_ms": [ms * w for w in wobble[n]]} for way, n, ms in arms]


@pytest.mark.parametrize(
    ("rows", "roof", "code"),
    [
        (single(), ROOF, "ONE_ROW_PRODUCT_ONE_CORE"),
        (single(every=5.0), ROOF, "ONE_ROW_PRODUCT_ALL_CORES"),
        (single(), Roof(12.0, "measured"), "ONE_ROW_PRODUCT_AT_ROOF"),
        (single(control=(8.0, 8.0)), ROOF, "ONE_ROW_PRODUCT_UNDECIDED"),
        (single(every=7.7), ROOF, "ONE_ROW_PRODUCT_UNDECIDED"),
        (single(), Roof(None, "none", {}), "ONE_ROW_PRODUCT_UNDECIDED"),
        (single(rounds=3), ROOF, "ONE_ROW_PRODUCT_UNDECIDED"),
    ],
)
def test_one_row_uses_one_core_or_all_or_needs_no_second(rows, roof, code):
    assert codes(shape_judges.judge_one_row(rows, roof)) == [code]


def test_one_thread_alone_asks_no_question():
    assert shape_judges.judge_one_row([one for one in single() if one["threads"] == 1], ROOF) == []
    assert shape_judges.judge_one_row([], ROOF) == []


def test_what_was_tried_is_said_fastest_first_with_its_gain():
    (found,) = shape_judges.judge_one_row(single(ways={"two_rows": 20.0, "bfloat16": 4.0, "transposed": 5.0}), ROOF)
    for lang in findings.LANGUAGES:
        said = findings.say(found, lang)
        tried = [words.word(f"way_{way}", lang) for way in ("bfloat16", "transposed", "two_rows")]
        places = [said["advice"].index(one) for one in tried]
        assert places == sorted(places) and "2.50×" in said["advice"] and "0.500×" in said["advice"]
        assert "lm_head" in said["sentence"] and "20%" in said["sentence"]


def test_no_way_finds_in_a_cache_what_another_has_just_read(monkeypatch):
    """Two ways over the same weights, each with a place of its own, read the same copy one after the other: then the
    second was 4 times as fast, and a layer's product as it is came out between the two."""
    copies, read = [torch.randn(8, 4) for _ in range(5)], []
    real = torch.nn.functional.linear
    monkeypatch.setattr(
        torch.nn.functional, "linear", lambda x, weight: read.append(weight.data_ptr()) or real(x, weight)
    )
    calls, _ = one_row._ways(copies)
    read.clear()
    for way in ("as_it_is", "as_it_is", "two_rows", "two_rows", "as_it_is"):
        calls[way]()
    assert len(set(read)) == len(copies)


def test_the_ways_give_the_numbers_of_the_product_itself():
    weight = torch.randn(300, 64)
    calls, failed = one_row._ways([weight])
    usual = calls["as_it_is"]()
    assert set(calls) | set(failed) == {"as_it_is", "many_rows", *one_row.OTHER_WAYS} and "transposed" in calls
    for way in set(one_row.OTHER_WAYS) & set(calls):
        got = calls[way]()
        got = got.to_dense() if got.layout == torch._mkldnn else got
        allowed = {"bfloat16": 0.2, "float16": 0.03}.get(way, 1e-3)
        assert (got[0].float() - usual[0]).abs().max() < allowed, way


# ---- end to end


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A whole measurement of the smallest model; products and budgets cut to what a test needs."""
    from rocmlab import gemm_rate

    folder = tmp_path_factory.mktemp("run")
    patch = pytest.MonkeyPatch()
    patch.setattr(gemm_rate, "SIZES", {"cpu": (64,)})
    patch.setattr(call_timing, "BUDGET_S", {"cpu": 0.01, "gpu": 0.01})
    patch.setattr(one_row, "ROUNDS", 6)
    run = results.start("06", str(folder))
    arm = {"arm": "cpu", "device": "cpu", "dtype": "float32"}
    shapes.measure(str(folder), "06", run.attempt, "random:tiny", arm, 16, 8, 1 << 20, None)
    patch.undo()
    return folder


def test_a_whole_measurement_leaves_no_hole(measured):
    rows = results.rows(measured, "shapes")
    operators = [one for one in rows if one["kind"] == "operator"]
    assert all(one["samples_ms"] and one["grade"] == "D" and one["method"] == "wall" for one in operators)
    assert shapes.step_sum(rows)["missing"] == [] and shapes.step_sum(rows)["ms"] > 0
    assert {one["name"] for one in operators if one["phase"] == DECODE} == {
        one["name"] for one in operators if one["phase"] == PREFILL
    }
    head = [one for one in operators if one["name"] == "lm_head"]
    assert [one["measured_in"] for one in head] == [DECODE, DECODE]  # one shape is measured once
    assert {one["way"] for one in results.rows(measured, "one_row")} >= {"as_it_is", "many_rows", "two_rows"}
    layer = [one for one in results.rows(measured, "one_row_layer") if one["samples_ms"]]
    ways = {one["way"] for one in layer}
    assert ways >= {"as_it_is", "two_rows", "transposed"} and "many_rows" not in ways
    assert {one["name"] for one in layer}.isdisjoint({one["name"] for one in results.rows(measured, "one_row")})


def test_the_section_shows_every_table_and_figure(measured):
    part = llm_shapes.section(measured)
    named = ["shapes_decode", "shapes_prefill", "one_row", "gemm_rates", "launch_costs"]
    assert [one.name for one in part.tables] == named
    assert [one.name for one in part.figures] == ["shapes-decode", "shapes-prefill"]
    for figure in part.figures:
        figure.draw()
        assert figure.alt["en"] and figure.alt["zh"]
    assert "SHAPES_RIGHT_VALUE" in codes(part.findings)
    for found in part.findings:
        for lang in findings.LANGUAGES:
            assert "unknown" not in findings.say(found, "en")["sentence"] and findings.say(found, lang)["sentence"]


def test_an_operator_that_cannot_be_made_is_a_row_and_the_rest_goes_on(tmp_path):
    def broken():
        raise AttributeError("'Block' object has no attribute 'mlp'")

    def good():
        return model_shape.Operator("linear", "good", 1, {}, 8, 8, [torch.ones(4)], lambda part: part + 1,
                                        lambda part: part.double() + 1)  # fmt: skip

    run = results.start("06", str(tmp_path))
    head = {"device": "cpu", "dtype": "float32"}
    shapes._phase(run, head, DECODE, [broken, good], 100, WALL, {})
    lost, kept = results.rows(tmp_path, "shapes")
    assert lost["reason"].startswith("AttributeError") and lost["samples_ms"] == [] and lost["name"] == "broken"
    assert kept["name"] == "good" and kept["samples_ms"]
    table = llm_shapes.phase_table(shape_judges.lines([lost, kept], DECODE, ROOF, gemms()))
    assert list(table["shape_name"]) == ["good", "broken"]


def test_a_model_of_another_layout_is_a_row_that_says_so(tmp_path):
    run = results.start("06", str(tmp_path))
    makers = shapes._makers(torch.nn.Linear(2, 2), DECODE, 1, 1)
    shapes._phase(run, {"device": "cpu", "dtype": "float32"}, DECODE, makers, 1, WALL, {})
    (lost,) = results.rows(tmp_path, "shapes")
    assert "layout" in lost["reason"] and "Linear" in lost["reason"]
    assert shapes.step_sum([lost])["ms"] is None


def test_an_empty_kernel_that_crashes_breaks_nothing_else():
    ended = [{"what": "shapes", "status": "OK", "words": ""}, {"what": "empty kernel", "status": "CRASH", "words": "x"}]
    assert shape_judges.judge([], [], [], [], ROOF, {}, ended) == []
    ended[0]["status"] = "TIMEOUT"
    assert codes(shape_judges.judge([], [], [], [], ROOF, {}, ended)) == ["PROCESS_ENDED"]


def test_nothing_measured_is_said_and_a_gpu_has_no_question_of_one_row(tmp_path):
    run = results.start("06", str(tmp_path))
    assert llm_shapes.section(run.path).missing
    run.append("shapes", [row(device="cuda:0", dtype="float16", model_spec="random:x")])
    part = llm_shapes.section(run.path)
    assert part.absent["one_row"] and "shapes_prefill" in part.absent
    assert [one.name for one in part.tables] == ["shapes_decode"]
