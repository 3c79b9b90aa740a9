"""Faults planted into a whole measurement of a step, on a simulated device with a clock of its own.

What must move does, and what must not stays. Every number is known by arithmetic: so much of host and device a layer.
"""

import dataclasses
import functools

import pytest
import torch
from test_steps import Device, small

from rocmlab import (
    clock,
    decode,
    findings,
    ledger,
    ledger_judges,
    model_bytes,
    models,
    prefilled,
    results,
    rig,
    step_device,
    steps,
    timing,
)
from rocmlab import twin as twins
from rocmlab.sections import experiments, verdict

LAYERS = 4
HOST_BOUND = {"python": 1.5, "launch": 2.5, "works": 1.0}  # ms a layer: 16 of the host, 4 of the device
DEVICE_BOUND = {"python": 0.4, "launch": 0.6, "works": 4.0}  # 4 of the host, 16 of the device
TINY = 0.01  # ms of device work in a layer of the twin
GB_S = 1.0  # at which 1 MB takes 1 ms


class Bench:
    """A model, its twin, and the twin on the CPU, whose layers cost what the machine says; faults lie in the code."""

    def __init__(self, monkeypatch, machine, fault=None, again=0.0):
        self.device, self.machine, self.busy = Device(monkeypatch), machine, 0.0
        monkeypatch.setattr(rig, "time", type("Clock", (), {"perf_counter": self.device.read}))
        monkeypatch.setattr(rig.stamped, "__defaults__", (self.device.read,))
        monkeypatch.setattr(decode, "on_host", lambda state: self.device.wait() or [0])
        padded = decode.padded
        monkeypatch.setattr(decode, "padded", lambda prompts, device: padded(prompts, "cpu"))
        monkeypatch.setattr(prefilled, "chain", lambda device: functools.partial(self.layer, 0.01, 0.01))
        monkeypatch.setattr(clock, "qualify", lambda device: {"tick_ns": 1, "wait_ms": 0.0})
        monkeypatch.setattr(steps.sensors, "reading", lambda device: {})  # this device has none
        self.model = small(num_hidden_layers=LAYERS)
        self.models = [self.model, *(twins.make(self.model, "cpu", "float32") for _ in range(2))]
        host, works = machine["python"] + machine["launch"], machine["works"] * (1 + again)
        for one, each in zip(self.models, ((host, works), (host, TINY), (machine["python"], 0.0)), strict=True):
            self.cost(one, *each)
            if fault and one is not self.models[2]:  # nothing waits for a device on the CPU
                for layer in one.model.layers:
                    layer.register_forward_hook(lambda *_: fault(self))

    def cost(self, model, host, works):
        for layer in model.model.layers:
            layer.register_forward_hook(lambda *_: self.layer(host, works))

    def layer(self, host, works):
        """Hand work over and go on with the host's own."""
        self.device.work(works)
        self.busy += works
        self.device.host(host)

    def account(self, tmp_path, dtype_times=1, **given):
        run = results.start("11", str(tmp_path))
        notes = steps.Notes(run, {"device": "cuda:0", "dtype": "float16", "batch": 1, "context": 8})
        with torch.inference_mode():
            rigs = [dataclasses.replace(rig.ready(one, "cpu", 8), device="cuda:0") for one in self.models]
            steps.in_turns(notes, dict(zip(("T", "H", "H_cpu"), rigs, strict=True)), 2, 6, 1e9)
            step_device.queue(notes, rigs[0], self.model)
            before = self.busy
            rig.step(rigs[0])
            trace = {"busy_ms": [self.busy - before] * 6, "kernels": LAYERS}
        notes.add("H_graph", [LAYERS * TINY] * 6, method="replay")  # graphs have no simulation: what one would read
        floor = {"ceiling_gb_s": GB_S, "bytes_a_token": 4e6 * dtype_times}  # 1 ms a layer
        return ledger.build(run.rows("step"), trace=trace, **floor | given)


def ms(account, name):
    return account["quantities"][name]["ms"]


def excess(account):
    return next(row["ms"] for row in account["device_lane"] if row["name"] == "excess")


def codes(account):
    return {one["code"] for one in ledger_judges.judge(account)}


def test_queueing_begins_with_an_idle_device(monkeypatch):
    device = Device(monkeypatch)
    monkeypatch.setattr(rig, "time", type("Clock", (), {"perf_counter": device.read}))
    monkeypatch.setattr(rig, "step", lambda one: (device.work(1.0), device.host(0.2)))
    monkeypatch.setattr(rig, "back", lambda one, count: None)
    device.work(50.0)  # what was left over
    found = rig.queued(type("Left", (), {"device": "cuda:0"}), 4)
    assert (found["ms"], found["enqueue_ms"]) == (pytest.approx(1.0, abs=0.01), pytest.approx(0.2, abs=0.01))


NEAR = functools.partial(pytest.approx, abs=0.2)


@pytest.mark.parametrize(
    ("machine", "regime", "host", "works"), [(HOST_BOUND, "host_bound", 16, 4), (DEVICE_BOUND, "device_bound", 4, 16)]
)
def test_a_machine_without_a_fault_reads_as_it_is(monkeypatch, tmp_path, machine, regime, host, works):
    found = Bench(monkeypatch, machine).account(tmp_path)
    assert found["regime"] == regime and (ms(found, "T"), ms(found, "H")) == (NEAR(16), NEAR(host))
    assert ms(found, "E1") == NEAR(host) and ms(found, "D_busy") == ms(found, "D_queue") == NEAR(works)
    assert found["hidden_ms"] == NEAR(4) and abs(found["residual_pct"]) < 5
    assert next(row["ms"] for row in found["host_lane"] if row["name"] == "launch") == NEAR(LAYERS * machine["launch"])
    assert not codes(found) & {"ENQUEUE_DISAGREES", "QUEUE_NOT_AVAILABLE", "DEVICE_TIMES_DISAGREE", "RESIDUAL_LARGE"}


def waits(bench):
    bench.device.wait()


def test_a_wait_after_each_layer_is_hidden_where_the_host_binds_and_spoils_the_queue_only(monkeypatch, tmp_path):
    found = Bench(monkeypatch, HOST_BOUND, waits).account(tmp_path)
    assert found["regime"] == "host_bound" and ms(found, "T") == NEAR(16)
    assert not found["quantities"]["D_queue"]["valid"] and "QUEUE_NOT_AVAILABLE" in codes(found)
    assert "ENQUEUE_DISAGREES" not in codes(found)


def test_a_wait_after_each_layer_shows_in_the_enqueue_where_the_device_binds(monkeypatch, tmp_path):
    found = Bench(monkeypatch, DEVICE_BOUND, waits).account(tmp_path)
    assert found["regime"] == "device_bound" and (ms(found, "T"), ms(found, "E1")) == (NEAR(16), NEAR(16))
    assert {"ENQUEUE_DISAGREES", "QUEUE_NOT_AVAILABLE"} <= codes(found)


@pytest.mark.parametrize(("machine", "step", "host", "works"), [(HOST_BOUND, 16, 16, 8), (DEVICE_BOUND, 32, 4, 32)])
def test_weights_read_twice_double_the_device_alone(monkeypatch, tmp_path, machine, step, host, works):
    found = Bench(monkeypatch, machine, again=1.0).account(tmp_path)
    assert (ms(found, "T"), ms(found, "H"), ms(found, "D_busy")) == (NEAR(step), NEAR(host), NEAR(works))
    assert excess(found) == NEAR(works - 4)  # above a floor that stays


def test_weights_in_a_wrong_dtype_double_the_floor_with_the_device(monkeypatch, tmp_path):
    right = Bench(monkeypatch, DEVICE_BOUND | {"works": 1.1}).account(tmp_path / "right")
    wrong = Bench(monkeypatch, DEVICE_BOUND | {"works": 2.1}).account(tmp_path / "wrong", dtype_times=2)
    assert ms(wrong, "D_busy") - ms(right, "D_busy") == NEAR(4)
    assert excess(wrong) == NEAR(excess(right)) == NEAR(0.4)


def test_the_bytes_of_a_token_are_those_of_the_weights_as_they_lie_in_memory():
    half = small(dtype=torch.float16)
    small_bytes = model_bytes.weight_bytes(half)
    assert model_bytes.weight_bytes(half.float()) == 2 * small_bytes


def unfused(bench):
    """Eleven more operators a layer, each a launch with next to no work."""
    for _ in range(11):
        bench.layer(0.05, 0.01)


def test_unfused_attention_costs_both_lanes_by_its_launches(monkeypatch, tmp_path):
    more = 11 * LAYERS * 0.05
    host = Bench(monkeypatch, HOST_BOUND, unfused).account(tmp_path / "host")
    assert (ms(host, "T"), ms(host, "H"), ms(host, "D_busy")) == (NEAR(16 + more), NEAR(16 + more), NEAR(4.44))
    assert host["regime"] == "host_bound"
    device = Bench(monkeypatch, DEVICE_BOUND, unfused).account(tmp_path / "device")
    assert (ms(device, "T"), ms(device, "H"), ms(device, "D_busy")) == (NEAR(16.44), NEAR(4 + more), NEAR(16.44))
    assert device["regime"] == "device_bound"


def test_a_delay_on_the_host_moves_the_lane_that_it_is_in(monkeypatch, tmp_path):
    def delay(bench):
        bench.device.host(0.5)

    host = Bench(monkeypatch, HOST_BOUND, delay).account(tmp_path / "host")
    assert (ms(host, "T"), ms(host, "H"), ms(host, "D_busy")) == (NEAR(18), NEAR(18), NEAR(4))
    device = Bench(monkeypatch, DEVICE_BOUND, delay).account(tmp_path / "device")
    assert (ms(device, "T"), ms(device, "H"), ms(device, "D_busy")) == (NEAR(16), NEAR(6), NEAR(16))


# ---- a GPU of which neither queue nor trace nor graph can be had


def test_where_queue_trace_and_graph_fail_eleven_and_twelve_still_say_what_they_can(monkeypatch, tmp_path):
    """torch for the CPU refuses all three, as a driver may: AssertionError, RuntimeError, whatever it has."""
    load, make, padded = models.load, twins.make, decode.padded
    for module in (timing, clock, decode.timing):
        monkeypatch.setattr(module, "synchronise", lambda device: None)
    monkeypatch.setattr(timing, "use", lambda device: None)
    monkeypatch.setattr(models, "load", lambda spec, device, dtype: load(spec, "cpu", dtype))
    monkeypatch.setattr(twins, "make", lambda model, device, dtype: make(model, "cpu", dtype))
    monkeypatch.setattr(decode, "padded", lambda prompts, device: padded(prompts, "cpu"))
    run, threads = results.start("11", str(tmp_path)), torch.get_num_threads()
    try:
        arm = {"device": "cuda:0", "dtype": "float32"}
        steps.measure(str(run.path), "11", "1", "random:tiny", arm, context=8, steps=1, blocks=6, limit_s=60)
    finally:
        torch.set_num_threads(threads)
    rows = {row["quantity"]: row for row in results.rows(run.path, "step")}
    assert {name for name in ("T", "H", "H_cpu", "E1", "T_block") if rows[name]["n"] == 6} == {
        "T", "H", "H_cpu", "E1", "T_block"
    }  # fmt: skip
    for name in ("D_queue", "launches", "D_graph"):
        assert rows[name]["valid"] is False and rows[name]["reason"] and rows[name]["samples_ms"] == []
    found = ledger.of_run(run.path)
    assert (found["regime"], found["device_ms"]) == ("undecided", None)
    eleven, twelve = experiments.section(run.path), verdict.section(run.path)
    for name in ("D_queue", "D_busy", "D_graph"):  # each with its own reason, in the table
        (line,) = [one for one in eleven.tables[0].frame.to_dict("records") if one["quantity"] == name]
        assert line["how"] == rows["launches" if name == "D_busy" else name]["reason"]
    for lang, why in (("en", "no way to the device time worked"), ("zh", "没有一种方法能得到设备时间")):
        assert why in findings.say(eleven.findings[0], lang)["sentence"]
        assert why in findings.say(twelve.findings[0], lang)["sentence"]
    assert "slow" not in twelve.answers and "waterfall" in twelve.absent
