"""Every suspect comes out each way it can, on machines whose fault is known and on their opposites."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import machines as m
import made
import pytest
import sweeps
from machines import changed, mixed, without_ledger

from rocmlab import best_remedy, everyday, findings, hypotheses, speed_roofs, suspects, waterfall, words

ROOT = Path(__file__).resolve().parent.parent
S, R, U, N = "supported", "refuted", "undecided", "not_applicable"


def judged(clues, suspect):
    return hypotheses.JUDGES[suspect](clues)


def verdicts(clues):
    return {one.suspect: one.verdict for one in hypotheses.judge(clues)}


def windows(queued_ms):
    """A card on Windows whose step of 30 ms is 30 ms when its token is waited for, and `queued_ms` in a queue."""
    made_account = m.account(
        30.0, 12.0, 14.0, "mixed", T_block=queued_ms, launch=6.0, python_dispatch=5.0, readback=0.1
    )
    return m.clues(made_account, {}, snapshot=m.snapshot("Windows-11-10.0.26100-SP0"))


def waits(readback_ms, count=1):
    found = m.account(20.0, 19.0, 5.0, "host_bound", launch=8.0, python_dispatch=6.0, readback=readback_ms)
    return m.clues(found, {"profiler": [m.seen(waits=count)]})


def one_operator(**changes):
    return dataclasses.replace(m.h200(), operators=[m.tried("rms_norm"), m.tried("rope", **changes)])


def other_operator():
    return dataclasses.replace(m.h200(), operators=[*m.operators(), m.tried("fft", device="cpu")])


def in_memory(used, outside, before=None, whole=8.0, **rows):
    """The card of m.spilled() with readings of its memory, in GiB; `before`: what lay outside before the model came."""

    def of(used, outside):
        sizes = {"memory_used_bytes": used, "memory_total_bytes": whole, "spilled_bytes": outside}
        return {key: None if size is None else size * 2**30 for key, size in sizes.items()}

    lines = m.sensed(m.spilled().table("lengths"), **of(used, outside))
    if before is not None:
        lines.insert(0, {"kind": "before", "device": "cuda:0", "process": 0, "sensor": m.reading(**of(0.5, before))})
    return changed(m.spilled(), lengths=lines, **rows)


def wide_launch():
    lane = [m.part("launch", 2.0, wide=0.5), m.part("python_dispatch", 15.0)]
    return changed(m.h200(), account={"host_lane": lane})


def attention_alone(default_us):
    return changed(m.gfx1032(), attention=m.attention(default_us))


def disturbed():
    return [row | {"others_cpu_pct": 60.0} for row in m.memory(50.0, "cpu")]


def engines(other_tok_s, torch_tok_s):
    """The yardstick on a CPU: another engine and torch, with the same weights in float32."""
    usual = {"backend": "CPU", "device": "CPU", "model_bytes": 538e6, "status": "OK", "prefill_tok_s": m.samples(548.0)}
    return [usual | {"engine": "llama.cpp", "quantisation": "F32", "decode_tok_s": m.samples(other_tok_s)},
            usual | {"engine": "torch", "quantisation": "float32", "decode_tok_s": m.samples(torch_tok_s)}]  # fmt: skip


def text_wrong():
    return [made.text([0.0, 9.0, 0.0, 0.0])]


def off(name="q_proj"):
    return [m.operator(name, "linear", 0.02, 4.2e6, value={"outside": 3, "over_tolerance": 40.0})]


CASES = [
    ("python_dispatch", S, m.h200),
    ("python_dispatch", R, m.gfx1032),  # there, and hidden
    ("python_dispatch", R, m.fallback),  # there, and small
    ("python_dispatch", U, lambda: without_ledger(m.h200())),
    ("python_dispatch", U, lambda: mixed(m.h200())),
    ("python_dispatch", S, lambda: m.clues(m.cpu_step(55.8, 8.7, 12.0, 40.0), {})),
    ("python_dispatch", U, lambda: m.clues(m.cpu_step(47.7, 8.7, 53.0, 40.0) | {"regime": "undecided"}, {})),
    ("launches", S, m.h200),
    ("launches", R, m.gfx1032),
    ("launches", U, wide_launch),
    ("launches", U, lambda: without_ledger(m.h200())),
    ("launches", N, m.slow_cpu),
    ("submission", S, lambda: windows(20.0)),
    ("submission", R, lambda: windows(29.5)),
    ("submission", U, lambda: windows(None)),
    ("submission", U, lambda: windows(26.8)),
    ("submission", N, m.h200),
    ("submission", N, m.slow_cpu),
    ("waiting", S, lambda: waits(4.5, 57)),
    ("waiting", R, lambda: waits(0.1)),
    ("waiting", U, lambda: without_ledger(m.h200())),
    ("waiting", N, m.slow_cpu),
    ("cpu_fallback", S, lambda: one_operator(device="cpu")),
    ("cpu_fallback", R, m.h200),
    ("cpu_fallback", U, lambda: dataclasses.replace(m.h200(), operators=[])),
    ("cpu_fallback", U, lambda: changed(m.h200(), profiler=[m.seen(waits=57)])),
    ("cpu_fallback", R, other_operator),
    ("cpu_fallback", N, m.slow_cpu),
    ("new_shapes", S, m.h200),
    ("new_shapes", R, m.gfx1032),
    ("new_shapes", U, lambda: changed(m.h200(), lengths=[], batches=[])),
    ("new_shapes", U, lambda: changed(m.h200(), lengths=m.lengths(40.0, -30.0), batches=[])),  # the wrong way round
    ("new_shapes", S, lambda: changed(m.slow_cpu(), lengths=m.lengths(57.0, 60.0, "cpu"), batches=[])),
    ("bandwidth", S, m.gfx1032),
    ("bandwidth", R, m.h200),
    ("bandwidth", R, m.fallback),
    ("bandwidth", R, m.slow_cpu),
    ("bandwidth", S, m.cpu_at_roof),
    ("bandwidth", U, m.emulated),  # at half of the roof
    ("bandwidth", U, lambda: m.clues(None, {})),
    ("bandwidth", S, lambda: without_ledger(m.gfx1032())),  # by 04 alone
    ("bandwidth", R, lambda: without_ledger(m.fallback())),
    ("slow_products", S, m.fallback),
    ("slow_products", R, m.gfx1032),
    ("slow_products", R, lambda: changed(m.h200(), shapes=m.shapes(4000.0, 0.05))),  # slow, and hidden
    ("slow_products", U, lambda: changed(m.fallback(), shapes=[])),
    ("slow_products", U, lambda: changed(m.fallback(), shapes=[*m.shapes(260.0, 0.15), {"others_cpu_pct": 45.0}])),
    ("slow_products", S, lambda: changed(m.fallback(), shapes=[*m.shapes(260.0, 0.15), {"others_cpu_pct": 2.0}])),
    ("slow_products", U, lambda: m.clues(m.cpu_step(40.3, 8.1, 3.1, 289.6), {"shapes": m.shapes(62.0, 0.05)})),
    ("slow_products", S, m.slow_cpu),
    ("slow_products", R, m.cpu_at_roof),
    ("wrong_dtype", S, m.emulated),
    ("wrong_dtype", R, m.gfx1032),
    ("wrong_dtype", R, lambda: changed(m.emulated(), gemm_rate=m.rates(float32=9.8, float16=19.0, bfloat16=18.5))),
    ("wrong_dtype", R, lambda: changed(m.emulated(), experiments=[m.remedy("float16", 0.99)])),  # emulated, and hidden
    ("wrong_dtype", U, lambda: changed(m.emulated(), gemm_rate=m.rates(float32=9.8, float16=19.0, bfloat16=13.0))),
    ("wrong_dtype", U, lambda: changed(m.emulated(), gemm_rate=[])),
    ("wrong_dtype", N, m.slow_cpu),
    ("attention", S, lambda: changed(m.fallback(), attention=m.attention(200.0, math=201.0, flash=20.0))),
    ("attention", R, m.gfx1032),
    # Where the host binds, it is the host's time of a call that counts.
    ("attention", S, lambda: changed(m.h200(), attention=m.attention(120.0, math=121.0, flash=15.0))),
    ("attention", U, lambda: attention_alone(60.0)),
    ("attention", R, lambda: attention_alone(10.0)),
    ("attention", U, lambda: changed(m.h200(), attention=[])),
    ("small_operators", S, lambda: changed(m.fallback(), shapes=m.shapes(260.0, 0.9, small_us=40.0))),
    ("small_operators", R, m.fallback),
    ("small_operators", R, lambda: changed(m.h200(), shapes=m.shapes(4000.0, 0.45, small_us=12.0))),  # hidden
    ("small_operators", U, lambda: changed(m.fallback(), shapes=[])),
    ("model_small", S, m.h200),
    ("model_small", R, m.gfx1032),
    ("model_small", U, lambda: changed(m.h200(), experiments=[m.experiment("width_x2", 1.9)])),  # they contradict
    ("model_small", U, lambda: without_ledger(m.h200())),
    ("model_small", N, m.slow_cpu),
    ("clocks", S, lambda: changed(m.fallback(), lengths=m.sensed(m.lengths(33.0), sclk_mhz=500.0))),
    ("clocks", R, lambda: changed(m.fallback(), lengths=m.sensed(m.lengths(33.0)))),
    ("clocks", U, m.fallback),  # no sensors
    ("spilled", S, m.spilled),
    ("spilled", R, m.gfx1032),
    ("spilled", R, lambda: changed(m.gfx1032(), ceiling=m.memory(260.0, spill_at_mib=6144))),  # the model fits
    ("spilled", U, lambda: changed(m.spilled(), ceiling=m.memory(260.0)[:8])),  # tried up to 2 GiB
    ("spilled", U, lambda: changed(m.spilled(), ceiling=[])),
    # by the sensors, whatever sizes were tried: full and more outside than before; full before; room; nothing told
    ("spilled", S, lambda: in_memory(7.9, 1.5, before=0.1, ceiling=[])),
    ("spilled", S, lambda: in_memory(7.9, 1.5, before=0.1, ceiling=m.memory(260.0))),
    ("spilled", R, lambda: in_memory(7.9, 1.5, before=1.4, ceiling=[])),
    ("spilled", R, lambda: in_memory(7.0, 1.5, before=0.1, ceiling=[])),  # pinned for copies
    ("spilled", R, lambda: in_memory(7.0, 0.1, before=0.1)),  # slow from 6 GiB on, for another program than the model
    ("spilled", R, lambda: in_memory(7.9, 0.1, ceiling=[])),
    ("spilled", U, lambda: in_memory(7.9, 1.5, ceiling=[])),  # nobody read before: it may be another program's
    ("spilled", U, lambda: in_memory(7.0, None, whole=None, ceiling=[])),
    ("spilled", U, lambda: in_memory(0.4, 0.0, whole=0.5, ceiling=[])),  # the model is not in what was read
    ("spilled", S, lambda: in_memory(7.9, None)),  # by the sizes alone
    # A step of 33 ms cannot have read 1 GB through PCIe.
    ("spilled", R, lambda: changed(m.spilled(), account={"quantities": {"T": m.quantity(33.0)}})),
    ("spilled", N, m.slow_cpu),
    ("strong_cpu", S, lambda: m.baseline(33.0, 58.0)),
    ("strong_cpu", R, lambda: m.baseline(33.0, 250.0)),
    ("strong_cpu", U, lambda: m.baseline(33.0, 100.0)),
    ("strong_cpu", U, lambda: changed(m.gfx1032(), ceiling_cpu=[])),
    ("strong_cpu", U, lambda: changed(m.gfx1032(), ceiling_cpu=disturbed())),
    ("strong_cpu", N, m.slow_cpu),
    ("weak_cpu", S, lambda: m.baseline(33.0, 250.0)),
    ("weak_cpu", R, lambda: m.baseline(33.0, 58.0)),
    ("weak_cpu", U, lambda: m.baseline(33.0, 100.0)),
    ("weak_cpu", S, lambda: changed(m.baseline(33.0, 58.0), yardstick=engines(51.8, 17.4))),  # another engine is 3x
    ("weak_cpu", R, lambda: changed(m.baseline(33.0, 250.0), yardstick=engines(17.9, 17.4))),
    ("weak_cpu", S, lambda: changed(m.baseline(33.0, 250.0), yardstick=engines(18.0, 17.4)[:1])),  # nothing beside it
    ("weak_cpu", N, m.slow_cpu),
    ("artefact", S, lambda: changed(m.gfx1032(), lengths=m.lengths(2.0))),  # faster than the memory
    ("artefact", S, lambda: changed(m.h200(), stamps=sweeps.stamps("as_it_is", 25.0, 18.9, 186))),
    ("artefact", S, lambda: changed(m.h200(), lengths=[r | {"others_cpu_pct": 55.0} for r in m.lengths(18.9)],
                                    batches=[], generation=[])),
    ("artefact", S, lambda: changed(m.h200(), step=[{"quantity": "conditions", "others_cpu_pct": 47.6}])),
    ("artefact", R, lambda: changed(m.h200(), step=[{"quantity": "conditions", "others_cpu_pct": 4.0}])),
    ("artefact", R, m.h200),
    ("artefact", U, lambda: changed(m.h200(), lengths=m.lengths(30.0))),  # notebooks disagree
    ("artefact", U, lambda: m.clues(None, {"lengths": m.lengths(18.9)})),
    ("wrong_numbers", S, lambda: changed(m.h200(), text=text_wrong())),
    ("wrong_numbers", S, lambda: changed(m.h200(), shapes=off())),
    ("wrong_numbers", S, lambda: one_operator(inputs=[{"inputs": "random", "not_finite": 0, "outside": 9}])),
    ("wrong_numbers", R, m.h200),
    ("wrong_numbers", U, lambda: m.clues(None, {}, ops=[])),
]  # fmt: skip


@pytest.mark.parametrize(
    ("suspect", "wanted", "machine"), CASES, ids=[f"{s}-{w}-{i}" for i, (s, w, _) in enumerate(CASES)]
)
def test_a_suspect_comes_out_as_the_machine_is(suspect, wanted, machine):
    found = judged(machine(), suspect)
    assert found.verdict == wanted, found.evidence["en"]
    assert all(found.evidence[lang] and found.reversal[lang] and found.name[lang] for lang in words.LANGUAGES)
    if wanted == U:
        assert found.decided_by
    if wanted == S and found.span:
        assert found.span.ms > 0


def test_every_suspect_has_a_case_for_each_verdict_it_can_have():
    tried = {(suspect, wanted) for suspect, wanted, _ in CASES}
    assert {(name, kind) for name in suspects.order() for kind in (S, R, U)} <= tried
    assert set(hypotheses.JUDGES) == set(suspects.order())


# ---- whole machines and their opposites


def supported(clues):
    return [one.suspect for one in hypotheses.judge(clues) if one.verdict == S]


def test_a_host_bound_h200():
    found = supported(m.h200())
    assert found[:2] == ["launches", "python_dispatch"]  # the dearest part of the step first
    assert set(found) == {"launches", "python_dispatch", "new_shapes", "model_small"}
    launch = judged(m.h200(), "launches")
    assert launch.span.ms == pytest.approx(11.3) and launch.share_pct == pytest.approx(59.8, abs=0.1)
    assert "6.98 us each" in launch.evidence["en"] and "3.56 ms" in launch.evidence["en"]
    assert judged(m.h200(), "new_shapes").share_pct is None  # it is no part of the steady step


def test_a_card_near_its_roof_is_the_opposite():
    assert supported(m.gfx1032()) == ["bandwidth", "strong_cpu"]
    for name in ("launches", "python_dispatch"):
        hidden = judged(m.gfx1032(), name)
        assert hidden.span.ms == 0 and "hidden" in hidden.evidence["en"]


def test_fallback_kernels_look_flat_over_the_batch_and_are_not_the_host():
    found = verdicts(m.fallback())
    assert found["slow_products"] == S and found["bandwidth"] == R
    assert found["launches"] == found["python_dispatch"] == R
    products = judged(m.fallback(), "slow_products")
    assert products.span.ms == pytest.approx(26.0, abs=0.3)  # 1.192 GB at 15% of 260 GB/s, less the floor
    assert "15%" in products.evidence["en"]


def test_a_spilled_card_and_one_that_holds_the_model():
    found = judged(m.spilled(), "spilled")
    assert found.span.low < 2 * 2**30 / 14.0 / 1e6 < found.span.high
    assert supported(m.spilled())[0] == "spilled"


BOTH_CORES = [{"name": "lm_head", "way": "as_it_is", "threads": n, "samples_ms": m.samples(9.9 / n)} for n in (1, 2)]


def test_a_cpu_that_uses_one_core_for_a_row():
    found = judged(m.slow_cpu(), "slow_products").evidence
    assert "lm_head takes as long with one thread as with 2 (9.90 ms and 9.90 ms)" in found["en"]
    assert "such a product uses one core" in found["en"] and "lm_head 用 1 个线程与用 2 个线程时间相同" in found["zh"]
    both = judged(changed(m.slow_cpu(), one_row=BOTH_CORES), "slow_products").evidence
    assert "one core" not in both["en"] and "lm_head takes 9.90 ms with one thread and 4.95 ms with 2" in both["en"]
    assert supported(m.slow_cpu()) == ["slow_products"] and supported(m.cpu_at_roof()) == ["bandwidth"]


def test_where_the_measuring_is_at_fault_no_verdict_on_a_time_stands():
    loud = [row | {"others_cpu_pct": 55.0} for row in m.lengths(18.9, first_extra=39.0)]
    disturbed_run = changed(m.h200(), lengths=loud, batches=[], generation=[])
    found = verdicts(disturbed_run)
    assert found["artefact"] == S
    assert {found[name] for name in ("launches", "python_dispatch", "new_shapes", "bandwidth", "model_small")} == {U}
    assert found["wrong_numbers"] == found["cpu_fallback"] == R and found["submission"] == N
    one = next(one for one in hypotheses.judge(disturbed_run) if one.suspect == "launches")
    assert one.decided_by == ("11",) and "calm machine" in one.evidence["en"]


def test_half_the_notebooks_missing_is_undecided_and_says_which_would_decide():
    found = hypotheses.judge(m.clues(None, {}, ops=[]))
    assert {one.verdict for one in found} <= {U, N}
    for one in found:
        assert one.verdict == N or one.evidence["en"].startswith("Not measured; notebook")
        assert one.verdict == N or set(one.decided_by) <= {f"{n:02d}" for n in range(1, 12)}


@pytest.mark.parametrize("odd", [[{}], [{"way": "read"}], [{"kind": "hand"}], [{"phase": "decode", "operator": "linear",
                                  "samples_ms": "many"}], [{"what": "case", "backend": "default"}]])  # fmt: skip
def test_odd_records_never_end_the_verdicts(odd):
    for table in m.h200().rows:
        found = hypotheses.judge(changed(m.h200(), **{table: odd}))
        assert [one.suspect for one in found] and len(found) == len(suspects.order())


# ---- the ratio


@pytest.mark.parametrize(
    ("gpu_ms", "cpu_ms", "why"),
    [
        (33.0, 58.0, "both"),  # the article: 13% and 80% of the roofs
        (4.8, 58.0, "bandwidths"),
        (33.0, 100.0, "slow_gpu"),
        (10.0, 58.0, "good_cpu"),
        (4.8, 250.0, "flattered"),
        (33.0, 250.0, "both_far"),
        (10.0, 100.0, "undecided"),
    ],
)
def test_both_ends_of_a_small_ratio(gpu_ms, cpu_ms, why):
    rows = m.baseline(gpu_ms, cpu_ms).rows
    found = speed_roofs.of_rows(rows["generation"], rows["ceiling"], rows["ceiling_cpu"])
    assert found.why == why
    assert found.ratio == pytest.approx(cpu_ms / gpu_ms, rel=0.01)
    # 260 GB/s over 1.192 GB against 50 GB/s over 2.384 GB
    assert found.of_roofs == pytest.approx(260 / 1.192 / (50 / 2.384), rel=0.01)
    product = found.of_roofs * found.gpu.efficiency_pct / found.cpu.efficiency_pct
    assert product == pytest.approx(found.ratio, rel=0.01)
    assert found.within_reach == pytest.approx(260 / 1.192 / (1000 / cpu_ms), rel=0.01)


def test_without_one_of_its_four_parts_there_is_no_two_sided_roofline():
    rows = m.baseline(33.0, 58.0).rows
    assert speed_roofs.of_rows(rows["generation"], rows["ceiling"], []) is None
    assert speed_roofs.of_rows(rows["generation"], [], rows["ceiling_cpu"]) is None
    assert speed_roofs.of_rows(made.study(None), rows["ceiling"], rows["ceiling_cpu"]) is None


# ---- the answers


def test_the_best_remedy_is_right_fast_and_there_and_its_price_is_said():
    found = best_remedy.judge(m.h200())
    assert found["code"] == "BEST_REMEDY" and found["numbers"]["remedy_gain_ratio"] == pytest.approx(10.0, rel=0.01)
    said = findings.say(found)["sentence"]
    assert "42 s to compile" in said and "410 MiB more memory" in said and "0.0100, where the largest is 20.0" in said
    assert findings.say(found, "zh")["sentence"].startswith(findings.say(found)["sentence"][:2]) is False


def test_a_remedy_measured_at_another_pace_is_set_against_the_step_too():
    """The loop beside it took 37.8 ms, the step above 18.9: ten times in turns, five times as fast as that step."""
    slow = m.remedy("lean", 0.1, baseline_samples_ms=m.samples(37.8), changed_samples_ms=m.samples(3.78))
    said = findings.say(best_remedy.judge(changed(m.h200(), experiments=[slow])))["sentence"]
    assert "10.0×" in said and "against the step of 18.9 ms above it is 5.00×" in said
    assert "pace" not in findings.say(best_remedy.judge(m.h200()))["sentence"]


@pytest.mark.parametrize(("rate", "warned"), [(0.05, True), (0.5, False)])
def test_a_dtype_that_is_slow_for_long_prompts_is_a_remedy_of_decode_only(rate, warned):
    rows = {"experiments": [m.remedy("float16", 0.4)], "gemm_rate": m.rates(float32=0.2, float16=rate)}
    said = findings.say(best_remedy.judge(changed(m.slow_cpu(), **rows)))["advice"]
    assert ("take 4.00 times as long" in said) is warned and "torch.float16" in said


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (m.remedy("graph", 1.0), "NO_REMEDY_HELPS"),
        (m.remedy("graph", 1.0) | {"status": "CRASH"}, None),
        (m.experiment("width_tiny", 0.2), None),  # a question is no remedy
    ],
)
def test_what_is_no_remedy(row, code):
    found = best_remedy.judge(changed(m.h200(), experiments=[row]))
    assert (found and found["code"]) == code
    wrong = best_remedy.judge(changed(m.h200(), experiments=[row, m.remedy("lean", 0.1, logits_error=9.0)]))
    assert not wrong or wrong["code"] != "BEST_REMEDY"


# ---- the two everyday questions


def variants(clues):
    return {one["code"]: one["variant"] for one in everyday.judge(clues, hypotheses.judge(clues))}


def test_a_monitor_s_share_of_the_gpu_is_a_range_where_a_trace_shows_less():
    """Of 18.9 ms a replay takes 4.53 (24%), its kernels 3.38 (18%); without a trace there is one number."""
    traced = m.host_bound()
    traced["quantities"]["D_busy"] = {"ms": 3.38, "low": 3.3, "high": 3.5, "n": 3, "grade": "A", "valid": True}
    said = [findings.say(everyday.low_gpu(m.clues(one, m.h200_rows())))["sentence"] for one in (traced, m.host_bound())]
    assert "only 18-24% of a decode step" in said[0] and "only 24% of a decode step" in said[1]


def test_the_two_everyday_questions():
    on_windows = dataclasses.replace(m.gfx1032(), snapshot=m.snapshot("Windows-11-10.0.26100-SP0"))
    assert variants(m.h200()) == {"TASK_MANAGER_GPU": "low", "CPU_SHARE": "gpu"}
    assert variants(on_windows) == {"TASK_MANAGER_GPU": "high_windows", "CPU_SHARE": "gpu_waits"}  # the device binds
    assert variants(m.slow_cpu()) == {"TASK_MANAGER_GPU": "cpu", "CPU_SHARE": "cpu_one_core"}
    for rows in (BOTH_CORES, []):  # products that use both cores, or that nobody timed
        assert variants(changed(m.slow_cpu(), one_row=rows))["CPU_SHARE"] == "cpu"
    assert variants(one_operator(device="cpu"))["CPU_SHARE"] == "fallback"
    assert "TASK_MANAGER_GPU" not in variants(m.clues(None, {}))
    (share,) = [one for one in everyday.judge(m.h200(), []) if one["code"] == "CPU_SHARE"]
    assert share["numbers"]["one_thread_pct"] == pytest.approx(100 / 16)


def test_a_cpu_whose_products_keep_one_of_its_threads_busy_shows_less_than_all():
    share = everyday.on_the_cpu(m.slow_cpu(), [])  # 2 of 16 threads
    assert "2 of 16 threads are set" in findings.say(share)["sentence"]
    for lang, said in (("en", "between 6% and 12%"), ("zh", "6% 到 12% 之间")):
        assert said in findings.say(share, lang)["sentence"]


def busy(device_ms, upper=False):
    """The everyday answer about the GPU's share where the device works so long of a step of 18.9 ms."""
    machine = m.h200()
    device = {"ms": device_ms, "low": device_ms, "high": device_ms}
    account = {**machine.account, "device_ms": device, "device_upper": upper}
    return everyday.low_gpu(dataclasses.replace(machine, account=account))


def test_of_an_upper_bound_only_a_low_share_is_said():
    assert "for only 24% of" in findings.say(busy(4.53))["sentence"]
    for lang, word in (("en", "at most 24%"), ("zh", "最多 24%")):
        assert word in findings.say(busy(4.53, upper=True), lang)["sentence"]
    assert busy(15.0)["variant"] == "high" and busy(15.0, upper=True) is None


def test_device_time_longer_than_the_step_is_no_busy_share():
    longer = m.clues({**m.h200().account, "device_ms": {"ms": 60.0, "low": 60.0, "high": 60.0}}, {})
    assert everyday.busy_pct(longer) is None


def test_a_model_that_may_be_too_small_is_said_with_the_share_that_idles():
    mixed = {**m.h200().account, "regime": "mixed", "binding": None}
    found = hypotheses.JUDGES["model_small"](dataclasses.replace(m.h200(), account=mixed))
    assert found.verdict == "undecided"
    assert "14.4 ms of a step of 18.9 ms (76%)" in found.evidence["en"]


def test_the_busy_share_comes_from_the_trace_where_there_is_no_ledger():
    steps = [{"what": "steps", "arm": "clean", "itl_ms": [20.0] * 6}]
    assert everyday.busy_pct(m.clues(None, {"profiler": [*steps, m.seen()]})) == pytest.approx(16.9)
    assert everyday.busy_pct(m.h200()) == pytest.approx(100 * 4.53 / 18.9)


# ---- the waterfall


def test_bars_stand_on_each_other_and_end_at_the_step():
    host, device = waterfall.parts(m.host_bound())
    assert (host.lane, host.hidden, device.lane, device.hidden) == ("host", False, "device", True)
    for before, bar in zip(host.bars, host.bars[1:], strict=False):
        assert bar.begin == pytest.approx(before.begin + before.ms)
    assert host.bars[-1].name == "residual"
    assert host.bars[-1].begin + host.bars[-1].ms == pytest.approx(18.9, abs=0.06)  # parts below 0.2% have no bar
    assert waterfall.work_ms(device) == pytest.approx(4.53)
    assert "4.53 of 18.9 ms" in waterfall.heading(device, decided=True, on_cpu=False)


def test_the_other_lane_is_on_top_where_the_device_binds():
    first, second = waterfall.parts(m.device_bound(33.0, 4.6))
    assert (first.lane, second.lane) == ("device", "host") and second.hidden
    both = waterfall.parts(mixed(m.h200()).account)
    assert [group.hidden for group in both] == [False, False]
    assert "neither" in waterfall.heading(both[0], decided=False, on_cpu=False)


def test_a_cpu_has_one_lane_and_nothing_measured_draws_nothing():
    (only,) = waterfall.parts(m.slow_cpu().account)
    assert only.lane == "device" and not only.hidden
    assert waterfall.parts(None) == [] and waterfall.parts({"quantities": {}}) == []
    empty = m.account(18.9, 18.0, 4.0, "undecided")
    assert waterfall.parts(empty) == []


def test_what_was_not_measured_is_named_under_the_picture():
    (device, _) = waterfall.parts(m.device_bound(33.0, 4.6) | {"device_lane": [m.part("memory_floor", 4.6),
                                  m.part("excess", 27.0), m.part("gaps", None)]})  # fmt: skip
    assert device.absent == ["gaps"]
    figure = waterfall.draw([device], "card", decided=True)
    assert any("not measured: gaps between kernels" in text.get_text().replace("\n", " ") for text in figure.texts)


# ---- no torch


def test_the_verdict_imports_no_torch(tmp_path):
    run = m.write(tmp_path / "run", m.gfx1032(shapes=[]), m.steps_of_gfx1032(), name="t", arch="gfx1032", card="a card")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "from rocmlab.sections import verdict\n"
        "made = verdict.section(Path(sys.argv[1]))\n"
        "assert made.answers['slow']['code'] == 'VERDICT_AT_ROOF', made.answers\n"
        "[figure.draw() for figure in made.figures]\n"
        "assert sys.modules['torch'] is None"
    )
    done = subprocess.run([sys.executable, "-c", code, str(run)], cwd=ROOT, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr


def visited(pairs):
    """A slow CPU with first and second visits of three lengths, in ms a token."""
    rows = [
        sweeps.text(length, ms, visit=visit, block=None, device="cpu")
        for length, pair in zip((32, 128, 384), pairs, strict=True)
        for visit, ms in zip(("first", "second"), pair, strict=True)
    ]
    return judged(changed(m.slow_cpu(), lengths=rows, batches=[]), "new_shapes")


def test_new_shapes_are_compared_each_with_itself():
    """Medians of unlike shapes would say 60 against 38 here, and 95 against 30 below."""
    noise = visited([(100.0, 98.0), (20.0, 21.0), (60.0, 38.0)])
    assert noise.verdict == R and noise.span.ms == pytest.approx(2.0) and noise.span.high == pytest.approx(22.0)
    assert "100 ms" in noise.evidence["en"] and "98" in noise.evidence["en"]
    paid = visited([(52.0, 22.0), (110.0, 30.0), (95.0, 60.0)])
    assert paid.verdict == S
    assert (paid.span.ms, paid.span.low, paid.span.high) == pytest.approx((35.0, 30.0, 80.0))
    assert "95" in paid.evidence["en"] and "60" in paid.evidence["en"]
    apart = visited([(30.0, 20.0), (110.0, 101.0), (112.0, 101.0)])  # the one in the middle is no typical ratio
    assert apart.verdict == U
